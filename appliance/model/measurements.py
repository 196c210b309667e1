"""Measurements of a serving profile: probes with their evidence, and the events that follow from them.

Raw times are stored; rates are derived from them by the functions here whenever they are needed, so
that a better definition applies to old probes too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Self

from appliance.model.events import MeasuredEvent
from appliance.model.gpus import GpuHealth
from appliance.model.memory import GpuState
from appliance.model.words import ProbeOutcome, Series


class TimingSource(StrEnum):
    """Clock that the times of a probe come from, best first."""

    ENGINE = "engine"
    """Timings in the engine's response."""
    METRICS = "metrics"
    """Differences of the engine's metrics before and after, with one request between."""
    STREAM = "stream"
    """Arrival of the tokens at the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTimings:
    """Times of one request, or of all requests with the pieces of one prompt, from the engine or the stream."""

    source: TimingSource
    prompt_tokens: int
    """Tokens of the prompt; of one that was sent in pieces, with those that were evaluated twice."""
    cached_tokens: int | None
    """Prompt tokens that the prefix cache held; None: the engine does not tell."""
    prefill_s: float | None
    """Time in which the prompt tokens that were not cached were evaluated; None: not told."""
    output_tokens: int
    decoded_tokens: int
    """Tokens whose making `decode_s` covers: all of them, or all but the first."""
    decode_s: float | None
    """None: not told."""
    drafted_tokens: int | None = None
    """Tokens that speculative decoding proposed; None: not told."""
    accepted_tokens: int | None = None
    """Drafts that stood; None: not told."""
    ttft_s: float | None = None
    """From sending the request to its first content token; None: no token came."""
    wall_s: float = 0.0
    """From sending the request to the end of its response."""

    @property
    def evaluated_tokens(self) -> int:
        """Return the prompt tokens that the prefix cache did not hold, as far as that is known."""
        return self.prompt_tokens - (self.cached_tokens or 0)


class ProbeKind(StrEnum):
    """Reason for a probe."""

    SCHEDULED = "scheduled"
    CONFIRMING = "confirming"
    """The detector wants it."""
    ON_DEMAND = "on-demand"
    """A person wants it."""
    TRIGGERED = "triggered"
    """Real traffic was slower than the baseline."""
    WARM_UP = "warm-up"
    """The first ones after a start, which measure nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuEvidence:
    """State of one GPU about the time of a probe; None: the driver does not tell."""

    uuid: str
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Bits of nvmlDeviceGetCurrentClocksEventReasons as `system.gpus.reader` names them:
    ``sw_thermal_slowdown``."""
    pcie_width: int | None = None
    pcie_generation: int | None = None
    energy_j: float | None = None
    """Counter of all energy since the driver was loaded."""
    memory_used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuTenant:
    """Process that holds memory of a GPU."""

    profile: str | None
    """Profile whose backend the process belongs to; None: nobody's."""
    pid: int
    name: str
    held_bytes: int | None
    """None: the driver does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one instant."""

    index: int
    evidence: GpuEvidence
    tenants: tuple[GpuTenant, ...] | None = None
    """None: the driver has no list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxGpus:
    """GPUs of the box at one instant."""

    taken_s: float
    """Monotonic time of the reading."""
    gpus: tuple[GpuSample, ...] = ()
    """GPUs that work."""
    driver: str | None = None
    """Version of the driver; None: not told."""
    problem: str | None = None
    """Reason why GPUs cannot be read, for people; None: all were read."""
    state: GpuState | None = None
    """Worst state that matters for the box; None: an older supervisor does not tell."""
    health: tuple[GpuHealth, ...] = ()
    """Health of every GPU, also of those that do not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignHolder:
    """Process of nobody's profile that holds memory of a GPU."""

    pid: int
    name: str
    held_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """State of the box about the time of a probe, from which a cause may be told."""

    gpus: tuple[GpuEvidence, ...] = ()
    foreign_holders: tuple[ForeignHolder, ...] = ()
    backend_vram_bytes: int | None = None
    """Memory that the backend holds on all GPUs; None: not known."""
    other_cpu_share: float | None = None
    """Share of the box's CPU time that others than the backend used during the probe, 0 to 1."""
    cpu_throttled_share: float | None = None
    """Share of the time in which the backend could have run that a CPU quota kept it from running,
    0 to 1."""
    energy_j: float | None = None
    """Energy that the profile's GPUs took during the probe; None: a driver does not count it."""
    idle_power_w: float | None = None
    """Power of the profile's GPUs right before the probe, while the model was idle."""
    driver: str | None = None
    engine_version: str | None = None
    cpu_backend: str | None = None
    """Library with the CPU kernels that the engine has loaded."""
    fingerprint: str = ""
    """Of the applied profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe of a profile."""

    profile: str
    began_unix_s: float
    began_s: float
    """Monotonic, of the boot `boot_id`."""
    boot_id: str
    kind: ProbeKind
    prompt: str
    """Name of the task that was asked (`speed.probe_prompts`)."""
    outcome: ProbeOutcome
    detail: str = ""
    """Short text for people; never a prompt or a completion."""
    raw: RawTimings | None = None
    """None: nothing was measured."""
    evidence: Evidence = field(default_factory=Evidence)


class EventKind(StrEnum):
    """Kind of a measurement event."""

    REGRESSION = "regression"
    RECOVERED = "recovered"
    ACCEPTED = "accepted"
    """A person accepted the present level as the baseline, or the first baseline was found."""
    BASELINE_RESET = "baseline-reset"
    LEVEL_AFTER_RESTART = "level-after-restart"
    """A restart came back a few per cent off, which is less than a regression."""
    NO_VALID_PROBE = "no-valid-probe"
    VALID_PROBE_AGAIN = "valid-probe-again"
    DRAFTS_SILENT = "drafts-silent"
    """The profile declares speculative decoding, and two probes drafted nothing."""
    QUALITY_LOST = "quality-lost"
    QUALITY_RECOVERED = "quality-recovered"
    CANARIES_REFUSED = "canaries-refused"
    """The operator's file of canaries has lines that are not understood, or cannot be read."""
    STORE_RECOVERED = "store-recovered"
    """The database was damaged: it was moved aside and begun anew."""
    ENGINE_SERVES = "engine-serves"
    ENGINE_STOPPED = "engine-stopped"
    """The engine was stopped, for an operation or by hand."""
    ENGINE_ENDED = "engine-ended"
    """The engine ended by itself, or was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryRun:
    """One request of a quality canary, and whether its answer was as promised."""

    profile: str
    canary: str
    """Name of the canary."""
    unix_s: float
    passed: bool
    detail: str = ""
    """Fault of the answer; never a prompt or a completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCounts:
    """Counts of real requests together."""

    output_tokens: int = 0
    decode_s: float = 0.0
    """Time in which the output tokens were made."""
    prompt_tokens: int = 0
    """Prompt tokens of requests whose engine reports how many of them were cached."""
    cached_tokens: int = 0

    def plus(self, other: "TrafficCounts") -> Self:
        """Return the sums of both, and the other fields of this one."""
        return replace(
            self,
            output_tokens=self.output_tokens + other.output_tokens,
            decode_s=self.decode_s + other.decode_s,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficSums(TrafficCounts):
    """Sums of the real traffic of a profile in a span of time."""

    unix_s: float
    """Any time of the span; in the store its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBench:
    """Result of one bench."""

    id: int
    unix_s: float
    name: str
    """Profiles that it compared."""
    document: Mapping[str, object]


class MeasurementEvent(MeasuredEvent, frozen=True, kw_only=True):
    """Event that follows from measurements."""

    id: int = 0
    kind: EventKind
    series: Series | None = None


def decode_tok_s(raw: RawTimings) -> float | None:
    """Return decoded tokens a second; None: not measured."""
    if not raw.decode_s or raw.decode_s <= 0 or raw.decoded_tokens <= 0:
        return None
    return raw.decoded_tokens / raw.decode_s


def tokens_per_step(raw: RawTimings) -> float:
    """Return tokens that one step of the model made on average; 1 without speculative decoding."""
    accepted = raw.accepted_tokens or 0
    steps = raw.decoded_tokens - accepted
    return raw.decoded_tokens / steps if 0 < steps < raw.decoded_tokens else 1.0


def decode_steps_per_s(raw: RawTimings) -> float | None:
    """Return decode steps a second, which do not depend on how many drafts stood; None: not measured."""
    rate = decode_tok_s(raw)
    return None if rate is None else rate / tokens_per_step(raw)


def prefill_tok_s(raw: RawTimings) -> float | None:
    """Return evaluated prompt tokens a second; None: not measured, or the cache held all of them."""
    if not raw.prefill_s or raw.prefill_s <= 0 or raw.evaluated_tokens <= 0:
        return None
    return raw.evaluated_tokens / raw.prefill_s


def rate_of(series: Series, raw: RawTimings) -> float | None:
    """Return the rate of a series; None: not measured."""
    return decode_steps_per_s(raw) if series is Series.DECODE else prefill_tok_s(raw)
