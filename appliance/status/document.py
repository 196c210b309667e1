"""Shape of the status document, apart from how it is made.

Imports no dataclass: `appliance status` reads a finished document from the supervisor, and
making dataclasses would be half of the time that takes.
"""

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

ProfileState = Literal[
    "serving", "unresponsive", "loading", "stopping", "stopped", "failed", "restarting", "refused"
]
"""``unresponsive``: its unit runs, and its engine does not answer or makes no progress, as the health agent
or the supervisor has found (`presentation.health_sections.with_alerts`)."""
ProfileFileState = Literal["unapplied", "changed", "faulty", "removed"]
VerdictState = Literal["serving", "degraded", "nothing"]


class SupervisorRow(TypedDict):
    """State of the supervisor, and how long it has run; None: unknown."""

    state: Literal["up", "down", "waiting"]
    """``waiting``: it cannot read its settings, and supervises nothing until it can."""
    uptime_s: float | None


class HoldRow(TypedDict):
    """Hold in force."""

    until_unix_s: float | None
    """Unix seconds when the hold ends; None: until a switch or a start ends it."""
    kept: bool
    """Whether a boot holds again; False: the hold's unit was started by hand."""
    requested_by: str | None
    """Requester of the hold; None: not known, as of one that was begun by hand."""


class RunRow(TypedDict):
    """Command of an operator in place of models (`appliance run`)."""

    state: Literal["waiting", "running", "ending"]
    text: str
    """Text such as ``python3 of user ana``, and what the command waits for."""
    since_unix_s: float | None
    """Unix seconds when the command began; None: not begun, or not known."""
    uptime_s: float | None
    """Seconds that the command has run, even if the clock was set; None likewise."""


class StallRow(TypedDict):
    """Stalled engine: it has requests in flight and makes no progress."""

    in_flight: int
    quiet_s: float
    """Seconds in which no byte has come and no CPU was used."""


class VerifiedFactRow(TypedDict):
    """Fact that a profile declares, and what its engine reports on it."""

    topic: str
    """Word of `appliance.model.running_facts.Topic`."""
    subject: str
    """One of several things of the topic, such as a patch; empty: there is only one."""
    state: Literal["agrees", "differs", "unknown"]
    """``unknown``: the engine does not report it."""
    declared: str
    key: str
    """Key of the profile that declares it."""
    reported: str | None
    """Value that the engine reports; None: it reports none, as for the next."""
    source: str | None
    """Page and member, or line of the log."""
    fails: bool
    """Whether a difference undoes a switch."""


class VerificationRow(TypedDict):
    """Comparison of what an engine reports about itself with what its profile declares."""

    at_unix_s: float
    """Time at which the engine was asked."""
    facts: list[VerifiedFactRow]
    """Facts that differ, then those that agree, then the unknown ones."""
    faults: list[str]
    """Sentences on what could not be asked or understood."""


class HolderRow(TypedDict):
    """Process that holds memory of a GPU."""

    profile: str | None
    """Profile to whose unit the process belongs; None: to none."""
    unit: str | None
    user: str | None
    comm: str
    """Name of the process, as the kernel has it."""
    pid: int
    held_bytes: int | None
    """Bytes that the process holds; None: the driver does not tell."""


class GpuRow(TypedDict):
    """GPU and its memory."""

    index: int
    uuid: str
    name: str
    state: str
    """Word of `appliance.model.memory.DeviceState`."""
    quality: str
    """Quality of the reading: ``exact``, ``opaque`` and so on."""
    total_bytes: int
    free_bytes: int
    used_bytes: int
    holders: list[HolderRow] | None
    """Processes that hold memory; None: they cannot be read."""
    unattributed_bytes: int | None
    """Used bytes that belong to no process that is known; None: not known."""


class MemoryRow(TypedDict):
    """Memory of the whole machine; without the supervisor nothing is known of the GPUs."""

    ram_total_bytes: int
    ram_available_bytes: int
    gpus: list[GpuRow]
    gpu_state: str | None
    """State of the driver; None: nobody asked."""
    gpu_error: str | None
    """Reason why GPUs cannot be read; None: they can."""
    sampled_unix_s: float | None
    """Time of the last sample of the GPUs; None: none was taken, as for the next."""
    sampled_age_s: float | None


class VramNeed(TypedDict):
    """Memory that a profile needs on its GPUs."""

    source: str | None
    """Source of the figure; None: the profile uses no GPU."""
    bytes: int | None
    """Bytes over all GPUs; None: unknown."""
    gpus: Mapping[str, int]
    """Bytes by the index of each GPU."""
    fraction: float | None
    """Share of each GPU; None: the need is no share."""
    notes: list[str]
    """Phrases that say what the source leaves out or rounds up."""
    problem: str
    """Reason why the need is unknown; empty: it is known."""


class RamNeed(TypedDict):
    """Main memory that a profile needs."""

    source: str
    bytes: int | None
    """None: unknown."""


class NeedRow(TypedDict):
    """Memory that a profile needs."""

    vram: VramNeed
    ram: RamNeed


class ProfileMemoryRow(TypedDict):
    """Memory that a profile holds while it runs, and what it needs; None: not known, or none."""

    vram_bytes: int | None
    ram_bytes: int | None
    locked_bytes: int | None
    need: NeedRow


class OperationRow(TypedDict):
    """Operation that runs."""

    id: int
    kind: str
    requested_by: str
    """Requester, as the kernel identified the caller."""
    target: list[str]
    """Profiles that were named."""
    profiles: list[str]
    """Profiles that are started, stopped or brought back."""
    phase: str
    phase_s: float
    deadline_s: float | None
    """Seconds that the phase may take; None: no limit of its own."""
    usual_s: float | None
    """Seconds that the phase took in the last operations with this target; None: there was none."""
    progress: float | None
    """Share of the phase that is over, 0 to 0.99, by its usual duration; None: not known, or it is short."""
    rolling_back: bool
    elapsed_s: float
    text: str


class EndedOperationRow(TypedDict):
    """Operation that ended last."""

    id: int
    kind: str
    requested_by: str
    """Requester, as the kernel identified the caller."""
    target: list[str]
    profiles: list[str]
    """As of a running operation."""
    outcome: str
    failed: bool
    message: str
    finished_unix_s: float
    age_s: float | None
    """Seconds since the end."""
    ms: float
    """Duration in milliseconds."""


class RecordedOperation(TypedDict):
    """One operation on record: the one that runs, or one that is over."""

    id: int
    kind: str
    requested_by: str
    """Requester, as the kernel identified the caller."""
    target: list[str]
    """Profiles that were named."""
    profiles: list[str]
    """Profiles that it starts, stops or brings back."""
    state: Literal["running", "over"]
    began_unix_s: float
    ms: float
    """Duration in milliseconds; up to now while it runs."""
    phase: str | None
    """Present phase; None: it is over, likewise the next two."""
    phase_s: float | None
    """Seconds in that phase."""
    deadline_s: float | None
    """Seconds that the phase may take; None: no limit of its own."""
    rolling_back: bool
    """Whether it goes, or went, back to what served before."""
    text: str
    """Text of the phase; empty: none, or it is over."""
    outcome: str | None
    """Outcome of one that is over; None: it runs."""
    failed: bool
    """Whether it went wrong; not while it runs."""
    cause: str | None
    """Cause of a failure, a refusal or a roll-back; None: there is none."""
    message: str
    """Sentence on the end; empty: it runs."""
    finished_unix_s: float | None
    """Time of the end; None: it runs."""
    age_s: float | None
    """Seconds since the end; None: it runs."""
    phases_ms: Mapping[str, float]
    """Milliseconds in each phase that is over, by its name."""


class OperationsSection(TypedDict):
    """Operations on record."""

    running: RecordedOperation | None
    """Operation that runs; None: none does."""
    operations: list[RecordedOperation]
    """Operations that are over, newest first."""


class BuildRow(TypedDict):
    """Build of an engine, as its program told when it was last asked."""

    version: str | None
    """None: the program does not tell."""
    asked_unix_s: float
    """Time of the question; the program has not changed since."""
    problem: str
    """Reason why the program told nothing, as a phrase; empty: it told."""
    lacks: list[str]
    """Options of the profile that the build does not have, some with the value that it does not
    take."""


class ProfileRow(TypedDict):
    """One profile and its unit."""

    name: str
    mark: str | None
    description: str
    engine: str
    model: str
    served: list[str]
    endpoint: str
    claim: list[str]
    state: ProfileState
    committed: bool
    since_unix_s: float | None
    uptime_s: float | None
    status_text: str
    restarts: int
    """Number of times that systemd has started it again by itself since its start; 0 also: not known."""
    main_pid: int | None
    edited_since_apply: bool
    restart_pending: bool | None
    """Whether it runs in an older form than that of its unit now; None: not known."""
    unit_changes: list[str]
    """Lines of its unit that apply did not write (values that may be secret left out), at most twelve."""
    build: BuildRow | None
    """None: not asked since the program was replaced, or an engine that is never asked."""
    memory: ProfileMemoryRow | None
    stall: StallRow | None
    verification: VerificationRow | None
    """None: it does not serve, or its engine was not asked."""
    note: str | None


class ProfileFileRow(TypedDict):
    """File of a profile that is not in force as it is."""

    name: str
    file: str
    state: ProfileFileState
    """``unapplied``: no apply has taken it; ``faulty``: the last apply has refused it; ``removed``: its
    profile is applied, and the file is gone."""
    text: str
    """Fault, a complete sentence or several lines; empty: none is known."""


class WatchRow(TypedDict):
    """``[[watch]]`` entry of the settings, whose state only the health agent knows."""

    name: str
    mark: str


class Percentiles(TypedDict):
    """Percentiles of the last minutes, in milliseconds."""

    p50: float
    p99: float


class EngineRow(TypedDict):
    """Load that an engine reports; None: not reported."""

    running: int | None
    queued: int | None
    kv_cache: float | None


class TrafficRow(TypedDict):
    """Traffic of one profile or key as the gateway measured it; counts are since its start."""

    name: str
    requests: int
    in_flight: int
    queued: int
    quiet_s: float | None
    """Seconds in which the engine has owed bytes and sent none; None: it owes none."""
    errors: int
    gone: int
    """Requests whose client left before the end."""
    retried: int
    """Always 0, since a request is sent to an engine once; of earlier releases."""
    bytes: int
    output_tokens: int
    decoded_tokens: int
    """Output tokens whose time is known: `decode_s`."""
    decode_s: float
    prompt_tokens: int
    """Prompt tokens of answers that tell how many of them were cached: `cached_tokens`."""
    cached_tokens: int
    tok_s: float | None
    wait_ms: Percentiles | None
    ttft_ms: Percentiles | None
    gap_ms: Percentiles | None
    engine: EngineRow | None


class ListeningRow(TypedDict):
    """Addresses of the gateway, and what clients of other machines need."""

    addresses: list[str]
    """Addresses on which clients are served, those of this machine alone first."""
    absent: list[str]
    """Addresses and interfaces of the settings that this machine does not have yet."""
    tls: Literal["off", "on", "waiting", "renewed"]
    """TLS beyond loopback; ``waiting``: it begins with a restart of the gateway; ``renewed``: it is on, and the file
    has another certificate, which the gateway has after a restart."""
    keys: int
    """Number of inference keys."""
    closed: bool
    """Whether other machines are refused because there is no key."""
    engine_keys: list[str]
    """Profiles whose `engine_key_file` is in force after a restart of the gateway."""


class GatewayRow(TypedDict):
    """Gateway, and the requests that go through it."""

    state: Literal["up", "down"]
    uptime_s: float | None
    sampled_age_s: float
    """Seconds since the gateway was asked."""
    engines_age_s: float | None
    """Seconds since the engines were asked; None: not recently."""
    listening: ListeningRow | None
    """None: the gateway does not tell."""
    profiles: list[TrafficRow]
    keys: list[TrafficRow]


class Verdict(TypedDict):
    """Verdict on the box: its state, the exit status that it gives, and sentences that say why."""

    state: VerdictState
    exit: int
    why: list[str]


class SpeedSection(TypedDict):
    """Measured speeds of the profiles, which the command asks the health agent for."""

    note: str | None
    """Sentence about why speeds are not known; None: they are."""
    trouble: list[str]
    """Sentences of the health agent about what keeps it from measuring."""
    profiles: Mapping[str, Mapping[str, object]]
    """Speed reports (`appliance.speed.speeds`) by profile."""


class AlertSection(TypedDict):
    """Alerts and their delivery, which the command asks the health agent for."""

    alerts: list[Mapping[str, object]]
    """Alerts that are not over (`appliance.alerts.report.AlertRow`)."""
    left_off: int
    """Number of further ones, for which the answer had no room."""
    silences: list[Mapping[str, object]]
    delivery: Mapping[str, object]
    """Figures of outbox and heartbeat (`DeliveryReport`)."""


class StatusDocument(TypedDict):
    """Document that ``appliance status --json`` prints."""

    host: str
    version: str
    supervisor: SupervisorRow
    committed: list[str]
    hold: HoldRow | None
    run: RunRow | None
    operation: OperationRow | None
    last_operation: EndedOperationRow | None
    last_change: EndedOperationRow | None
    """Last operation that was not refused, so that something may have changed."""
    memory: MemoryRow | None
    gateway: GatewayRow | None
    profiles: list[ProfileRow]
    profile_files: list[ProfileFileRow]
    """Files that differ from what is applied, at most twenty; none while the supervisor does not answer."""
    watches: list[WatchRow]
    """Entries of ``[[watch]]``; none while the supervisor does not answer."""
    verdict: Verdict
    speed: NotRequired[SpeedSection]
    """Added by the command; the supervisor's document has none."""
    alerts: NotRequired[AlertSection | None]
    """Added likewise; None: the health agent does not answer."""
