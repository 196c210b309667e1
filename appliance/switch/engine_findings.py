"""Findings on an engine's program: the files that it opens, and the options that its build has.

One rule for `appliance apply` and `appliance profile validate`, which warn, and for the preflight, which
refuses before it stops anything. A file must exist, and the engine must be able to open it as its user
and in its unit's view. An engine ends at an option that it does not know, after the model before it was
stopped: a list of options that is complete refuses, one that was read in sources only warns. What is
not certain (a path that this process may not look into, an access list) never refuses.
"""

import shlex
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Engine
from appliance.model.engine_build import EngineBuild, Lack, lacks
from appliance.model.names import BACKEND_GROUP
from appliance.model.profile import Applied
from appliance.model.wording import closest, printable
from appliance.switch.preflight_facts import (
    AccessFacts,
    Node,
    PreflightFinding,
    Presence,
    ProfileFacts,
    Use,
    Walk,
    fine,
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

_MOST_FILES: Final = 3


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
    if len(found) <= _MOST_FILES:
        return found
    first = found[:_MOST_FILES]
    return (*first, warn(f"{len(found) - len(first)} further files cannot be opened either"))


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


_MOST_OPTIONS: Final = 5
_MOST_VALUES: Final = 12


def is_asked(applied: Applied) -> bool:
    """Tell whether the engine of a profile has options that can be read from its program."""
    engine = ENGINES.get(applied.engine)  # None: a manifest of another release
    return engine is not None and engine.build_question != ""


def build_findings(applied: Applied, build: EngineBuild | None) -> Iterator[PreflightFinding]:
    """Yield a finding on each option of `applied` that `build` lacks; none where it is not known."""
    if build is None:
        return
    if build.problem:
        text = f"the options of {applied.binary} are not known: {printable(build.problem)}"
        yield warn(text)
    elif build.version:
        yield fine(f"{applied.engine} {printable(build.version)}, {applied.binary}")
    finding = refuse if build.is_complete else warn
    found = lacks(applied.command, build)
    for lack in found[:_MOST_OPTIONS]:
        yield finding(_sentence(applied, build, lack))
    if len(found) > _MOST_OPTIONS:
        yield warn(f"{len(found) - _MOST_OPTIONS} further options are not in this build either")


def lacking_options(applied: Applied, build: EngineBuild) -> tuple[str, ...]:
    """Return the options of `applied` that `build` lacks, each with the value that it does not take."""
    return tuple(_shown(lack) for lack in lacks(applied.command, build))


def _sentence(applied: Applied, build: EngineBuild, lack: Lack) -> str:
    file = applied.source_path.rpartition("/")[2]
    engine = ENGINES.get(applied.engine)
    key = "extra_args" if engine is None else _key(engine, lack.option)
    program = f"{applied.binary} ({printable(build.version)})" if build.version else applied.binary
    verb = "does not have" if build.is_complete else "does not seem to have"
    if not key:
        text = (
            f"the appliance gives {_shown(lack)} to each {applied.engine}, which {program} {verb}"
        )
        return f"{text}{_hint(lack, build)}: install another build"
    text = f"{key} in {file} needs {_shown(lack)}, which {program} {verb}"
    return f"{text}{_hint(lack, build)}: install another build, or change {key}"


def unasked_sentence(applied: Applied, build: EngineBuild | None) -> str:
    """Return that the options of a profile were not compared with its program's; empty: they were.

    The program is asked in the sandbox of its unit: for that its profile has to be applied.
    """
    if build is not None or not is_asked(applied):
        return ""
    return (
        f"the options of {applied.binary} are not known yet, so none was checked:"
        f" sudo appliance apply, then appliance switch {applied.name} --dry-run"
    )


def _key(engine: Engine, option: str) -> str:
    """Return the key that an option is written from; empty: the appliance adds it, whatever the profile says."""
    if key := engine.option_table.keys.get(option):
        return key
    rules = engine.arguments
    return "" if rules is not None and rules.reason_against(option) else "extra_args"


def _shown(lack: Lack) -> str:
    return printable(f"{lack.option} {lack.value}".rstrip())


def _hint(lack: Lack, build: EngineBuild) -> str:
    if instead := build.removed.get(lack.option):
        return f" (its help says: {printable(instead)})"
    if lack.value:
        values = (build.options.get(lack.option) or ())[:_MOST_VALUES]
        return f" (it takes {', '.join(map(printable, values))})"
    near = closest(lack.option, build.options)
    return "" if near is None else f" (the nearest is {near})"
