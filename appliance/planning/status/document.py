"""The shape of the status document, apart from how it is made.

Imports no dataclass: `appliance status` reads a finished document from the supervisor, and
making dataclasses would be half of the time that takes.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypedDict

from appliance.protocol.control import Exit

ProfileState = Literal[
    "serving", "loading", "stopping", "stopped", "failed", "restarting", "refused"
]
VerdictState = Literal["serving", "degraded", "nothing"]


class SupervisorRow(TypedDict):
    """Whether the supervisor runs, and for how long; None: unknown."""

    state: Literal["up", "down"]
    uptime_s: float | None


class HoldRow(TypedDict):
    """A hold in force."""

    until_unix_s: float | None
    """None: until a switch or a start ends it."""
    kept: bool
    """A boot holds again; False: its unit was started by hand."""


class RunRow(TypedDict):
    """A command of an operator in place of models (`appliance run`)."""

    state: Literal["waiting", "running", "ending"]
    text: str
    """``python3 of user ana``, and what it waits for."""
    since_unix_s: float | None
    """When it began; None: not yet, or not known."""
    uptime_s: float | None
    """How long it has run, whatever was done to the clock; likewise."""


class StallRow(TypedDict):
    """An engine that owes answers and does nothing."""

    in_flight: int
    quiet_s: float
    """For how long no byte has come and no CPU was used."""


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


class Percentiles(TypedDict):
    """Of the last minutes, in milliseconds."""

    p50: float
    p99: float


class EngineRow(TypedDict):
    """What an engine says about itself; None: it does not say."""

    running: int | None
    queued: int | None
    kv_cache: float | None


class TrafficRow(TypedDict):
    """What the gateway measured of one profile or key; counts are since it started."""

    name: str
    requests: int
    in_flight: int
    queued: int
    quiet_s: float | None
    """For how long the engine has owed bytes and sent none; None: it owes none."""
    errors: int
    gone: int
    """Whose client left before the end."""
    retried: int
    """Sent again, because the engine had closed a kept connection."""
    bytes: int
    output_tokens: int
    tok_s: float | None
    wait_ms: Percentiles | None
    ttft_ms: Percentiles | None
    gap_ms: Percentiles | None
    engine: EngineRow | None


class GatewayRow(TypedDict):
    """The one address that clients keep, and what goes through it."""

    state: Literal["up", "down"]
    uptime_s: float | None
    sampled_age_s: float
    """How long ago it was asked."""
    engines_age_s: float | None
    """How long ago the engines were asked; None: not lately."""
    profiles: list[TrafficRow]
    keys: list[TrafficRow]


class Verdict(TypedDict):
    """The answer to "is it all right?", the exit status it gives, and sentences saying why."""

    state: VerdictState
    exit: int
    why: list[str]


class StatusDocument(TypedDict):
    """What ``appliance status --json`` prints."""

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
    verdict: Verdict


ENDED_BADLY: Final = frozenset[ProfileState]({"failed", "restarting", "refused"})
"""States of a profile that was meant to run and could not."""


def profile_exit(row: ProfileRow) -> Exit:
    """The exit status of ``status NAME``."""
    if row["state"] == "serving":
        # Absent in the document of an older supervisor.
        return Exit.FAILED if row.get("stall") else Exit.OK
    if row["state"] in ENDED_BADLY or row["committed"]:
        return Exit.FAILED
    return Exit.NOTHING_SERVING
