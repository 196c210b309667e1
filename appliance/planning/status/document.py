"""Shape of the status document, apart from how it is made.

Imports no dataclass: `appliance status` reads a finished document from the supervisor, and
making dataclasses would be half of the time that takes.
"""

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

ProfileState = Literal[
    "serving", "loading", "stopping", "stopped", "failed", "restarting", "refused"
]
VerdictState = Literal["serving", "degraded", "nothing"]


class SupervisorRow(TypedDict):
    """State of the supervisor, and how long it has run; None: unknown."""

    state: Literal["up", "down"]
    uptime_s: float | None


class HoldRow(TypedDict):
    """Hold in force."""

    until_unix_s: float | None
    """Unix seconds when the hold ends; None: until a switch or a start ends it."""
    kept: bool
    """Whether a boot holds again; False: the hold's unit was started by hand."""


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
    main_pid: int | None
    edited_since_apply: bool
    memory: Mapping[str, object] | None
    stall: StallRow | None
    note: str | None


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
    """Requests that were sent again, because the engine had closed a kept connection."""
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


class GatewayRow(TypedDict):
    """Gateway, and the requests that go through it."""

    state: Literal["up", "down"]
    uptime_s: float | None
    sampled_age_s: float
    """Seconds since the gateway was asked."""
    engines_age_s: float | None
    """Seconds since the engines were asked; None: not recently."""
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
    """Speed reports (`appliance.planning.speeds`) by profile."""


class AlertSection(TypedDict):
    """Alerts and their delivery, which the command asks the health agent for."""

    alerts: list[Mapping[str, object]]
    """Alerts that are not over (`appliance.planning.alerting.book.alert_report.AlertRow`)."""
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
    operation: Mapping[str, object] | None
    last_operation: Mapping[str, object] | None
    memory: Mapping[str, object] | None
    gateway: GatewayRow | None
    profiles: list[ProfileRow]
    watches: list[WatchRow]
    """Entries of ``[[watch]]``; none while the supervisor does not answer."""
    verdict: Verdict
    speed: NotRequired[SpeedSection]
    """Added by the command; the supervisor's document has none."""
    alerts: NotRequired[AlertSection | None]
    """Added likewise; None: the health agent does not answer."""
