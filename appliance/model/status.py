"""Status document: the box as supervisor, health agent, web process and command know it.

The supervisor makes it (`appliance.status.box_status`); every reader decodes it into these types. A field that
another release leaves out has its default, one that is not known is ignored, and words that later releases may
add to are text.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType

from appliance.model.record import Document

PROFILE_STATES: Final = (
    "serving",
    "unresponsive",
    "loading",
    "stopping",
    "stopped",
    "failed",
    "restarting",
    "refused",
)
VERDICT_STATES: Final = ("serving", "degraded", "nothing")
ProfileState = Annotated[str, Meta(extra_json_schema={"enum": [*PROFILE_STATES]})]
"""``unresponsive``: its unit runs, and its engine does not answer or makes no progress, as the health agent
or the supervisor has found (`presentation.health_sections.with_alerts`)."""
ProfileFileState = Annotated[
    str, Meta(extra_json_schema={"enum": ["unapplied", "changed", "faulty", "removed"]})
]
VerdictState = Annotated[str, Meta(extra_json_schema={"enum": [*VERDICT_STATES]})]


_NONE: Final[Mapping[str, Any]] = {}


class SupervisorRow(Document, kw_only=True):
    """State of the supervisor, and how long it has run; None: unknown."""

    state: Annotated[str, Meta(extra_json_schema={"enum": ["up", "down", "waiting"]})] = "up"
    """``waiting``: it cannot read its settings, and supervises nothing until it can."""
    uptime_s: float | None = None


class HoldRow(Document, kw_only=True):
    """Hold in force."""

    until_unix_s: float | None = None
    """Unix seconds when the hold ends; None: until a switch or a start ends it."""
    kept: bool = False
    """Whether a boot holds again; False: the hold's unit was started by hand."""
    requested_by: str | None = None
    """Requester of the hold; None: not known, as of one that was begun by hand."""


class RunRow(Document, kw_only=True):
    """Command of an operator in place of models (`appliance run`)."""

    state: Annotated[str, Meta(extra_json_schema={"enum": ["waiting", "running", "ending"]})] = (
        "waiting"
    )
    text: str = ""
    """Text such as ``python3 of user ana``, and what the command waits for."""
    since_unix_s: float | None = None
    """Unix seconds when the command began; None: not begun, or not known."""
    uptime_s: float | None = None
    """Seconds that the command has run, even if the clock was set; None likewise."""


class StallRow(Document, kw_only=True):
    """Stalled engine: it has requests in flight and makes no progress."""

    in_flight: int = 0
    quiet_s: float = 0.0
    """Seconds in which no byte has come and no CPU was used."""


class VerifiedFactRow(Document, kw_only=True):
    """Fact that a profile declares, and what its engine reports on it."""

    topic: str = ""
    """Word of `appliance.model.running_facts.Topic`."""
    subject: str = ""
    """One of several things of the topic, such as a patch; empty: there is only one."""
    state: Annotated[str, Meta(extra_json_schema={"enum": ["agrees", "differs", "unknown"]})] = (
        "agrees"
    )
    """``unknown``: the engine does not report it."""
    declared: str = ""
    key: str = ""
    """Key of the profile that declares it."""
    reported: str | None = None
    """Value that the engine reports; None: it reports none, as for the next."""
    source: str | None = None
    """Page and member, or line of the log."""
    fails: bool = False
    """Whether a difference undoes a switch."""


class VerificationRow(Document, kw_only=True):
    """Comparison of what an engine reports about itself with what its profile declares."""

    at_unix_s: float = 0.0
    """Time at which the engine was asked."""
    facts: Sequence[VerifiedFactRow] = []
    """Facts that differ, then those that agree, then the unknown ones."""
    faults: Sequence[str] = []
    """Sentences on what could not be asked or understood."""


class HolderRow(Document, kw_only=True):
    """Process that holds memory of a GPU."""

    profile: str | None = None
    """Profile to whose unit the process belongs; None: to none."""
    unit: str | None = None
    user: str | None = None
    comm: str = ""
    """Name of the process, as the kernel has it."""
    pid: int = 0
    held_bytes: int | None = None
    """Bytes that the process holds; None: the driver does not tell."""


class GpuRow(Document, kw_only=True):
    """GPU and its memory."""

    index: int = 0
    uuid: str = ""
    name: str = ""
    state: str = ""
    """Word of `appliance.model.memory.DeviceState`."""
    quality: str = ""
    """Quality of the reading: ``exact``, ``opaque`` and so on."""
    total_bytes: int = 0
    free_bytes: int = 0
    used_bytes: int = 0
    holders: Sequence[HolderRow] | None = None
    """Processes that hold memory; None: they cannot be read."""
    unattributed_bytes: int | None = None
    """Used bytes that belong to no process that is known; None: not known."""


class MemoryRow(Document, kw_only=True):
    """Memory of the whole machine; without the supervisor nothing is known of the GPUs."""

    ram_total_bytes: int = 0
    ram_available_bytes: int = 0
    gpus: Sequence[GpuRow] = []
    gpu_state: str | None = None
    """State of the driver; None: nobody asked."""
    gpu_error: str | None = None
    """Reason why GPUs cannot be read; None: they can."""
    sampled_unix_s: float | None = None
    """Time of the last sample of the GPUs; None: none was taken, as for the next."""
    sampled_age_s: float | None = None


class VramNeed(Document, kw_only=True):
    """Memory that a profile needs on its GPUs."""

    source: str | None = None
    """Source of the figure; None: the profile uses no GPU."""
    bytes: int | None = None
    """Bytes over all GPUs; None: unknown."""
    gpus: Mapping[str, int] = _NONE
    """Bytes by the index of each GPU."""
    fraction: float | None = None
    """Share of each GPU; None: the need is no share."""
    notes: Sequence[str] = []
    """Phrases that say what the source leaves out or rounds up."""
    problem: str = ""
    """Reason why the need is unknown; empty: it is known."""


class RamNeed(Document, kw_only=True):
    """Main memory that a profile needs."""

    source: str = ""
    bytes: int | None = None
    """None: unknown."""


class NeedRow(Document, kw_only=True):
    """Memory that a profile needs."""

    vram: VramNeed = VramNeed()
    ram: RamNeed = RamNeed()


class ProfileMemoryRow(Document, kw_only=True):
    """Memory that a profile holds while it runs, and what it needs; None: not known, or none."""

    vram_bytes: int | None = None
    ram_bytes: int | None = None
    locked_bytes: int | None = None
    need: NeedRow = NeedRow()


class OperationHead(Document, kw_only=True):
    """Operation, its requester and its profiles."""

    id: int = 0
    kind: str = ""
    requested_by: str = ""
    """Requester, as the kernel identified the caller."""
    target: Sequence[str] = []
    """Profiles that were named."""
    profiles: Sequence[str] = []
    """Profiles that are started, stopped or brought back."""


_STARTING: Final = frozenset({"switch", "start", "restart", "repair"})
"""Kinds of operations whose named profiles are started."""


class OperationRow(OperationHead, kw_only=True):
    """Operation that runs."""

    phase: str = ""
    phase_s: float = 0.0
    deadline_s: float | None = None
    """Seconds that the phase may take; None: no limit of its own."""
    usual_s: float | None = None
    """Seconds that the phase took in the last operations with this target; None: there was none."""
    progress: float | None = None
    """Share of the phase that is over, 0 to 0.99, by its usual duration; None: not known, or it is short."""
    rolling_back: bool = False
    elapsed_s: float = 0.0
    text: str = ""

    @property
    def started(self) -> Sequence[str]:
        """Return the named profiles that it starts; empty: it starts none of them."""
        return self.target if self.kind in _STARTING else ()


class OperationEnd(OperationHead, kw_only=True):
    """Operation and its end."""

    ms: float = 0.0
    """Duration in milliseconds; up to now while it runs."""
    outcome: str | None = None
    """Outcome of one that is over; None: it runs."""
    failed: bool = False
    """Whether it went wrong; not while it runs."""
    message: str = ""
    """Sentence on the end; empty: it runs."""
    finished_unix_s: float | None = None
    """Time of the end; None: it runs."""
    age_s: float | None = None
    """Seconds since the end; None: it runs."""


class EndedOperationRow(OperationEnd, kw_only=True):
    """Operation that ended last."""

    outcome: str = ""
    """Outcome as it is recorded."""
    finished_unix_s: float = 0.0
    """Time of the end."""


class RecordedOperation(OperationEnd, kw_only=True):
    """One operation on record: the one that runs, or one that is over."""

    state: Annotated[str, Meta(extra_json_schema={"enum": ["running", "over"]})] = "over"
    began_unix_s: float = 0.0
    phase: str | None = None
    """Present phase; None: it is over, as for the next two."""
    phase_s: float | None = None
    """Seconds in that phase."""
    deadline_s: float | None = None
    """Seconds that the phase may take; None: no limit of its own."""
    rolling_back: bool = False
    """Whether it goes, or went, back to what served before."""
    text: str = ""
    """Text of the phase; empty: none, or it is over."""
    cause: str | None = None
    """Cause of a failure, a refusal or a roll-back; None: there is none."""
    phases_ms: Mapping[str, float] = _NONE
    """Milliseconds in each phase that is over, by its name."""


class OperationsSection(Document, kw_only=True):
    """Operations on record."""

    running: RecordedOperation | None = None
    """Operation that runs; None: none does."""
    operations: Sequence[RecordedOperation] = []
    """Operations that are over, newest first."""


class BuildRow(Document, kw_only=True):
    """Build of an engine, as its program told when it was last asked."""

    version: str | None = None
    """None: the program does not tell."""
    asked_unix_s: float = 0.0
    """Time of the question; the program has not changed since."""
    problem: str = ""
    """Reason why the program told nothing, as a phrase; empty: it told."""
    lacks: Sequence[str] = []
    """Options of the profile that the build does not have, some with the value that it does not
    take."""


class ProfileRow(Document, kw_only=True):
    """One profile and its unit."""

    name: str
    mark: str | None = None
    description: str = ""
    engine: str = ""
    model: str = ""
    served: Sequence[str] = []
    endpoint: str = ""
    claim: Sequence[str] = []
    state: ProfileState
    committed: bool = False
    since_unix_s: float | None = None
    uptime_s: float | None = None
    status_text: str = ""
    restarts: int = 0
    """Number of times that systemd has started it again by itself since its start; 0 also: not known."""
    main_pid: int | None = None
    edited_since_apply: bool = False
    restart_pending: bool | None = None
    """Whether it runs in an older form than that of its unit now; None: not known."""
    unit_changes: Sequence[str] = []
    """Lines of its unit that apply did not write (values that may be secret left out), at most twelve."""
    build: BuildRow | None = None
    """None: not asked since the program was replaced, or an engine that is never asked."""
    memory: ProfileMemoryRow | None = None
    stall: StallRow | None = None
    verification: VerificationRow | None = None
    """None: it does not serve, or its engine was not asked."""
    note: str | None = None


class ProfileFileRow(Document, kw_only=True):
    """File of a profile that is not in force as it is."""

    name: str
    file: str = ""
    state: ProfileFileState = "changed"
    """``unapplied``: no apply has taken it; ``faulty``: the last apply has refused it; ``removed``: its
    profile is applied, and the file is gone."""
    text: str = ""
    """Fault, a complete sentence or several lines; empty: none is known."""


class WatchRow(Document, kw_only=True):
    """``[[watch]]`` entry of the settings, whose state only the health agent knows."""

    name: str
    mark: str


class Percentiles(Document, kw_only=True):
    """Percentiles of the last minutes, in milliseconds."""

    p50: float
    p99: float


class EngineRow(Document, kw_only=True):
    """Load that an engine reports; None: not reported."""

    running: int | None = None
    queued: int | None = None
    kv_cache: float | None = None


class TrafficRow(Document, kw_only=True):
    """Traffic of one profile or key as the gateway measured it; counts are since its start."""

    name: str
    requests: int = 0
    in_flight: int = 0
    queued: int = 0
    quiet_s: float | None = None
    """Seconds in which the engine has owed bytes and sent none; None: it owes none."""
    errors: int = 0
    gone: int = 0
    """Requests whose client left before the end."""
    retried: int = 0
    """Always 0, since a request is sent to an engine once; of earlier releases."""
    bytes: int = 0
    output_tokens: int = 0
    decoded_tokens: int = 0
    """Output tokens whose time is known: `decode_s`."""
    decode_s: float = 0.0
    prompt_tokens: int = 0
    """Prompt tokens of answers that tell how many of them were cached: `cached_tokens`."""
    cached_tokens: int = 0
    tok_s: float | None = None
    wait_ms: Percentiles | None = None
    ttft_ms: Percentiles | None = None
    gap_ms: Percentiles | None = None
    engine: EngineRow | None = None


class ListeningRow(Document, kw_only=True):
    """Addresses of the gateway, and what clients of other machines need."""

    addresses: Sequence[str] = []
    """Addresses on which clients are served, those of this machine alone first."""
    absent: Sequence[str] = []
    """Addresses and interfaces of the settings that this machine does not have yet."""
    tls: Annotated[str, Meta(extra_json_schema={"enum": ["off", "on", "waiting", "renewed"]})] = (
        "off"
    )
    """TLS beyond loopback; ``waiting``: it begins with a restart of the gateway; ``renewed``: it is on, and the file
    has another certificate, which the gateway has after a restart."""
    keys: int = 0
    """Number of inference keys."""
    closed: bool = False
    """Whether other machines are refused because there is no key."""
    engine_keys: Sequence[str] = []
    """Profiles whose `engine_key_file` is in force after a restart of the gateway."""


class GatewayRow(Document, kw_only=True):
    """Gateway, and the requests that go through it."""

    state: Annotated[str, Meta(extra_json_schema={"enum": ["up", "down"]})] = "up"
    uptime_s: float | None = None
    sampled_age_s: float = 0.0
    """Seconds since the gateway was asked."""
    engines_age_s: float | None = None
    """Seconds since the engines were asked; None: not recently."""
    listening: ListeningRow | None = None
    """None: the gateway does not tell."""
    profiles: Sequence[TrafficRow] = []
    keys: Sequence[TrafficRow] = []


class Verdict(Document, kw_only=True):
    """Verdict on the box: its state, the exit status that it gives, and sentences that say why."""

    state: VerdictState = "nothing"
    exit: int = 0
    why: Sequence[str] = []


class SpeedSection(Document, kw_only=True):
    """Measured speeds of the profiles, which the command asks the health agent for."""

    note: str | None = None
    """Sentence about why speeds are not known; None: they are."""
    trouble: Sequence[str] = []
    """Sentences of the health agent about what keeps it from measuring."""
    profiles: Mapping[str, Mapping[str, object]] = _NONE
    """Speed reports (`appliance.model.speeds`) by profile."""


class AlertSection(Document, kw_only=True):
    """Alerts and their delivery, which the command asks the health agent for."""

    alerts: Sequence[Mapping[str, object]] = []
    """Alerts that are not over (`appliance.alerts.report.AlertRow`)."""
    left_off: int = 0
    """Number of further ones, for which the answer had no room."""
    silences: Sequence[Mapping[str, object]] = []
    delivery: Mapping[str, object] = _NONE
    """Figures of outbox and heartbeat (`DeliveryReport`)."""


class StatusDocument(Document, kw_only=True):
    """Document that ``appliance status --json`` prints."""

    host: str = ""
    version: str = ""
    supervisor: SupervisorRow = SupervisorRow()
    committed: Sequence[str] = []
    hold: HoldRow | None = None
    run: RunRow | None = None
    operation: OperationRow | None = None
    last_operation: EndedOperationRow | None = None
    last_change: EndedOperationRow | None = None
    """Last operation that was not refused, so that something may have changed."""
    memory: MemoryRow | None = None
    gateway: GatewayRow | None = None
    profiles: Sequence[ProfileRow] = []
    profile_files: Sequence[ProfileFileRow] = []
    """Files that differ from what is applied, at most twenty; none while the supervisor does not answer."""
    watches: Sequence[WatchRow] = []
    """Entries of ``[[watch]]``; none while the supervisor does not answer."""
    verdict: Verdict = Verdict()
    speed: SpeedSection | UnsetType = UNSET
    """Added by the command; the supervisor's document has none."""
    alerts: AlertSection | UnsetType | None = UNSET
    """Added as `speed` is; None: the health agent does not answer."""
