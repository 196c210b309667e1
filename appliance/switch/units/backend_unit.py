"""Backend units: one file per profile, rendered from what the profile compiles to.

Two units whose claims intersect exclude each other by Conflicts=. That alone orders nothing, so
of each pair the one whose name sorts last also has After= on the other. Both directions would be
an ordering cycle as soon as both stop at once: ``hold`` and a reboot in mid-switch would fail.
Everything comes after appliance-hold.service, which has no After= of its own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from appliance.model.errors import ProfileError
from appliance.model.names import HOLD_UNIT, unit_of
from appliance.model.paths import BACKEND_RUNTIME_DIR, CACHE_DIR, CLAIMED_DIR
from appliance.model.profile import Applied, Catalogue
from appliance.switch.units import sandbox
from appliance.switch.units.identity import identity_of
from appliance.switch.units.overrides import merged, override_fault
from appliance.switch.units.specs import (
    Layout,
    UnitSpec,
    backend_argv,
    gate_argv,
)
from appliance.switch.units.text import (
    Section,
    command_line,
    environment_fault,
    environment_word,
    path_fault,
    path_word,
    plain_line,
    sealed,
    sections_of,
    text_of,
    word_fault,
)

NO_CONFIG_HOME: Final = "/nonexistent"
"""Directory that does not exist (Debian Policy 9.2.3) and that no backend can make."""
_STEPPED_RESTARTS_SINCE: Final = 254
"""Version of systemd that introduced RestartSteps= and RestartMaxDelaySec=."""
_START_SLACK_S: Final = 5.0
"""Seconds added to the gate's or poller's own deadline for systemd's, so that ours ends first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """Installed unit that is kept as it is, because its profile is broken, edited or gone."""

    applied: Applied
    after: frozenset[str] = frozenset()
    """Units after which the unit is already ordered."""


def stand_in(applied: Applied, installed_text: str) -> StandIn:
    """Return the installed unit of `applied` as a stand-in, ordered as its present text says."""
    units = (s for s in sections_of(installed_text) if s.name == "Unit")
    after = frozenset(w for s in units for value in s.values("After") for w in value.split())
    return StandIn(applied=applied, after=after)


def catalogue(specs: Iterable[UnitSpec], stand_ins: Iterable[StandIn]) -> Catalogue:
    """Return the profiles that are installed with the units, by name, conflicts filled in."""
    kept = {s.applied.name: s.applied for s in stand_ins}
    wanted = {s.applied.name: s.applied for s in specs} | kept
    return {
        name: applied if name in kept else replace(applied, conflicts=_rivals(applied, wanted))
        for name, applied in sorted(wanted.items())
    }


def _rivals(applied: Applied, others: Catalogue) -> tuple[str, ...]:
    return tuple(
        sorted(
            o.name
            for o in others.values()
            if o.name != applied.name and o.claim.intersects(applied.claim)
        )
    )


def problem(spec: UnitSpec, layout: Layout) -> str | None:
    """Return why `spec` cannot be rendered, as complete lines; None: it can."""
    return next((fault for fault in _faults(spec, layout) if fault is not None), None)


def _faults(spec: UnitSpec, layout: Layout) -> Iterator[str | None]:
    """Yield, for each value of a unit that the profile or the file system decides, what is wrong with it."""
    yield override_fault(spec.profile.unit, spec.applied.source_path)
    yield from map(path_fault, _required_paths(spec))
    yield from map(word_fault, gate_argv(spec.applied, layout))
    yield from map(word_fault, backend_argv(spec, layout))
    for name, value in sorted(_variables(spec).items()):
        yield environment_fault(name, value)
    yield from map(path_fault, _mounts(spec).paths)


def render(
    specs: Sequence[UnitSpec], stand_ins: Sequence[StandIn], layout: Layout
) -> Mapping[str, str]:
    """Return the text of every backend unit by file name; stand-ins are not rendered.

    Raises:
        ProfileError: a value that no unit file can hold, or an override that is refused.
    """
    kept = {s.applied.name: s for s in stand_ins}
    installed = catalogue(specs, stand_ins)
    return {
        unit_of(spec.applied.name): _unit(spec, installed, kept, layout)
        for spec in specs
        if spec.applied.name not in kept
    }


def _unit(spec: UnitSpec, installed: Catalogue, kept: Mapping[str, StandIn], layout: Layout) -> str:
    if fault := override_fault(spec.profile.unit, spec.applied.source_path):
        raise ProfileError(fault)
    spec = replace(spec, applied=installed[spec.applied.name])
    sections = (
        Section(name="Unit", entries=_unit_section(spec, kept, layout)),
        Section(name="Service", entries=_service_section(spec, layout)),
    )
    body = text_of(merged(sections, spec.profile.unit))
    return sealed(body, source=plain_line(spec.applied.source_path), version=layout.version)


def _unit_section(spec: UnitSpec, kept: Mapping[str, StandIn], layout: Layout) -> sandbox.Entries:
    applied = spec.applied
    rivals = applied.conflicts
    earlier = [unit_of(r) for r in rivals if _comes_first(r, applied.name, kept)]
    return (
        ("Description", plain_line(f"{applied.name}: {applied.description or applied.engine}")),
        ("Documentation", f"file:{plain_line(applied.source_path).replace(' ', '%%20')}"),
        ("SourcePath", plain_line(applied.source_path)),
        ("Conflicts", _words([*map(unit_of, rivals), HOLD_UNIT, *layout.foreign_units])),
        ("After", _words([*earlier, HOLD_UNIT, *layout.foreign_units, *_after(spec)])),
        ("RequiresMountsFor", " ".join(map(path_word, _required_paths(spec)))),
        # A backstop: the supervisor counts crashes itself and clears this count before a start.
        ("StartLimitIntervalSec", "30min"),
        ("StartLimitBurst", "5"),
        ("CollectMode", "inactive"),
    )


def _comes_first(rival: str, name: str, kept: Mapping[str, StandIn]) -> bool:
    """Tell whether `name` is ordered after `rival`: exactly one of the two is after the other."""
    if rival in kept:
        return unit_of(name) not in kept[rival].after
    return rival < name


def _after(spec: UnitSpec) -> tuple[str, ...]:
    # DevicePolicy= admits only drivers that are loaded when the unit starts.
    driver = ("nvidia-persistenced.service",) if spec.applied.gpus else ()
    return (*driver, *spec.profile.order.after)


def _required_paths(spec: UnitSpec) -> tuple[str, ...]:
    """Return the paths whose file systems must be mounted before a start."""
    applied = spec.applied
    paths = (applied.model_path, *applied.companions, applied.binary)
    own = [path for path in paths if path and path.startswith("/")]
    return tuple(dict.fromkeys([*own, *spec.profile.order.mounts]))


def _words(words: Iterable[str]) -> str:
    return " ".join(dict.fromkeys(words))


def _service_section(spec: UnitSpec, layout: Layout) -> sandbox.Entries:
    applied = spec.applied
    own = _own_directory(applied)
    return (
        ("Slice", "appliance.slice"),
        # The journal shows the profile, not the name of an interpreter.
        ("SyslogIdentifier", unit_of(applied.name).removesuffix(".service")),
        ("Type", "notify"),
        ("NotifyAccess", "all"),
        ("ExecCondition", "+" + command_line(gate_argv(spec.applied, layout))),
        ("ExecStart", command_line(backend_argv(spec, layout))),
        # An engine that lost its workers may end with status 0; after a stop job, and where the gate
        # skipped the start, systemd does not restart whatever this says.
        ("Restart", "always"),
        *_back_off(layout.systemd),
        ("RestartPreventExitStatus", "78 79"),
        # The longest silence of a start: gate, patch hook and poller each extend the deadline.
        ("TimeoutStartSec", _seconds(applied.deadlines.no_progress_s + _START_SLACK_S)),
        # Requests may finish within the stop deadline; an engine that hangs before it is ready
        # has none, and may ignore SIGTERM.
        ("TimeoutStartFailureMode", "kill"),
        ("TimeoutStopSec", _seconds(applied.deadlines.stop_s)),
        ("KillMode", "mixed"),
        ("OOMPolicy", "stop"),
        ("OOMScoreAdjust", "300"),
        *_identity(applied),
        # A socket must be writable for the group, which the daemon is in.
        ("UMask", "0077" if applied.endpoint.socket is None else "0007"),
        ("StateDirectory", own),
        ("StateDirectoryMode", "0700"),
        ("CacheDirectory", own),
        ("CacheDirectoryMode", "0700"),
        ("RuntimeDirectory", own),
        ("WorkingDirectory", f"/var/lib/{own}"),
        *(
            ("Environment", environment_word(name, value))
            for name, value in sorted(_variables(spec).items())
        ),
        ("TasksMax", "8192"),
        ("LimitNOFILE", "65536"),
        ("LimitMEMLOCK", "infinity"),
        ("LimitCORE", "0"),
        *sandbox.devices(gpus=bool(spec.applied.gpus)),
        *sandbox.NETWORK,
        *_mounts(spec).entries(),
        *sandbox.leases(applied.claim.leases(), layout.lease_dir, CLAIMED_DIR),
        *sandbox.own_directory(BACKEND_RUNTIME_DIR, applied.name),
        *sandbox.CONFINEMENT,
    )


def _identity(applied: Applied) -> sandbox.Entries:
    identity = identity_of(applied)
    dynamic = (("DynamicUser", "yes"),) if identity.dynamic else ()
    return (*dynamic, ("User", identity.user), ("Group", identity.group))


def _back_off(systemd: int) -> sandbox.Entries:
    if systemd < _STEPPED_RESTARTS_SINCE:
        return (("RestartSec", "5s"),)
    return (("RestartSec", "2s"), ("RestartSteps", "4"), ("RestartMaxDelaySec", "2min"))


def _own_directory(applied: Applied) -> str:
    """Return the backend's directory below systemd's own for state, cache and run time."""
    return f"appliance-backend/{applied.name}"


def _variables(spec: UnitSpec) -> Mapping[str, str]:
    homes = {
        # Homes are hidden, so programs that write to a home get a directory of their own.
        "HOME": f"/var/lib/{_own_directory(spec.applied)}",
        "XDG_CACHE_HOME": f"{CACHE_DIR}/{spec.applied.name}",
        # The engine can write to its home: files that it left there must not affect its next start.
        # llama-server reads llama.cpp/config.ini, Python the modules of the user.
        "XDG_CONFIG_HOME": NO_CONFIG_HOME,
        "PYTHONNOUSERSITE": "1",
    }
    return homes | dict(spec.invocation.environment)


def _mounts(spec: UnitSpec) -> sandbox.Mounts:
    applied, patch = spec.applied, spec.profile.patch
    socket = applied.endpoint.socket
    programs = [applied.binary, *applied.programs, *(patch.command[:1] if patch else ())]
    outside = socket and not socket.startswith(f"{BACKEND_RUNTIME_DIR}/{applied.name}/")
    return sandbox.mounts(
        read=sandbox.opened(applied),
        programs=programs,
        writable=[
            *(patch.writable if patch else ()),
            *([socket.rpartition("/")[0]] if socket and outside else ()),
        ],
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:g}s"
