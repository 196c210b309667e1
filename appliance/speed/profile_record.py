"""Record of one profile: the state of both series, of real traffic, of drafts and of the probes' sizes.

All of it is restored from the states in the store, so that an agent that is killed goes on where it
was. A state that cannot be read, because it is damaged or of another release, is begun anew, and the
others stay.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from appliance.model.measurements import (
    EventKind,
    MeasurementEvent,
    Probe,
    RawTimings,
    TrafficSums,
)
from appliance.model.speeds import BaselineReport, SeriesSpeed
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.detector_state import DetectorPhase
from appliance.speed.probe_prompts import series_of
from appliance.speed.probe_sizes import ProbeSizes, is_much_slower, sizes_for
from appliance.speed.series_record import SeriesRecord, decode_memory, encode_memory, memory_key
from appliance.speed.traffic_speed import TrafficSpeed

SILENT_PROBES: Final = 2
"""Probes in a row without a draft: one may have met an engine that had just begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftsWatch:
    """Probes in a row that drafted nothing, or whose drafts were all refused."""

    silent_probes: int = 0
    """Count up to `SILENT_PROBES`, of which the last was reported."""

    def after(self, raw: RawTimings) -> "tuple[DraftsWatch, str | None]":
        """Return the watch after a valid probe, and the fact to report; None: there is none."""
        if raw.drafted_tokens is None:
            return self, None
        useful = raw.drafted_tokens > 0 and raw.accepted_tokens != 0
        if useful:
            return DraftsWatch(), None
        if self.silent_probes >= SILENT_PROBES:
            return self, None
        counted = replace(self, silent_probes=self.silent_probes + 1)
        if counted.silent_probes < SILENT_PROBES:
            return counted, None
        if raw.drafted_tokens:
            return counted, "none of its drafts stood"
        return counted, "it drafted nothing"


PROFILE_KEY: Final = "profile"
"""Second part of the key under which the store has a profile's memory."""
_SAME_START_S: Final = 60.0
"""Largest difference between two tellings of one start: a clock that is set moves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileMemory:
    """State of a profile beside those of its series; None: not known, or not yet."""

    is_seen: bool = False
    """Whether the profile has been seen serving."""
    started_unix_s: float | None = None
    """Start of the backend that was seen last."""
    main_pid: int | None = None
    sizes: ProbeSizes | None = None
    """Sizes of the probes that the baseline was learned with."""
    last_valid_unix_s: float | None = None
    ttft_s: float | None = None
    silent_s: float = 0.0
    """Serving time since the last valid probe, as of the last probe."""
    silence_told: bool = False
    drafts: DraftsWatch = field(default_factory=DraftsWatch)
    traffic: TrafficSpeed = field(default_factory=TrafficSpeed)


@dataclass(slots=True, kw_only=True)
class ProfileRecord:
    """Record of one profile."""

    name: str
    memory: ProfileMemory = field(default_factory=ProfileMemory)
    series: dict[Series, SeriesRecord] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Sentences about states that could not be read."""
    _saved: dict[str, str] = field(default_factory=dict)

    @classmethod
    def restored(cls, name: str, states: Mapping[str, str]) -> "ProfileRecord":
        """Return the record of the states with these keys; of none it is new."""
        record = cls(name=name, _saved=dict(states))
        for series in Series:
            found = states.get(series.value), states.get(memory_key(series))
            try:
                record.series[series] = SeriesRecord.restored(name, series, *found)
            except ValueError as error:
                record.faults.append(
                    f"state of {name}, {series}: {error}; its baseline is learned anew"
                )
                record.series[series] = SeriesRecord(profile=name, series=series)
        try:
            if PROFILE_KEY in states:
                record.memory = decode_memory(ProfileMemory, states[PROFILE_KEY])
        except ValueError as error:
            record.faults.append(f"state of {name}: {error}")
        return record

    def unsaved(self) -> Mapping[tuple[str, str], str]:
        """Return the states that have changed since the last call, by their keys in the store."""
        states = {PROFILE_KEY: encode_memory(self.memory)}
        for record in self.series.values():
            states.update(record.states())
        changed = {key: text for key, text in states.items() if self._saved.get(key) != text}
        self._saved.update(changed)
        return {(self.name, key): text for key, text in changed.items()}

    # ── What happens ────────────────────────────────────────────────────────

    def is_new_start(self, started_unix_s: float | None, main_pid: int | None) -> bool:
        """Tell whether this is another start of the backend than the one that was seen last."""
        known_s, known_pid = self.memory.started_unix_s, self.memory.main_pid
        if not self.memory.is_seen:
            return True
        if None not in {main_pid, known_pid} and main_pid != known_pid:
            return True
        if started_unix_s is None or known_s is None:
            return False
        return abs(started_unix_s - known_s) > _SAME_START_S

    def start(self, minute: float, started_unix_s: float | None, main_pid: int | None) -> None:
        """Note a start of the backend; the first begins the first baseline."""
        for record in self.series.values():
            record.restart(minute)
        self.memory = replace(
            self.memory, is_seen=True, started_unix_s=started_unix_s, main_pid=main_pid
        )
        self.begin(minute)

    def begin(self, minute: float) -> None:
        """Begin to learn the first baseline of each series that has none."""
        for record in self.series.values():
            record.begin(minute)

    def take(
        self, probe: Probe, minute: float, *, speculative: bool
    ) -> tuple[MeasurementEvent, ...]:
        """Take one probe that is no warm-up; return the events that follow from it.

        Args:
            probe: The probe.
            minute: Its time for the detectors.
            speculative: Whether the profile declares speculative decoding.
        """
        series = series_of(probe.prompt)
        if series is Series.PREFILL:
            self._resize(probe.outcome)
        events = self.series[series].take(probe, minute, self.memory.traffic)
        if probe.outcome is not ProbeOutcome.VALID or probe.raw is None:
            return events
        self.memory = replace(self.memory, last_valid_unix_s=probe.began_unix_s)
        if series is not Series.DECODE:
            return events
        self.memory = replace(self.memory, ttft_s=probe.raw.ttft_s)
        return (
            (*events, *self._check_drafts(probe.raw, probe.began_unix_s)) if speculative else events
        )

    def _resize(self, outcome: ProbeOutcome) -> None:
        """Make the long prompt shorter where the engine cannot take it, before its baseline is known."""
        sizes, is_new = self.memory.sizes, self.series[Series.PREFILL].baseline_tok_s is None
        if sizes is not None and is_new and outcome in {ProbeOutcome.VALID, ProbeOutcome.FAILED}:
            sizes = sizes.after_long_prompt(failed=outcome is ProbeOutcome.FAILED)
            self.memory = replace(self.memory, sizes=sizes)

    def _check_drafts(self, raw: RawTimings, unix_s: float) -> Iterator[MeasurementEvent]:
        watch, fact = self.memory.drafts.after(raw)
        self.memory = replace(self.memory, drafts=watch)
        if fact is None:
            return
        yield MeasurementEvent(
            unix_s=unix_s,
            profile=self.name,
            kind=EventKind.DRAFTS_SILENT,
            series=Series.DECODE,
            text=f"the profile declares speculative decoding, and in two probes {fact}:"
            f" appliance logs {self.name}",
        )

    def take_traffic(self, sums: TrafficSums) -> bool:
        """Take sums of real traffic; return whether they ask for a probe."""
        decode = self.series[Series.DECODE]
        baseline = decode.baseline_tok_s if decode.phase is DetectorPhase.HEALTHY else None
        traffic, is_slow = self.memory.traffic.after(sums, baseline)
        self.memory = replace(self.memory, traffic=traffic)
        return is_slow

    def note_silence(self, silent_s: float, *, told: bool) -> None:
        """Keep the serving time without a valid probe, and whether it has been reported."""
        self.memory = replace(self.memory, silent_s=round(silent_s, 1), silence_told=told)

    def wish(self) -> tuple[float, Series | None] | None:
        """Return the minute at which a detector wants a probe, and its series; None: none does.

        Where both want one within the same minutes, one probe of both serves them. While decoding is
        much slower than its baseline, prefill has no wishes.
        """
        candidates = (Series.DECODE,) if self.is_much_slower else tuple(Series)
        wanted = sorted(
            (minute, series)
            for series in candidates
            if (minute := self.series[series].detector.wake_min) is not None
        )
        if not wanted:
            return None
        minute, series = wanted[0]
        is_shared = len(wanted) > 1 and wanted[1][0] - minute <= _SHARED_MIN
        return minute, None if is_shared else series

    # ── Sizes ───────────────────────────────────────────────────────────────

    @property
    def is_much_slower(self) -> bool:
        """Whether the last probe decoded so slowly that the long prompt would take too much time."""
        decode = self.series[Series.DECODE]
        return is_much_slower(decode.last_tok_s, decode.baseline_tok_s)

    def choose_sizes(
        self, interval_s: float, rates: Mapping[Series, float], piece_tokens: int | None
    ) -> ProbeSizes:
        """Return the sizes of the baseline; where none are chosen yet, choose them.

        Args:
            interval_s: Time from one probe to the next.
            rates: Tokens a second that the last probes have measured.
            piece_tokens: Size of the pieces of prompts; None: they are sent in one.
        """
        if self.memory.sizes is not None:
            return self.memory.sizes
        decode, prefill = rates.get(Series.DECODE), rates.get(Series.PREFILL)
        sizes = sizes_for(interval_s, decode, prefill, piece_tokens)
        if decode is not None and prefill is not None:
            self.memory = replace(self.memory, sizes=sizes)
        return sizes

    def answer_tokens(self, interval_s: float, sizes: ProbeSizes) -> int:
        """Return the length of answers now: less than chosen if decoding is much slower."""
        if not self.is_much_slower:
            return sizes.answer_tokens
        rate = self.series[Series.DECODE].last_tok_s
        return min(sizes.answer_tokens, sizes_for(interval_s, rate, None, None).answer_tokens)

    # ── Commands ────────────────────────────────────────────────────────────

    def accept(self, minute: float, unix_s: float, by: str) -> tuple[MeasurementEvent, ...]:
        """Accept the present speeds as the baseline."""
        self.memory = replace(self.memory, sizes=None)
        return tuple(record.accept(minute, unix_s, by) for record in self.series.values())

    def reset(self, minute: float, unix_s: float, by: str) -> tuple[MeasurementEvent, ...]:
        """Forget the baselines."""
        self.memory = replace(self.memory, sizes=None, traffic=TrafficSpeed())
        return tuple(record.reset(minute, unix_s, by) for record in self.series.values())

    # ── Reports ─────────────────────────────────────────────────────────────

    def speeds(self) -> tuple[SeriesSpeed, ...]:
        """Return the speed of each series."""
        return tuple(record.speed() for record in self.series.values())

    def baseline(self) -> BaselineReport:
        """Return the baseline of each series."""
        rows = tuple(record.baseline() for record in self.series.values())
        return BaselineReport(profile=self.name, series=rows)


_SHARED_MIN: Final = 1.0
"""Minutes by which one of two wishes may be early."""
