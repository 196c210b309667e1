"""Units of a profile: the backend, rendered from what the profile compiles to, and the one that asks its build.

Two units whose claims intersect exclude each other by Conflicts=. That alone orders nothing, so
of each pair the one whose name sorts last also has After= on the other. Both directions would be
an ordering cycle as soon as both stop at once: ``hold`` and a reboot in mid-switch would fail.
Everything comes after appliance-hold.service, which has no After= of its own.

Beside each backend whose engine can be asked about its build is a unit that asks. It is made from the text
of the backend's, so that the program is asked as the same user and in the same view of the file system,
hand edits included. It has no GPU, no network, nothing that it may write but its record, which systemd
opens for it in a directory of root's, and little memory and time: what runs is another's program,
and a running model must not notice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from json import dumps
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.invocation import Invocation
from appliance.model import paths
from appliance.model.claims import Lease
from appliance.model.engine_build import EITHER
from appliance.model.errors import ProfileError
from appliance.model.model_headers import ModelTraits
from appliance.model.names import HOLD_UNIT, build_unit_of, unit_of
from appliance.model.paths import BACKEND_RUNTIME_DIR, CACHE_DIR, CLAIMED_DIR
from appliance.model.profile import Applied, Catalogue
from appliance.model.spec import Profile
from appliance.switch.memory.requirement import arguments_of
from appliance.switch.need import requirement_of
from appliance.switch.units import sandbox
from appliance.switch.units.drift import drop_in
from appliance.switch.units.overrides import merged, override_fault
from appliance.switch.units.sandbox import identity_of
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSpec:
    """Specification of one backend unit."""

    profile: Profile
    """Unit-only part of the profile: order, patch, overrides."""
    applied: Applied
    invocation: Invocation
    traits: ModelTraits | None = None
    """Traits of its model; None: the model's headers were not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Layout of the box around the units."""

    prefix: str = paths.PREFIX
    version: str
    systemd: int
    """Major version of systemd; 0 when unknown, which counts as oldest."""
    foreign_units: tuple[str, ...] = ()
    """Units of others that must not run beside a backend."""
    margin_bytes: int | None = None
    """Bytes of VRAM that the gate keeps free beyond the need; None: its own default."""

    lease_dir: str = paths.LEASE_DIR
    gate_dir: str = paths.GATE_DIR
    builds_dir: str = f"{paths.APPLIED_DIR}/{paths.BUILDS}"
    """Directory of the records of engines' builds."""
    needs_dir: str = f"{paths.STATE_DIR}/{paths.NEEDS}"
    """Directory in which the supervisor records the peak of each profile."""


def gate_argv(applied: Applied, layout: Layout) -> tuple[str, ...]:
    """Return the gate's command: the gate refuses, or waits, until the claim is free.

    `applied` has its conflicts filled in.
    """
    margin = layout.margin_bytes
    return (
        *_program(layout, paths.GATE_SCRIPT, applied.name),
        *_leases(applied.claim.leases()),
        *(word for rival in applied.conflicts for word in ("--rival", rival)),
        *arguments_of(requirement_of(applied)),
        *_observed(applied, layout),
        *(() if margin is None else ("--margin-bytes", str(margin))),
        *_port(applied),
        "--deadline-s",
        f"{applied.deadlines.release_s:g}",
        *_directory("--lease-dir", layout.lease_dir, paths.LEASE_DIR),
        *_directory("--gate-dir", layout.gate_dir, paths.GATE_DIR),
    )


def backend_argv(spec: UnitSpec, layout: Layout) -> tuple[str, ...]:
    """Return the wrapper's command: it takes leases, waits for readiness and runs the engine."""
    applied, patch, invocation = spec.applied, spec.profile.patch, spec.invocation
    endpoint, leases = applied.endpoint, applied.claim.leases()
    where = (
        ("--port", str(endpoint.port)) if endpoint.socket is None else ("--socket", endpoint.socket)
    )
    hook: tuple[str, ...] = ()
    if patch is not None:
        expected = (word for text in patch.expect for word in ("--patch-expect", text))
        command = dumps(patch.command, ensure_ascii=False)
        hook = ("--patch-command", command, *expected)
    return (
        *_program(layout, paths.BACKEND_SCRIPT, applied.name),
        *_leases(leases),
        *(("--lease-dir", paths.CLAIMED_DIR) if leases else ()),
        *where,
        "--health",
        applied.health_path,
        "--no-progress-s",
        f"{applied.deadlines.no_progress_s:g}",
        *(("--temporary", invocation.temporary) if invocation.temporary else ()),
        *_build(spec, layout),
        *hook,
        "--",
        *invocation.argv,
    )


def _build(spec: UnitSpec, layout: Layout) -> tuple[str, ...]:
    """Return the wrapper's arguments by which it knows the engine's build; none: one spelling fits all."""
    if EITHER not in spec.invocation.argv:
        return ()
    question = ENGINES[spec.applied.engine].build_question
    return ("--ask-build", question, "--build-record", record_path(spec.applied, layout))


def record_path(applied: Applied, layout: Layout) -> str:
    """Return the path of the record of the engine's build."""
    return f"{layout.builds_dir}/{applied.name}.json"


def _port(applied: Applied) -> Iterable[str]:
    """Yield the gate's arguments that name the port, and how the engine may bind it."""
    if applied.endpoint.port is None:
        return
    yield from ("--port", str(applied.endpoint.port))
    yield from ("--port-program", applied.binary or applied.engine)
    for kind in ENGINES[applied.engine].port_reuse:
        yield from ("--port-reuse", kind)


def _program(layout: Layout, script: str, name: str) -> tuple[str, ...]:
    return (f"{layout.prefix}/{script}", "--name", name)


def _directory(option: str, path: str, default: str) -> tuple[str, ...]:
    return () if path == default else (option, path)


def _leases(leases: Iterable[Lease]) -> Iterable[str]:
    for lease in leases:
        yield "--lease"
        yield f"{lease.name}:{'exclusive' if lease.exclusive else 'shared'}"


def _observed(applied: Applied, layout: Layout) -> tuple[str, ...]:
    """Return the gate's arguments that name the observed peak; none without a fingerprint."""
    if not applied.fingerprint:
        return ()
    path = f"{layout.needs_dir}/{applied.name}.json"
    return ("--observed", path, "--fingerprint", applied.fingerprint)


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


_PROGRAM: Final = "appliance.launch.ask_build"
_TIMEOUT_S: Final = 30
"""Longer than the program itself waits for an answer (launch.ask_build)."""
_BOUNDS: Final[sandbox.Entries] = (
    ("TimeoutStartSec", f"{_TIMEOUT_S}s"),
    ("TimeoutStopSec", "5s"),
    ("MemoryMax", "2G"),
    ("MemorySwapMax", "0"),
    ("TasksMax", "256"),
    ("LimitFSIZE", "1M"),
    ("LimitCORE", "0"),
    ("Nice", "10"),
    ("OOMScoreAdjust", "800"),
    # systemd opens the record; the supervisor reads it.
    ("UMask", "0022"),
    ("PrivateNetwork", "yes"),
    ("IPAddressDeny", "any"),
    ("RestrictAddressFamilies", "AF_UNIX"),
)
_OF_BACKEND: Final = frozenset(
    {
        *("User", "Group", "DynamicUser", "Environment"),
        *("ProtectHome", "BindReadOnlyPaths", "TemporaryFileSystem", "InaccessiblePaths"),
        *(key for key, _ in sandbox.CONFINEMENT),
    }
)
"""Keys of [Service] that the unit has in common with the backend's."""


def build_unit(applied: Applied, backend: str, drop_ins: Iterable[str], layout: Layout) -> str:
    """Return the text of the unit that asks the engine of `applied`; empty: the engine has no such question.

    Args:
        applied: An applied profile.
        backend: Text of its unit.
        drop_ins: Texts of the unit's drop-ins, in systemd's order.
        layout: What units are rendered for.
    """
    engine = ENGINES.get(applied.engine)  # None: a manifest of another release
    if engine is None or not engine.build_question:
        return ""
    for one in drop_ins:
        backend = drop_in(backend, one)
    record = record_path(applied, layout)
    question = ("--record", record, "--ask", engine.build_question, "--", applied.binary)
    program = (f"{layout.prefix}/bin/python", "-I", "-m", _PROGRAM, *question)
    name = plain_line(applied.name)
    sections = (
        Section(
            name="Unit",
            entries=(
                ("Description", f"{name}: build of its engine"),
                ("CollectMode", "inactive-or-failed"),
            ),
        ),
        Section(
            name="Service",
            entries=(
                ("Slice", "appliance.slice"),
                ("SyslogIdentifier", build_unit_of(applied.name).removesuffix(".service")),
                ("Type", "oneshot"),
                ("ExecStart", command_line(program)),
                ("StandardOutput", f"file:{record.replace('%', '%%')}"),
                ("StandardError", "journal"),
                *_BOUNDS,
                *sandbox.devices(gpus=False),
                *_shared(backend),
            ),
        ),
    )
    source = plain_line(applied.source_path)
    return sealed(text_of(sections), source=source, version=layout.version, adoptable=False)


def _shared(backend: str) -> Iterator[tuple[str, str]]:
    for section in sections_of(backend):
        if section.name == "Service":
            # The leases of the claim are for the backend alone.
            yield from (
                (key, value)
                for key, value in section.entries
                if key in _OF_BACKEND and f":{CLAIMED_DIR}/" not in value
            )
