"""Record of one series of a profile: its detector, the circumstances of its readings, its last rates.

A record takes every probe of its series and returns the events that follow. It has two states in
JSON, stored with the probe in one transaction: that of the detector, and the rest. Minutes are
those of the detector, which a trial may compress; Unix times are those of the probes.

A restart that comes back a few per cent off is an event of its own: one model decodes at 80.3, 83 or
85.8 tok/s on the same box, from start to start. That is less than a regression and more than noise,
and is reported once, whether up or down.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from appliance.model.json_reader import decode_json
from appliance.model.measurements import (
    EventKind,
    MeasurementEvent,
    Probe,
    rate_of,
    tokens_per_step,
)
from appliance.model.speeds import SPARKLINE_RATES, PromptBaseline, SeriesBaseline, SeriesSpeed
from appliance.model.words import ProbeOutcome, Series
from appliance.speed import thresholds
from appliance.speed.causes import Comparison, LossCause, loss_sentence, suspicions
from appliance.speed.detector import Alert, Detector
from appliance.speed.detector_state import DetectorPhase
from appliance.speed.evidence import (
    USUAL_READINGS,
    Circumstances,
    circumstances_of,
    joined,
)
from appliance.speed.traffic_speed import TrafficSpeed
from appliance.status.history import median
from appliance.status.speed_figures import change_text, rate_text
from appliance.wire.typed_json import from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


LEVEL_READINGS_AFTER: Final = 8
LEVEL_READINGS_BEFORE: Final = 12
_FEWEST_BEFORE: Final = 6
"""Readings whose medians are compared. With a noise of 1 % their difference is known to 0.6 %."""
LEAST_CHANGE: Final = 0.026
"""Change that is reported: sessions differ by 0.9 % usually; those of the example lie 3.4 % apart."""
_NOISES: Final = 3.0
_OF_MEDIANS: Final = 1.25 * math.sqrt(1 / LEVEL_READINGS_AFTER + 1 / LEVEL_READINGS_BEFORE)
"""Deviation of the difference of two such medians, in deviations of a single reading."""
SETTLED_AFTER_MIN: Final = 60.0
"""Readings this soon after a start do not count: a cold card decodes 4 % faster for up to an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartLevel:
    """Levels of the last sessions, as natural logarithms about the baseline."""

    began_min: float | None = None
    """Start of the current session; None: it is not known."""
    before: tuple[float, ...] = ()
    """Last readings of the session before."""
    now: tuple[float, ...] = ()
    """Last readings of this one."""
    compared: bool = True
    """Whether this session has been compared with the one before, or cannot be."""

    def restarted(self, unix_min: float) -> "RestartLevel":
        """Return the levels at a start; a session that was too short to compare with is left out."""
        before = self.now if len(self.now) >= _FEWEST_BEFORE else self.before
        return RestartLevel(
            began_min=unix_min, before=before, compared=len(before) < _FEWEST_BEFORE
        )

    def after(
        self, unix_min: float, level: float, noise: float
    ) -> "tuple[RestartLevel, float | None]":
        """Return the levels after a good reading, and the change to report; None: none.

        Args:
            unix_min: Its time.
            level: Its level.
            noise: Deviation of single readings.
        """
        if self.began_min is not None and 0 <= unix_min - self.began_min < SETTLED_AFTER_MIN:
            return self, None
        now = (*self.now, round(level, 5))[-LEVEL_READINGS_BEFORE:]
        if self.compared or len(now) < LEVEL_READINGS_AFTER:
            return replace(self, now=now), None
        change = median(now) - median(self.before)
        is_off = abs(change) >= max(LEAST_CHANGE, _NOISES * _OF_MEDIANS * noise)
        return replace(self, now=now, compared=True), math.expm1(change) if is_off else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesMemory:
    """State of a record beside that of its detector; None: not known, or not yet."""

    first: bool = True
    """Whether the baseline that is learned, or that will be, is the first one."""
    accepted_unix_s: float | None = None
    rates: tuple[float, ...] = ()
    """Last rates, freed of their prompts' offsets, the latest last."""
    good_unix_s: float | None = None
    """Last reading that spoke against a loss."""
    good_since_start: bool = True
    """Whether it was after the last start."""
    low_unix_s: float | None = None
    """First reading since that did not."""
    loss_since_unix_s: float | None = None
    """Beginning of the loss that is reported; None: none is."""
    cause: str | None = None
    likely: str = ""
    tokens_per_step: float = 1.0
    """Average of the last readings."""
    restart: RestartLevel = field(default_factory=RestartLevel)
    usual: Circumstances | None = None
    """Circumstances of the good readings."""
    doubtful: Circumstances | None = None
    """Circumstances of the low readings since the last good one."""


def memory_key(series: Series) -> str:
    """Return the second part of the key under which the store has a record's memory."""
    return f"{series}-record"


_Memory = TypeVar("_Memory")


def encode_memory(memory: "DataclassInstance") -> str:
    """Return a memory as JSON."""
    return json.dumps(asdict(memory, dict_factory=_known), separators=(",", ":"))


def decode_memory(kind: type[_Memory], text: str) -> _Memory:
    """Return the memory of its JSON. Raises ValueError for any other text."""
    return from_json(kind, decode_json(text))


def _known(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out what is not known: None is the default of those fields."""
    return {name: value for name, value in pairs if value is not None}


_PRESENT_READINGS: Final = 5
"""Last readings whose median is the present level."""
_BAND_NOISES: Final = 2.0
_STEP_GAIN: Final = 0.1
_LOST: Final = frozenset({DetectorPhase.REGRESSED, DetectorPhase.RECOVERING})


@dataclass(slots=True, kw_only=True)
class SeriesRecord:
    """Record of one series; the only writer of its detector."""

    profile: str
    series: Series
    detector: Detector = field(default_factory=Detector)
    memory: SeriesMemory = field(default_factory=SeriesMemory)

    @classmethod
    def restored(
        cls, profile: str, series: Series, detector: str | None, memory: str | None
    ) -> "SeriesRecord":
        """Return the record of its two states; None: it has none. Raises ValueError for other texts."""
        record = cls(profile=profile, series=series)
        if detector is not None:
            record.detector = Detector.decoded(detector)
        if memory is not None:
            record.memory = decode_memory(SeriesMemory, memory)
        return record

    def states(self) -> Mapping[str, str]:
        """Return both states by the second part of their keys in the store."""
        return {
            self.series.value: self.detector.encoded(),
            memory_key(self.series): encode_memory(self.memory),
        }

    @property
    def phase(self) -> DetectorPhase:
        return self.detector.state.phase

    @property
    def baseline_tok_s(self) -> float | None:
        """Tokens a second of the baseline; None: none is learned."""
        rate = self.detector.baseline_rate
        return None if rate is None else rate * self.memory.tokens_per_step

    @property
    def last_tok_s(self) -> float | None:
        """Tokens a second of the last valid probe; None: none yet."""
        rates = self.memory.rates
        return rates[-1] * self.memory.tokens_per_step if rates else None

    # ── Readings ────────────────────────────────────────────────────────────

    def take(
        self, probe: Probe, minute: float, traffic: TrafficSpeed | None = None
    ) -> tuple[MeasurementEvent, ...]:
        """Take a probe of this series that counts, valid or not; return what follows from it.

        Args:
            probe: The probe; not a warm-up.
            minute: Its time.
            traffic: Real traffic of the profile; None: not known.
        """
        raw = probe.raw if probe.outcome is ProbeOutcome.VALID else None
        rate = None if raw is None else rate_of(self.series, raw)
        if raw is None or rate is None or self.detector.is_warming_up(minute):
            self.detector.step(minute, None)
            return ()
        self._count_tokens(tokens_per_step(raw) if self.series is Series.DECODE else 1.0)
        circumstances = circumstances_of(probe.evidence, raw)
        self._hint_of(circumstances, minute)
        return self._judge(probe, minute, rate, circumstances, traffic or TrafficSpeed())

    def _judge(
        self,
        probe: Probe,
        minute: float,
        rate: float,
        circumstances: Circumstances,
        traffic: TrafficSpeed,
    ) -> tuple[MeasurementEvent, ...]:
        before, benign = self.phase, self.detector.state.benign
        level = math.log(rate) - benign.prompts.get(probe.prompt, 0.0)
        residual = benign.residual(minute, math.log(rate), probe.prompt)
        outcome = self.detector.step(minute, rate, prompt=probe.prompt)
        self._remember(math.exp(level))
        if before in {DetectorPhase.UNSET, DetectorPhase.LEARNING}:
            self._usual(circumstances)
            return self._learned(probe) if self.phase is DetectorPhase.HEALTHY else ()
        if residual > -thresholds.CLEAR:
            self.memory = replace(
                self.memory,
                good_unix_s=probe.began_unix_s,
                good_since_start=True,
                low_unix_s=None,
                doubtful=None,
            )
            if self.phase is DetectorPhase.HEALTHY:
                self._usual(circumstances)
        else:
            first = self.memory.low_unix_s
            self.memory = replace(
                self.memory,
                low_unix_s=probe.began_unix_s if first is None else first,
                doubtful=joined(self.memory.doubtful, circumstances, USUAL_READINGS),
            )
        if outcome:
            return (self._change_event(probe, outcome[0], traffic),)
        if before is DetectorPhase.HEALTHY and self.phase is DetectorPhase.HEALTHY:
            return self._after_restart(probe, minute, residual + benign.offset)
        return ()

    def _count_tokens(self, tokens: float) -> None:
        usual = self.memory.tokens_per_step
        gain = _STEP_GAIN if self.memory.rates else 1.0
        average = round(usual + gain * (tokens - usual), 4)
        self.memory = replace(self.memory, tokens_per_step=average)

    def _remember(self, rate: float) -> None:
        rates = (*self.memory.rates, float(f"{rate:.5g}"))[-SPARKLINE_RATES:]
        self.memory = replace(self.memory, rates=rates)

    def _usual(self, circumstances: Circumstances) -> None:
        self.memory = replace(
            self.memory, usual=joined(self.memory.usual, circumstances, USUAL_READINGS)
        )

    def _hint_of(self, circumstances: Circumstances, minute: float) -> None:
        """Give the detector a hint where a version, the profile or a throttle reason is another."""
        if self.memory.usual is None or self.phase is not DetectorPhase.HEALTHY:
            return
        comparison = Comparison(before=self.memory.usual, now=circumstances, drop=0.0)
        if any(suspicion.cause in _HINTS for suspicion in suspicions(comparison)):
            self.detector.hint(minute)

    # ── Events ──────────────────────────────────────────────────────────────

    def _learned(self, probe: Probe) -> tuple[MeasurementEvent, ...]:
        """Return the event of the first baseline; a later one was reported when it was accepted."""
        if not self.memory.first:
            return ()
        self.memory = replace(self.memory, first=False, accepted_unix_s=probe.began_unix_s)
        rate = self.baseline_tok_s or 0.0
        text = f"first baseline of {self.series}: {rate_text(rate)} tok/s"
        return (self._event(probe.began_unix_s, EventKind.ACCEPTED, rate=rate, text=text),)

    def _change_event(
        self, probe: Probe, change: object, traffic: TrafficSpeed
    ) -> MeasurementEvent:
        if isinstance(change, Alert):
            return self._lost(probe, change.drop, traffic)
        baseline, since = self.baseline_tok_s, self.memory.loss_since_unix_s
        self.memory = replace(self.memory, loss_since_unix_s=None, cause=None, likely="")
        rate = self.memory.rates[-1] * self.memory.tokens_per_step
        text = f"{self.series} is at {rate_text(rate)} tok/s again, baseline {rate_text(baseline or 0.0)}"
        return self._event(
            probe.began_unix_s,
            EventKind.RECOVERED,
            rate=rate,
            baseline=baseline,
            since_unix_s=since,
            text=text,
        )

    def _lost(self, probe: Probe, drop: float, traffic: TrafficSpeed) -> MeasurementEvent:
        since = self.memory.low_unix_s or probe.began_unix_s
        found = suspicions(
            Comparison(
                before=self.memory.usual or Circumstances(),
                now=self.memory.doubtful or Circumstances(),
                drop=drop,
                restarted=not self.memory.good_since_start,
                cached_before=traffic.cached_usual,
                cached_now=traffic.cached_now,
            )
        )
        likely = "; ".join(suspicion.text for suspicion in found)
        cause = found[0].cause.value if found else None
        self.memory = replace(self.memory, loss_since_unix_s=since, cause=cause, likely=likely)
        baseline = self.baseline_tok_s or 0.0
        event = self._event(
            probe.began_unix_s,
            EventKind.REGRESSION,
            change=-drop,
            cause=cause,
            rate=baseline * (1 - drop),
            baseline=baseline,
            since_unix_s=since,
            likely=likely,
        )
        return event.replaced(text=loss_sentence(event))

    def _after_restart(
        self, probe: Probe, minute: float, level: float
    ) -> tuple[MeasurementEvent, ...]:
        restart, change = self.memory.restart.after(minute, level, self.detector.noise)
        self.memory = replace(self.memory, restart=restart)
        if change is None:
            return ()
        rate = median(self.memory.rates[-_PRESENT_READINGS:]) * self.memory.tokens_per_step
        before = rate / (1 + change)
        text = (
            f"{self.series} came back from a restart at {rate_text(rate)} tok/s,"
            f" {rate_text(before)} before it ({change_text(change)})"
        )
        event = self._event(
            probe.began_unix_s,
            EventKind.LEVEL_AFTER_RESTART,
            change=change,
            cause=LossCause.RESTART.value,
            rate=rate,
            baseline=before,
            text=text,
        )
        return (event,)

    def _event(self, unix_s: float, kind: EventKind, **values: Any) -> MeasurementEvent:
        return MeasurementEvent(
            unix_s=unix_s, profile=self.profile, kind=kind, series=self.series, **values
        )

    # ── Starts and commands ─────────────────────────────────────────────────

    def begin(self, minute: float) -> None:
        """Begin to learn the first baseline, where there is none."""
        if self.phase is DetectorPhase.UNSET:
            self.detector.accept(minute)

    def restart(self, minute: float) -> None:
        """Note a start of the backend."""
        self.detector.restart(minute)
        self.memory = replace(
            self.memory, restart=self.memory.restart.restarted(minute), good_since_start=False
        )

    def accept(self, minute: float, unix_s: float, by: str) -> MeasurementEvent:
        """Accept the present level as the baseline, which later readings make exact."""
        baseline, present = self.baseline_tok_s, self._present()
        change = present / baseline - 1 if baseline and present else None
        figures = f": {_levels(baseline, present)}" if baseline and present else ""
        self.detector.accept(minute)
        self.memory = SeriesMemory(
            first=False,
            accepted_unix_s=unix_s,
            rates=self.memory.rates,
            tokens_per_step=self.memory.tokens_per_step,
        )
        text = f"{by} accepted the present speed of {self.series} as the baseline{figures}"
        return self._event(
            unix_s, EventKind.ACCEPTED, change=change, rate=present, baseline=baseline, text=text
        )

    def reset(self, minute: float, unix_s: float, by: str) -> MeasurementEvent:
        """Forget the baseline and all that was learned with it; a first one is learned anew."""
        baseline = self.baseline_tok_s
        self.detector = Detector()
        self.detector.accept(minute)
        self.memory = SeriesMemory()
        text = f"{by} reset the baseline of {self.series}"
        return self._event(unix_s, EventKind.BASELINE_RESET, baseline=baseline, text=text)

    # ── Reports ─────────────────────────────────────────────────────────────

    def _present(self) -> float | None:
        """Return tokens a second of the last readings together; None: there is none."""
        if not self.memory.rates:
            return None
        return median(self.memory.rates[-_PRESENT_READINGS:]) * self.memory.tokens_per_step

    def _band(self) -> float | None:
        rate = self.detector.baseline_rate
        return None if rate is None else _BAND_NOISES * self.detector.noise * rate

    def speed(self) -> SeriesSpeed:
        """Return the speed as screens show it."""
        memory, baseline = self.memory, self.detector.baseline_rate
        change = None
        if baseline is not None and memory.rates:
            change = median(memory.rates[-_PRESENT_READINGS:]) / baseline - 1
        if self.phase in _LOST:
            change = -self.detector.state.drop
        return SeriesSpeed(
            series=self.series,
            phase=self.phase.value,
            rate=memory.rates[-1] if memory.rates else None,
            baseline=baseline,
            band=self._band(),
            change=change,
            since_unix_s=memory.loss_since_unix_s,
            cause=memory.cause,
            cause_text=memory.likely,
            rates=memory.rates,
            tokens_per_step=memory.tokens_per_step,
        )

    def baseline(self) -> SeriesBaseline:
        """Return the baseline, and what an accept would make of it."""
        baseline, rates = self.detector.baseline_rate, self.memory.rates
        present = median(rates[-_PRESENT_READINGS:]) if rates else None
        prompts = {} if baseline is None else self.detector.state.benign.prompts
        return SeriesBaseline(
            series=self.series,
            phase=self.phase.value,
            baseline=baseline,
            band=self._band(),
            accepted_unix_s=self.memory.accepted_unix_s,
            present=present,
            change=present / baseline - 1 if baseline and present else None,
            prompts=tuple(
                PromptBaseline(prompt=prompt, rate=(baseline or 0.0) * math.exp(offset))
                for prompt, offset in sorted(prompts.items())
            ),
        )


_HINTS: Final = frozenset(
    {
        LossCause.CPU_FALLBACK,
        LossCause.PARTIAL_OFFLOAD,
        LossCause.DRIVER_CHANGED,
        LossCause.ENGINE_CHANGED,
        LossCause.CPU_BACKEND_CHANGED,
        LossCause.PROFILE_CHANGED,
        LossCause.THERMAL_THROTTLE,
        LossCause.POWER_THROTTLE,
        LossCause.DRAFTS_SILENT,
    }
)
"""Causes whose signs are a hint to the detector, also before a loss is seen."""


def _levels(before: float, after: float) -> str:
    """Return a change of level as an accept says it: ``80.3 → 17.9 tok/s, -78 %``."""
    return f"{rate_text(before)} → {rate_text(after)} tok/s, {change_text(after / before - 1)}"
