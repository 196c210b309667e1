"""Table of health.sock: requests of operators to the health agent, and its answers.

The protocol's form is in `appliance.wire.conversation`.
"""

from typing import TYPE_CHECKING, Annotated, Final, Self

import msgspec

from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.record import Record, UnixTime, Whole
from appliance.model.words import Series
from appliance.wire.alert_requests import ALERT_REQUESTS, MOST_RECORDS, AlertQuestion, MostRecords
from appliance.wire.conversation import ActingRequest, CommonEvent, SocketTable
from appliance.wire.json_values import Json
from appliance.wire.typed_json import from_json

if TYPE_CHECKING:
    from appliance.model.measurements import Probe

MOST_ROWS: Final = 2000
"""Most rows of one series in an answer to `history`: a line of 1 MiB holds those of two series."""


class SpeedsRequest(Record):
    """Request for the speed of every profile, from the health agent's memory.

    Answer: `result` with `profiles`, a speed report by name, `trouble`, sentences, and `alerts`: what `alerts`
    with `list` answers, as far as it is in memory.
    """


class HistoryRequest(Record):
    """Request for the rates of one profile over time.

    Answer: `result` with `rows`, by series lists of `[unix_s, count, low, median, high]`, at most 2000
    each; `baseline`; and `events`.
    """

    name: str
    since_unix_s: UnixTime
    series: Series | None = None
    """One of `decode` and `prefill`; None: both."""
    span_s: Annotated[float, msgspec.Meta(gt=0, lt=1e9)] | None = None
    """Seconds that a row covers; None: the agent chooses."""


class StateRecordRequest(Record):
    """Request for the record of the profiles' states over the last eight days.

    Answer: `result` with `profiles`, by name lists of `[unix_s, state]`, the oldest first, together at most 8000; and
    `until_unix_s`, the time of the last observation (null: there was none). A state is one of the status document,
    `degraded` (it serves without progress, or too slowly) or `unknown`.
    """


class MeasurementsRequest(Record):
    """Request for the probes of one profile with their raw times.

    Answer: a `probe` each, oldest first, then `result`.
    """

    name: str
    since_unix_s: UnixTime
    most: MostRecords = MOST_RECORDS
    """At most 1000, the newest; likewise below."""
    until_unix_s: UnixTime | None = None
    """Only probes before this time, as for the page before another; None: all up to now."""


class MeasurementEventsRequest(Record):
    """Request for measurement events, and for transitions of alerts.

    Answer: a `measured` or an `alert` each, oldest first, then `result`; with `follow` also each new one,
    until the client leaves.
    """

    after: Whole = 0
    """Number of an event; later ones are told."""
    name: str | None = None
    """Profile; None: all, and the box."""
    most: MostRecords = MOST_RECORDS
    follow: bool = False
    alerts_after: Whole | None = None
    """Number of a transition of an alert; later ones are told; null: none are."""


class BaselineRequest(Record):
    """Request for the baseline of one profile.

    Answer: `result` with levels, bands, when it was accepted, and what accepting now would change.
    """

    name: str


class AcceptBaselineRequest(Record):
    """Request to accept the present level of one profile as its baseline.

    Answer: `result`.
    """

    name: str
    by: str = ""
    """Person that accepts, for the record; the user of the connection stands beside it."""


class ResetBaselineRequest(Record):
    """Request to forget the baseline of one profile, and find another.

    Answer: `result`.
    """

    name: str
    by: str = ""


class ProbeNowRequest(Record):
    """Request to probe one profile, or all that serve, at once.

    Answer: `progress` again and again, a `probed` for each profile, then `result`; the probe ends when the
    client leaves.
    """

    name: str | None = None
    """Profile; None: all that serve."""


class LeaseRequest(Record):
    """Request to keep probes away while a bench measures.

    Answer: `leased`, then `traffic` whenever real requests were seen, until the client leaves;
    `lease-lost` when the gateway has ended it.
    """

    names: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    exclusive: bool = False
    """Whether real requests to these profiles wait for the end of the lease."""
    text: str = ""
    """Purpose of the lease, for people."""


class StoreBenchRequest(Record):
    """Request to keep the result of a bench.

    Answer: `result` with `id`.
    """

    name: str
    """Profiles that it compared."""
    document: Json


class BenchesRequest(Record):
    """Request for the kept results of benches.

    Answer: `result` with `benches`, newest first.
    """

    most: MostRecords = 20


HealthRequest = (
    SpeedsRequest
    | HistoryRequest
    | StateRecordRequest
    | MeasurementsRequest
    | MeasurementEventsRequest
    | BaselineRequest
    | AcceptBaselineRequest
    | ResetBaselineRequest
    | ProbeNowRequest
    | LeaseRequest
    | StoreBenchRequest
    | BenchesRequest
    | AlertQuestion
)


class StoredProbeEvent(Record):
    """Event `probe`: one stored probe."""

    probe: Json
    """Fields of `appliance.model.measurements.Probe`."""

    @classmethod
    def of(cls, probe: "Probe") -> Self:
        """Return the event that tells a probe."""
        return cls(msgspec.to_builtins(probe))

    def read(self) -> "Probe":
        """Return the probe. Raises `JsonValueError`."""
        from appliance.model.measurements import Probe  # noqa: PLC0415 - 10 ms of every status

        return from_json(Probe, self.probe)


class ProbeProgressEvent(Record):
    """Event `progress`: where a probe that was asked for is."""

    profile: str
    prompt: str
    """Name of the task; empty: before the first one."""
    state: str
    """`reading` (the prompt is evaluated), `writing` (the answer is generated) or `ended`."""
    text: str = ""
    """Short text for people; never a prompt or a completion."""
    tok_s: float | None = None
    """Rate that the prompt has measured; None: the prompt still runs, or measured nothing."""


class ProbedEvent(Record):
    """Event `probed`: the outcome of a probe that was asked for, of one profile."""

    profile: str
    outcome: str
    """As `appliance.model.measurements.ProbeOutcome`."""
    text: str = ""
    """Sentence for people."""
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    ttft_s: float | None = None
    change: float | None = None
    """Of the decode rate relative to the baseline; None: there is no baseline, or no rate."""


class LeasedEvent(Record):
    """Event `leased`: the lease begins."""

    token: str = ""
    """Value of the header `X-Appliance-Lease` of the bench's own requests; never shown."""


class LeaseTrafficEvent(Record):
    """Event `traffic`: real requests were seen in the lease."""

    requests: int
    """Since the lease began."""


class LeaseLostEvent(Record):
    """Event `lease-lost`, which closes: the gateway has ended the lease."""

    message: str


HealthEvent = (
    CommonEvent
    | StoredProbeEvent
    | MeasuredEvent
    | AlertEvent
    | ProbeProgressEvent
    | ProbedEvent
    | LeasedEvent
    | LeaseTrafficEvent
    | LeaseLostEvent
)


HEALTH: Final[SocketTable[HealthRequest | ActingRequest, HealthEvent]] = SocketTable(
    name="health socket",
    server="health agent",
    unit="appliance-health",
    group="appliance-operators",
    requests=(
        ("speeds", "", SpeedsRequest),
        ("history", "", HistoryRequest),
        ("states", "", StateRecordRequest),
        ("measurements", "", MeasurementsRequest),
        ("events", "", MeasurementEventsRequest),
        ("baseline", "", BaselineRequest),
        ("accept", "", AcceptBaselineRequest),
        ("reset", "", ResetBaselineRequest),
        ("probe", "", ProbeNowRequest),
        ("lease", "", LeaseRequest),
        ("store-bench", "", StoreBenchRequest),
        ("benches", "", BenchesRequest),
        *ALERT_REQUESTS,
    ),
    events={
        "probe": StoredProbeEvent,
        "measured": MeasuredEvent,
        "alert": AlertEvent,
        "progress": ProbeProgressEvent,
        "probed": ProbedEvent,
        "leased": LeasedEvent,
        "traffic": LeaseTrafficEvent,
        "lease-lost": LeaseLostEvent,
    },
    closing=(LeaseLostEvent,),
    until_left=(MeasurementEventsRequest, ProbeNowRequest, LeaseRequest),
)
