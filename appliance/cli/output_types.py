"""Types of the documents that the command itself puts together; the others have theirs where they are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NotRequired, TypedDict

from appliance.alerts.book import Silence
from appliance.alerts.outbox import OutboxRow
from appliance.alerts.report import AlertRow, DeliveryReport
from appliance.model.alerts import Severity, Transition
from appliance.model.claims import Claim
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.measurements import GpuEvidence, MeasurementEvent
from appliance.model.profile import (
    Abilities,
    Applied,
    Deadlines,
    Endpoint,
    Estimate,
    Handling,
    Need,
)
from appliance.model.speeds import (
    BaselineReport,
    PromptBaseline,
    SeriesBaseline,
    SeriesSpeed,
    SpeedReport,
)
from appliance.model.status import (
    AlertSection,
    NeedRow,
    ProfileRow,
)
from appliance.speed.bench_comparison import Winner
from appliance.speed.bench_plan import Workload
from appliance.speed.bench_rows import LevelRates, RequestRow
from appliance.status.history import RateSummary
from appliance.switch.need import EstimateRow
from appliance.wire.alert_requests import PlannedWindow


class ProfileStatus(ProfileRow):
    """One profile with its speed and its alerts."""

    speed: SpeedReport | None
    """None: not known."""
    alerts: AlertSection | None
    """Alerts that concern the profile; None: the health agent does not answer."""


class ProfileDetails(ProfileRow):
    """One profile as it is applied, with what it needs on this box."""

    applied: Applied
    """Applied profile in the form of the manifest, which has a version of its own."""
    need: NeedRow
    estimate: EstimateRow | None
    """Parts of the estimate, whatever the source of the need is; None: there is no estimate."""


class FileText(TypedDict):
    """Text of a file."""

    path: str
    text: str


class JournalLine(TypedDict):
    """Entry of the journal in journald's own form; keys that begin with `_` are journald's (systemd.journal-fields(7)).

    A value is text; one that is no text is a list of its bytes, one that is too long is null, and a field that an entry
    has several times is a list of its values.
    """

    MESSAGE: NotRequired[str | list[int] | list[str] | None]
    """Text of the entry."""
    PRIORITY: NotRequired[str]
    """`3` error, `4` warning, `6` information."""
    SYSLOG_IDENTIFIER: NotRequired[str]
    """Name of the program."""
    MESSAGE_ID: NotRequired[str]
    """Id of the event, which never changes (docs/reference/journal.md)."""
    APPLIANCE_PROFILE: NotRequired[str | list[str]]
    """Profile that the entry is about; all fields of ours are in docs/reference/journal.md."""
    APPLIANCE_OPERATION: NotRequired[str]
    """Number of the operation."""


class BaselineChange(TypedDict):
    """Change of a baseline."""

    name: str
    message: str


class ToldTarget(TypedDict):
    """Outcome of a test message to one target."""

    target: str
    state: str
    text: str
    """Reason why it was not taken; empty: it was."""


class AlertAnswer(TypedDict):
    """Answer about alerts: the keys are those of the action."""

    message: NotRequired[str]
    """Sentence about what was changed."""
    alerts: NotRequired[list[AlertRow]]
    """Alerts that are not over (`list`)."""
    left_off: NotRequired[int]
    """Number of further ones, for which the answer had no room."""
    silences: NotRequired[list[Silence]]
    windows: NotRequired[list[PlannedWindow]]
    alert: NotRequired[AlertRow | None]
    """The alert, while it is not over (`show`)."""
    changes: NotRequired[list[AlertEvent]]
    rows: NotRequired[list[OutboxRow]]
    """Messages (`show`, `outbox`)."""
    delivery: NotRequired[DeliveryReport]
    until_unix_s: NotRequired[float]
    """End of the silence (`silence`)."""
    targets: NotRequired[list[ToldTarget]]
    """Outcome for each target (`test`)."""


class PlannedWindows(TypedDict):
    """Planned windows in which nobody is told, or the change of one."""

    message: NotRequired[str]
    windows: NotRequired[list[PlannedWindow]]


class TargetEntry(TypedDict):
    """Target of alerts, without its address."""

    name: str
    kind: str
    server: str
    min_severity: Severity
    """Least severity of which it is told."""


class TargetAnswer(TypedDict):
    """Targets of alerts, the outcome of a test, or the change of one."""

    message: NotRequired[str]
    targets: NotRequired[list[TargetEntry | ToldTarget]]
    heartbeat: NotRequired[bool]
    """Whether an outside service gets signs of life."""


class SettingsPlace(TypedDict):
    """File of the settings; `ok` where it was checked."""

    path: str
    ok: NotRequired[Literal[True]]


class RefusalEvent(TypedDict):
    """Error of a command with ``--json``."""

    event: Literal["error"]
    exit: int
    message: str
    error: NotRequired[str]
    """Kind of the error, as a daemon sent it (docs/reference/control-protocol.md); missing: the command itself refuses."""


PARTIAL = frozenset(
    {
        Abilities,
        AlertRow,
        AlertSection,
        Applied,
        BaselineReport,
        Deadlines,
        DeliveryReport,
        Endpoint,
        Estimate,
        Handling,
        MeasurementEvent,
        Need,
        OutboxRow,
        PlannedWindow,
        PromptBaseline,
        SeriesBaseline,
        SeriesSpeed,
        Silence,
        SpeedReport,
        ToldTarget,
    }
)
"""Types that the command passes on as the health agent sent them, or as the manifest has them, whose release may be another."""
WHOLE: Final[frozenset[type]] = frozenset({Transition})
"""Records of which a document has each field, also one with a default."""
FORMS: Final[Mapping[type, object]] = {
    Claim: list[str],
    RateSummary: list[float],
    MeasuredEvent: MeasurementEvent,
}
"""Types in place of others, which documents have in another form, or of which the agent sends a narrower one."""


@dataclass(frozen=True, kw_only=True)
class Latencies:
    """Latencies of requests in milliseconds; None: no request has one."""

    mean_ttft_ms: float | None
    """Time from sending a request to its first content, in six figures."""
    median_ttft_ms: float | None
    std_ttft_ms: float | None
    p50_ttft_ms: float | None
    p95_ttft_ms: float | None
    p99_ttft_ms: float | None
    mean_tpot_ms: float | None
    """Time for each output token after the first, one value a request, in six figures."""
    median_tpot_ms: float | None
    std_tpot_ms: float | None
    p50_tpot_ms: float | None
    p95_tpot_ms: float | None
    p99_tpot_ms: float | None
    mean_itl_ms: float | None
    """Time between one event with content and the next, all of all requests together, in six figures."""
    median_itl_ms: float | None
    std_itl_ms: float | None
    p50_itl_ms: float | None
    p95_itl_ms: float | None
    p99_itl_ms: float | None
    mean_e2el_ms: float | None
    """Time from sending a request to its last content, in six figures."""
    median_e2el_ms: float | None
    std_e2el_ms: float | None
    p50_e2el_ms: float | None
    p95_e2el_ms: float | None
    p99_e2el_ms: float | None


@dataclass(frozen=True, kw_only=True)
class ServeFigures(Latencies):
    """Figures of the requests of one concurrency, in the names of ``vllm bench serve``."""

    date: str
    """Beginning of the bench as ``YYYYMMDD-HHMMSS``."""
    backend: Literal["openai-chat", "openai"]
    """API that was asked."""
    model_id: str
    """Name by which the model was asked for."""
    num_prompts: int
    request_rate: Literal["inf"]
    max_concurrency: int
    """Requests that were asked for at once."""
    duration: float
    """Seconds from the first request to the last answer, of all runs together."""
    completed: int
    failed: int
    total_input_tokens: int
    total_output_tokens: int
    request_throughput: float
    """Completed requests a second."""
    output_throughput: float
    """Generated tokens a second."""
    total_token_throughput: float
    """Prompt and generated tokens a second."""
    max_concurrent_requests: int
    """Most requests that were in flight at once."""


@dataclass(frozen=True, kw_only=True)
class ServeDocument(ServeFigures):
    """The same with the raw times of each request, in the order of the rows."""

    ttfts: list[float]
    """Seconds from sending to the first content; 0: none came."""
    itls: list[list[float]]
    """Seconds between one event with content and the next."""
    input_lens: list[int]
    output_lens: list[int]
    start_times: list[float]
    """Seconds from the beginning of the bench."""
    errors: list[str]
    """Reason why the request failed; empty: it did not fail."""


@dataclass(frozen=True, kw_only=True)
class DepthRow:
    """Row of llama-bench: of a prompt (`n_gen` is 0), or of decoding after one (`n_prompt` is 0)."""

    build_commit: str
    model_filename: str
    type_k: str
    type_v: str
    n_prompt: int
    n_gen: int
    n_depth: int
    """Prompt tokens before decoding."""
    test_time: str
    avg_ts: float
    """Mean rate in tokens a second."""
    stddev_ts: float
    """Standard deviation of that rate."""
    samples_ts: list[float]


@dataclass(frozen=True, kw_only=True)
class SingleRates:
    """Rates of one request at a time."""

    tok_s: Mapping[str, float | None]
    """By task; None: each request of it failed."""
    mean_tok_s: float | None
    """Mean over the tasks; None: nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class SingleFigures(SingleRates, ServeFigures):
    """Figures of one request at a time."""


@dataclass(frozen=True, kw_only=True)
class LevelFigures(ServeFigures, LevelRates):
    """Figures of one concurrency."""


@dataclass(frozen=True, kw_only=True)
class GpusAtWork:
    """GPUs of a profile while it was measured."""

    driver: str | None
    """Version of the driver; None: not told."""
    gpus: list[GpuEvidence]


@dataclass(frozen=True, kw_only=True)
class BenchedProfile:
    """Figures of one profile."""

    name: str
    engine: str
    model: str
    fingerprint: str
    """Digest of all that decides how much memory the profile takes."""
    failed: int
    """Requests that failed."""
    joules_per_token: float | None
    """None: a driver does not count energy, or it may not be read."""
    evidence: GpusAtWork | None
    """None: the GPUs were not read."""
    cached_share: float | None
    """Share of the prompt tokens that the prefix cache held; None: the engine does not report it."""
    single: SingleFigures | SingleRates
    """One request at a time; the rates alone where no request was sent so."""
    levels: list[LevelFigures]
    """Several at a time; empty: no swarm was asked for."""
    depth: list[DepthRow]
    """After long prompts; empty: none was asked for."""


@dataclass(frozen=True, kw_only=True)
class BenchComparison:
    """Comparison of the first profile with another."""

    profiles: list[str]
    """Both names."""
    ratio: float | None
    """Speed of the other relative to the first; None: nothing was measured of at least one of them."""
    low: float | None
    """Lower end of the 95 % confidence interval of the ratio; None where the ratio is."""
    high: float | None
    pairs: int
    """Pairs of turns that were compared."""
    answers_same: float | None
    """Share of greedy answers that both give alike; None: none were compared, which holds for the next too."""
    answers_repeated: float | None
    """Share of greedy answers that each repeats itself."""
    winner: Winner
    why: str


@dataclass(frozen=True, kw_only=True)
class BenchSection:
    """Figures that other tools have no name for."""

    format: int
    """Version of this section."""
    version: str
    """Of the appliance."""
    began_unix_s: float
    """Time of the beginning."""
    valid: bool
    """Whether the figures count."""
    invalid: str | None
    """Reason why they do not; None: they do."""
    leased: bool
    """Whether the health agent kept its probes away, and watched for real requests."""
    exclusive: bool
    """Whether real requests had to wait."""
    workload: Workload
    order: list[str]
    """Profiles, block by block."""
    profiles: list[BenchedProfile]
    comparisons: list[BenchComparison]
    """Of the first profile with each other one."""
    rows: list[RequestRow]
    """Raw times of each request; times are from the beginning of the bench."""


@dataclass(frozen=True, kw_only=True)
class BenchDocument(ServeDocument):
    """Result of a bench: at the top that of the first profile's highest concurrency, as ``vllm bench serve`` saves it."""

    appliance: BenchSection


@dataclass(frozen=True, kw_only=True)
class EmptyBenchDocument:
    """Result of a bench that has sent no request to the first profile."""

    appliance: BenchSection
