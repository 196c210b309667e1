"""Plan of `appliance apply`, file by file: the same for a dry run and for the real one.

================================== =========================================================
installed file                     is
================================== =========================================================
missing, wanted                    created
as apply wrote it, text differs    updated; a running model keeps running, and its restart is
                                   named where the process has another form (`started_form`)
as apply wrote it, text equal      kept (another release's header alone is no change)
changed by hand                    left and reported, unless the change is settled
unit of a broken profile           kept, so that one bad file takes nothing down
unit without a profile             removed, or kept while it runs, or while the polkit rule
                                   is one that was changed by hand
drop-in of a daemon                as a unit; removed when its settings are the usual ones
================================== =========================================================

The polkit rule may at no moment name a unit without a file: under such a name the supervisor's user
could have systemd make a transient unit, which runs whatever it says as root. So units are written
before the rule, and removed after it; an apply that is cut short anywhere leaves no such name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import Final

from appliance.model.names import SUPERVISOR_USER, profile_of, unit_of
from appliance.model.paths import PROFILES_DIR
from appliance.model.profile import Applied, Catalogue
from appliance.model.words import Mark
from appliance.switch.units import backend_unit
from appliance.switch.units.backend_unit import Layout, StandIn, UnitSpec
from appliance.switch.units.daemon_drop_ins import (
    DAEMON_FILES,
    GATEWAY_FILES,
    RULE_FILE,
    SERVICE_DROP_IN,
    WEB_DROP_IN,
    DaemonSpec,
    daemon_drop_ins,
    polkit_rule,
)
from appliance.switch.units.drift import (
    DROP_IN_SUFFIX,
    Drift,
    DriftKind,
    comment_of,
    find_drift,
    start_digest,
)
from appliance.switch.units.text import sealed_body


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    REMOVE = "remove"
    KEEP = "keep"
    LEAVE = "leave"
    """Leave a file that was changed by hand."""


_USUAL: Final = DaemonSpec()
_NOTES: Final = {
    # Credentials are handed over when a service starts; a reload puts everything else in force.
    SERVICE_DROP_IN: "restart to take effect: sudo systemctl restart appliance-gateway.service",
    WEB_DROP_IN: "in force at once; who has signed in to the page signs in again",
}
"""Notes on drop-ins that change."""
CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.REMOVE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Step of a plan: one file."""

    file: str
    action: Action
    text: str = ""
    """New content, for create and update."""
    note: str = ""
    """Note for a person; empty: nothing to note."""
    restart: bool = False
    """Whether a model runs in the old form until it is restarted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installed:
    """Installed files, and what runs from them."""

    files: Mapping[str, str | None]
    """Text by file name; None: not a regular file. Drop-ins are ``UNIT.d/NAME``."""
    last_written: Mapping[str, str]
    """Copies of what apply itself wrote, by file name."""
    catalogue: Catalogue
    """Profiles as last applied."""
    running: frozenset[str] = frozenset()
    """Profiles whose unit is not idle."""
    started: Mapping[str, str] = field(default_factory=dict)
    """Digests of the forms in which running profiles were started (`start_digest`), as far as they are
    known; empty text: another form than that of any file that was seen."""
    committed: frozenset[str] = frozenset()
    """Profiles that a boot starts."""
    stale: bool = False
    """Whether a unit or its profile changed since systemd read them, according to systemd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyPlan:
    """Plan of the whole change."""

    steps: tuple[Step, ...]
    drift: tuple[Drift, ...]
    """Hand edits that stay."""
    catalogue: Catalogue
    """Profiles that are installed afterwards."""
    restart: tuple[str, ...]
    """Profiles that run in their old form until they are restarted."""
    reload: bool
    """Whether systemd must read its units again."""
    updated: tuple[str, ...] = ()
    """Profiles whose unit stays as it is, and of which something else changes, such as the names that
    clients may send; in force at once."""

    @property
    def changes(self) -> tuple[Step, ...]:
        """Return the steps that write something, in the order in which they are safe."""
        return tuple(sorted((s for s in self.steps if s.action in CHANGES), key=_turn))

    @property
    def turns(self) -> tuple[tuple[Step, ...], ...]:
        """Return the changes in groups: each has to be on the disk before the next one begins.

        At no moment does the polkit rule name a unit without a file, under whose name anybody could make one.
        """
        return tuple(tuple(steps) for _, steps in groupby(self.changes, key=_turn))

    @property
    def listens_elsewhere(self) -> bool:
        """Tell whether a drop-in of the gateway changes."""
        return any(s.file in GATEWAY_FILES for s in self.changes)

    @property
    def moves_page(self) -> bool:
        """Tell whether the addresses of the status API and its page change."""
        return any(s.file == WEB_DROP_IN for s in self.changes)


def _turn(step: Step) -> int:
    """Return the order of a step: files to write, then the polkit rule, then files to remove."""
    if step.file == RULE_FILE:
        return 1
    return 2 if step.action is Action.REMOVE else 0


def plan_apply(
    specs: Sequence[UnitSpec],
    installed: Installed,
    layout: Layout,
    *,
    broken: frozenset[str] = frozenset(),
    settled: frozenset[str] = frozenset(),
    source: str = PROFILES_DIR,
    user: str = SUPERVISOR_USER,
    daemons: DaemonSpec = _USUAL,
) -> ApplyPlan:
    """Return the plan that makes the installed files match `specs`.

    Args:
        specs: Every valid profile.
        installed: The box now.
        layout: What units are rendered for.
        broken: Profiles whose file has errors.
        settled: Files whose hand edit was adopted or is discarded: they are overwritten.
        source: Where profiles lie, for the polkit rule's header.
        user: Who the supervisor runs as.
        daemons: Settings of the daemons' own units.

    Raises:
        ProfileError: a profile cannot be rendered.
    """
    drift = find_drift(installed.files, installed.last_written)
    left = {f: d for f, d in drift.items() if f not in settled or d.kind is DriftKind.SHARED}
    wanted = {s.applied.name for s in specs}
    gone = _irremovable(installed, left) - wanted
    stand_ins = _stand_ins(installed, left, stay=broken | gone)
    units = backend_unit.render(specs, stand_ins, layout)
    catalogue = backend_unit.catalogue(specs, stand_ins)
    steps = _steps(units, installed, left, broken=broken, gone=gone)
    installed_after = _installed_after(steps, installed)
    kept = {n: a for n, a in catalogue.items() if unit_of(n) in installed_after}
    rule = _step(
        RULE_FILE,
        polkit_rule(kept, source=source, version=layout.version, user=user),
        installed,
        left=RULE_FILE in left,
    )
    own = _daemon_steps(daemon_drop_ins(daemons, kept, layout.version), installed, left)
    return ApplyPlan(
        steps=(*steps, *own, rule),
        drift=tuple(left.values()),
        catalogue=kept,
        restart=_to_restart(steps),
        reload=installed.stale or any(s.action in CHANGES for s in (*steps, *own)),
        updated=_updated(kept, installed.catalogue, steps),
    )


def _updated(kept: Catalogue, before: Catalogue, steps: Sequence[Step]) -> tuple[str, ...]:
    written = {profile_of(step.file) for step in steps if step.action in CHANGES}
    return tuple(
        name
        for name, applied in kept.items()
        if name not in written and name in before and _in_force(applied) != _in_force(before[name])
    )


def _in_force(applied: Applied) -> Applied:
    """Return what daemons obey of a profile: neither the file that it came from nor its first mark."""
    return replace(applied, source_sha256="", file_unix_s=0, first_mark=Mark.STANDBY)


def _daemon_steps(
    units: Mapping[str, str], installed: Installed, left: Mapping[str, Drift]
) -> tuple[Step, ...]:
    steps = (
        _step(file, units[file], installed, left=file in left)
        if file in units
        else Step(file=file, action=Action.LEAVE if file in left else Action.REMOVE)
        for file in sorted(DAEMON_FILES & (installed.files.keys() | units.keys()))
    )
    return tuple(
        replace(step, note=_NOTES.get(step.file, "")) if step.action in CHANGES else step
        for step in steps
    )


def _irremovable(installed: Installed, left: Mapping[str, Drift]) -> frozenset[str]:
    """Return the names whose units stay installed, even without a profile."""
    if RULE_FILE not in left:
        return installed.running
    # A rule that was changed by hand may name any unit.
    return frozenset(name for file in installed.files if (name := profile_of(file)) is not None)


def _stand_ins(
    installed: Installed, left: Mapping[str, Drift], *, stay: frozenset[str]
) -> tuple[StandIn, ...]:
    """Return the units that stay as they are: edited by hand, or without a valid profile."""
    return tuple(
        backend_unit.stand_in(applied, installed.files[unit_of(name)] or "")
        for name, applied in installed.catalogue.items()
        if unit_of(name) in installed.files and (unit_of(name) in left or name in stay)
    )


def _steps(
    units: Mapping[str, str],
    installed: Installed,
    left: Mapping[str, Drift],
    *,
    broken: frozenset[str],
    gone: frozenset[str],
) -> tuple[Step, ...]:
    present = set(installed.files) - {RULE_FILE} - DAEMON_FILES
    return tuple(
        _restarted(
            _step(file, units[file], installed, left=file in left), units[file], installed, left
        )
        if file in units
        else _unwanted(file, installed, left=file in left, broken=broken, gone=gone)
        for file in sorted(present | set(units))
    )


def _step(file: str, text: str, installed: Installed, *, left: bool) -> Step:
    if left:
        return Step(file=file, action=Action.LEAVE)
    if file not in installed.files:
        return Step(file=file, action=Action.CREATE, text=text)
    if _same(file, text, installed.files[file]):
        return Step(file=file, action=Action.KEEP)
    return Step(file=file, action=Action.UPDATE, text=text)


def _restarted(step: Step, text: str, installed: Installed, left: Mapping[str, Drift]) -> Step:
    """Return a step with the note to restart, where the model runs in another form than `text`."""
    name = profile_of(step.file)
    if name not in installed.running or step.action not in {Action.UPDATE, Action.KEEP}:
        return step
    prefix = f"{step.file}{DROP_IN_SUFFIX}/"
    stay = [installed.files[file] or "" for file in sorted(left) if file.startswith(prefix)]
    # Where the form is not recorded: what apply wrote last, since an edit may be newer than the process.
    known = installed.last_written.get(step.file) or installed.files[step.file] or ""
    before = installed.started.get(name)
    if start_digest(text, stay) == (start_digest(known, stay) if before is None else before):
        return step
    return replace(step, note=f"restart to take effect: appliance restart {name}", restart=True)


def _same(file: str, text: str, present: str | None) -> bool:
    """Tell whether two texts are equal apart from the first line, which names the release."""
    if present is None or sealed_body(present, comment_of(file)) is None:
        return False
    return text.partition("\n")[2] == present.partition("\n")[2]


def _unwanted(
    file: str,
    installed: Installed,
    *,
    left: bool,
    broken: frozenset[str],
    gone: frozenset[str],
) -> Step:
    if left:
        return Step(file=file, action=Action.LEAVE)
    name = profile_of(file)
    if name is None or name not in broken | gone:
        wanted = name in installed.committed and f"a boot is still to start it: {_uncommit(name)}"
        return Step(file=file, action=Action.REMOVE, note=wanted or "")
    note = f"its profile is gone, but {RULE_FILE} was changed by hand and may name the unit"
    if name in installed.running:
        note = (
            f"its profile is gone, but its model runs: appliance stop {name}, then appliance apply"
        )
        if name in installed.committed:
            note += f"; a boot is still to start it: {_uncommit(name)}"
    if name in broken:
        note = "its profile has errors, so its unit stays as it was"
    return Step(file=file, action=Action.KEEP, note=note)


def _uncommit(name: str | None) -> str:
    return f"appliance uncommit {name}, or put its profile back"


def _installed_after(steps: Sequence[Step], installed: Installed) -> frozenset[str]:
    """Return the backend units that exist once `steps` are done; never one of foreign content."""
    present = {s.file for s in steps if s.action in {Action.CREATE, Action.UPDATE, Action.KEEP}}
    left = {s.file for s in steps if s.action is Action.LEAVE}
    return frozenset(
        present | {f for f in left if profile_of(f) in installed.catalogue and installed.files[f]}
    )


def _to_restart(steps: Sequence[Step]) -> tuple[str, ...]:
    return tuple(n for s in steps if s.restart and (n := profile_of(s.file)) is not None)
