"""Check that the files an engine starts from exist, and that it may open them, as its user and in its unit's view.

One rule for `appliance apply` and `appliance profile validate`, which warn, and for the preflight, which
refuses before it stops anything. What is not certain (a path that this process may not look into, an
access list) never refuses.
"""

import shlex
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from appliance.model.names import BACKEND_GROUP
from appliance.model.profile import Applied
from appliance.switch.admission.findings import (
    AccessFacts,
    Node,
    PreflightFinding,
    Presence,
    ProfileFacts,
    Use,
    Walk,
    refuse,
    warn,
)
from appliance.switch.units.sandbox import (
    PRIVATE,
    Sight,
    is_concealed,
    sight_of,
    view_in,
    view_of,
)

_MOST_TOLD: Final = 3


def file_findings(applied: Applied, facts: ProfileFacts) -> Iterator[PreflightFinding]:
    """Yield findings on files that the engine of `applied` would not find or could not open."""
    if facts.model is Presence.MISSING:
        path = applied.model_path or applied.model
        mount = "/".join(path.split("/")[:2])
        yield refuse(f"model file missing: {path} (is {mount} mounted?)")
    if facts.model is Presence.DAMAGED:
        yield refuse(f"model file damaged: {facts.model_problem}")
    if facts.model is Presence.UNKNOWN and facts.model_problem:
        yield warn(f"model file not checked: {facts.model_problem}")
    if facts.draft is Presence.MISSING:
        yield refuse(f"draft model missing: {applied.draft_path}")
    for adapter in applied.adapters:
        if adapter.name in facts.missing_adapters:
            yield refuse(f"adapter missing: {adapter.name}: {adapter.path}")
    file = applied.source_path.rpartition("/")[2]
    for adapter, rank in zip(applied.adapters, facts.adapter_ranks, strict=False):
        if rank is not None and adapter.most_rank is not None and rank > adapter.most_rank:
            yield refuse(
                f"adapter {adapter.name} has rank {rank}, and its engine is started for ranks up to "
                f"{adapter.most_rank}: correct its rank in {file}, or remove it there, then: sudo appliance apply"
            )
    if facts.engine is Presence.MISSING:
        yield refuse(f"engine not found: {applied.binary}: install it or correct {file}")
    yield from access_findings(applied, facts.access)


def access_findings(applied: Applied, facts: AccessFacts | None) -> Iterable[PreflightFinding]:
    """Return findings on files that the engine of `applied` could not open."""
    if facts is None:
        return ()
    view = _view(applied, facts)
    obstacles = (o for walk in facts.walks for o in _obstacles(walk, facts, view))
    found = tuple({o.text: o for o in obstacles}.values())
    if len(found) <= _MOST_TOLD:
        return found
    told = found[:_MOST_TOLD]
    return (*told, warn(f"{len(found) - len(told)} further files cannot be opened either"))


def _view(applied: Applied, facts: AccessFacts) -> frozenset[str]:
    """Return the paths that the unit shows; empty where no path needs it, the usual case."""
    if not any(is_concealed(node.path) for walk in facts.walks for node in walk.nodes):
        return frozenset()
    return view_of(applied) if facts.unit is None else view_in(facts.unit)


def _obstacles(walk: Walk, facts: AccessFacts, view: frozenset[str]) -> Iterator[PreflightFinding]:
    """Yield a finding on the first node that the engine cannot pass, if there is one."""
    last = walk.nodes[-1] if walk.arrived else None
    for node in walk.nodes:
        sight = sight_of(node.path, view)
        if sight is Sight.HIDDEN:
            yield refuse(_hidden(node.path))
            return
        if sight is Sight.PASSED or stat.S_ISLNK(node.mode):
            continue
        wanted = _wanted(node, walk.use if node is last else None)
        if missing := wanted & ~_granted(node, facts):
            text = _denied(node, facts, missing)
            yield warn(f"{text} (unless its access list says so)") if node.has_acl else refuse(text)
            return


def _wanted(node: Node, use: Use | None) -> int:
    """Return the permission bits of one class that `use` needs; None: the node is on the way."""
    if use is None or use is Use.RUN:
        return 1
    return 5 if stat.S_ISDIR(node.mode) else 4


def _granted(node: Node, facts: AccessFacts) -> int:
    """Return the bits of the class that the kernel applies: the first that fits."""
    if facts.uid is not None and node.uid == facts.uid:
        return node.mode >> 6 & 7
    return (node.mode >> 3 if node.gid in facts.gids else node.mode) & 7


def _denied(node: Node, facts: AccessFacts, missing: int) -> str:
    verb = "read" if missing & 4 else "enter" if stat.S_ISDIR(node.mode) else "run"
    path, mode = shlex.quote(node.path), stat.S_IMODE(node.mode)
    bits = ("r" if missing & 4 else "") + ("x" if missing & 1 else "")
    if facts.uid is not None and node.uid == facts.uid:
        remedy = f"sudo chmod u+{bits} {path}"
    elif node.gid in facts.gids:
        remedy = f"sudo chmod g+{bits} {path}"
    else:
        remedy = f"sudo chgrp {BACKEND_GROUP} {path} && sudo chmod g+{bits} {path}"
    return f"{facts.user} may not {verb} {node.path} ({mode:04o}, owner {node.owner}): {remedy}"


def _hidden(path: str) -> str:
    for top in PRIVATE:
        if path.startswith(f"{top}/"):
            return f"the engine cannot see {path}: each unit has a {top} of its own: move the file"
    return (
        f"the engine cannot see {path}, which its unit does not show: sudo appliance apply, or name it in"
        ' [unit] "Service.BindReadOnlyPaths"'
    )
