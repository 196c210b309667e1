"""Detector of lasting losses of speed in one series of sparse, noisy readings.

A detector belongs to one profile and one series, decode or prefill. It gets every valid reading,
wants further ones through `wake_min`, and reports `Alert` and `Recovery`. Its baseline spans
restarts and every change of driver, engine or profile until a new level is accepted.

==========  ===========================================  =============================================
phase       event                                        next phase
==========  ===========================================  =============================================
any         accept                                       LEARNING: 60 min of soak, then 12 readings
UNSET       reading                                      UNSET: nothing to compare it with
LEARNING    restart                                      LEARNING, from the soak
LEARNING    the last reading of the baseline             HEALTHY
HEALTHY     reading far below (5 % or 3.2 noises)        CONFIRMING; that reading itself never counts
HEALTHY     sum of shortfalls above its limit            CONFIRMING, on the slow path
HEALTHY     other reading                                HEALTHY; the benign model follows it
CONFIRMING  two good readings, or a good burst           HEALTHY
CONFIRMING  low burst                                    DWELLING
CONFIRMING  slow path: low burst, and low before it      REGRESSED, `Alert`
DWELLING    median of the last three readings good       HEALTHY
DWELLING    good reading, or another level of loss       DWELLING, from its beginning
DWELLING    two low readings when the dwell is over      REGRESSED, `Alert`; HEALTHY for a small loss
REGRESSED   good reading                                 RECOVERING
REGRESSED   loss below 8 %: sum of readings above half   HEALTHY, `Recovery`
RECOVERING  low reading, restart                         REGRESSED
RECOVERING  good reading 15 min after the first          HEALTHY, `Recovery`
==========  ===========================================  =============================================

A restart or another hint shortens the dwell as long as no reading since has been good. A loss within
a day of a recovery doubles the next dwell, up to four times.

A rate that is no finite number above 0 is a reading that could not be taken; where a further reading
was wanted, it is wanted again 5 min later. A clock that is set back counts as no time passed. After
90 min without a reading a burst, dwell or recovery begins anew.
"""

import math
from dataclasses import dataclass
from typing import Final

from appliance.speed import thresholds
from appliance.speed.detector_state import (
    BenignModel,
    DetectorPhase,
    DetectorState,
    bounded,
    decode,
    encode,
)
from appliance.status.history import median

_IN_DOUBT: Final = frozenset({DetectorPhase.CONFIRMING, DetectorPhase.DWELLING})
_INSISTENT: Final = frozenset({*_IN_DOUBT, DetectorPhase.LEARNING, DetectorPhase.RECOVERING})
"""Phases that want a missing reading again, rather than wait for the schedule."""


@dataclass(frozen=True, slots=True)
class Alert:
    """Lasting loss of speed."""

    drop: float
    """Share of the expected speed that is lost: 0.2 is 20 %."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """End of the loss that was reported last."""

    drop: float


_Events = tuple[Alert | Recovery, ...]


class Detector:
    """State machine of one series; its whole memory is its state."""

    def __init__(self, state: DetectorState | None = None) -> None:
        self.state = DetectorState() if state is None else state

    @classmethod
    def decoded(cls, text: str) -> "Detector":
        """Return the detector of an encoded state; ValueError for any other text."""
        return cls(decode(text))

    def encoded(self) -> str:
        """Return the state as JSON."""
        return encode(self.state)

    @property
    def wake_min(self) -> float | None:
        """Minute at which a further reading is wanted; None: the schedule suffices."""
        return self.state.wake_min

    @property
    def baseline_rate(self) -> float | None:
        """Rate of the baseline, as the mean over its prompts; None: none is learned."""
        if self.state.phase in {DetectorPhase.UNSET, DetectorPhase.LEARNING}:
            return None
        return math.exp(self.state.benign.baseline)

    @property
    def noise(self) -> float:
        """Standard deviation of single readings about the baseline, as a share of it."""
        return self.state.benign.noise

    # ── Events ──────────────────────────────────────────────────────────────

    def accept(self, unix_min: float) -> None:
        """Begin a new baseline from later readings."""
        self._pass_time(unix_min)
        sessions = self.state.sessions
        sessions.end(healthy=self.state.phase is DetectorPhase.HEALTHY)
        self.state = DetectorState(
            phase=DetectorPhase.LEARNING,
            now_min=unix_min,
            accepted_min=unix_min,
            since_min=unix_min,
            start_min=unix_min,
            wake_min=unix_min + thresholds.SOAK_MIN,
            sessions=sessions,
        )

    def restart(self, unix_min: float) -> None:
        """Note a start of the backend; the baseline stays."""
        self._pass_time(unix_min)
        state = self.state
        if state.phase is DetectorPhase.LEARNING:
            self.accept(unix_min)
            return
        state.sessions.end(healthy=state.phase is DetectorPhase.HEALTHY)
        state.start_min = state.hint_min = unix_min
        if state.phase is DetectorPhase.RECOVERING:
            state.phase = DetectorPhase.REGRESSED
        if state.phase is not DetectorPhase.UNSET:
            state.wake_min = unix_min + thresholds.WARM_MIN + 1

    def hint(self, unix_min: float) -> None:
        """Note a fact that makes a loss likely: a new driver, a throttle bit, drafts that ended."""
        self._pass_time(unix_min)
        state = self.state
        if state.hint_min is None:
            state.hint_min = unix_min
            if state.phase is DetectorPhase.HEALTHY and state.wake_min is None:
                state.wake_min = unix_min

    def step(self, unix_min: float, rate: float | None, *, prompt: str = "") -> _Events:
        """Take one reading; a rate of None is a reading that could not be taken."""
        self._pass_time(unix_min)
        state = self.state
        if state.wake_min is not None and unix_min >= state.wake_min:
            state.wake_min = None
        if rate is None or not (math.isfinite(rate) and rate > 0) or self.is_warming_up(unix_min):
            self._want_again(unix_min)
            return ()
        self._notice_gap(unix_min)
        if state.phase is DetectorPhase.UNSET:
            return ()
        if state.phase is DetectorPhase.LEARNING:
            self._learn(unix_min, math.log(rate), prompt)
            return ()
        residual = round(state.benign.residual(unix_min, math.log(rate), prompt), 5)
        return self._compare(unix_min, residual, prompt)

    def _compare(self, unix_min: float, residual: float, prompt: str) -> _Events:
        if residual > -thresholds.CLEAR:
            self.state.hint_min = None
        match self.state.phase:
            case DetectorPhase.HEALTHY:
                self._watch(unix_min, residual, prompt)
                return ()
            case DetectorPhase.CONFIRMING:
                return self._confirm(unix_min, residual)
            case DetectorPhase.DWELLING:
                return self._dwell(unix_min, residual)
            case _:
                return self._await_recovery(unix_min, residual)

    # ── Time ────────────────────────────────────────────────────────────────

    def _pass_time(self, unix_min: float) -> None:
        """Keep the clock; one that was set back moves all times with it."""
        if not math.isfinite(unix_min):
            raise ValueError(f"time is {unix_min}")
        if self.state.now_min is not None and unix_min < self.state.now_min:
            self.state.shift(unix_min - self.state.now_min)
        self.state.now_min = unix_min

    def is_warming_up(self, unix_min: float) -> bool:
        """Tell whether readings are ignored, because the backend has just started."""
        start = self.state.start_min
        return start is not None and unix_min - start < thresholds.WARM_MIN

    def _want_again(self, unix_min: float) -> None:
        state = self.state
        if state.wake_min is not None or state.phase is DetectorPhase.UNSET:
            return
        if state.start_min is not None and self.is_warming_up(unix_min):
            state.wake_min = state.start_min + thresholds.WARM_MIN + 1
        elif state.phase in _INSISTENT or (
            state.phase is DetectorPhase.HEALTHY and state.hint_min is not None
        ):
            state.wake_min = unix_min + thresholds.RETRY_MIN

    def _notice_gap(self, unix_min: float) -> None:
        state = self.state
        last, state.reading_min = state.reading_min, unix_min
        if last is None or unix_min - last <= thresholds.GAP_MIN:
            return
        state.benign.previous = None
        if state.phase in _IN_DOUBT:
            self._be_healthy()
        elif state.phase is DetectorPhase.RECOVERING:
            state.phase = DetectorPhase.REGRESSED

    # ── Baseline ────────────────────────────────────────────────────────────

    def _learn(self, unix_min: float, log_rate: float, prompt: str) -> None:
        state = self.state
        if unix_min - state.since_min < thresholds.SOAK_MIN:
            return
        if prompt in state.learning or len(state.learning) < thresholds.PROMPTS_MOST:
            state.learning.setdefault(prompt, []).append(round(log_rate, 5))
        enough = max(
            thresholds.BASELINE_READINGS,
            thresholds.BASELINE_READINGS_PER_PROMPT * len(state.learning),
        )
        if sum(map(len, state.learning.values())) < enough:
            state.wake_min = unix_min + thresholds.BASELINE_GAP_MIN
            return
        state.benign = BenignModel.of_readings(state.learning)
        state.learning = {}
        self._be_healthy()

    # ── Healthy ─────────────────────────────────────────────────────────────

    def _be_healthy(self) -> None:
        self.state.phase, self.state.wake_min, self.state.readings = DetectorPhase.HEALTHY, None, []

    def _watch(self, unix_min: float, residual: float, prompt: str) -> None:
        state = self.state
        if residual < -max(thresholds.TRIGGER, thresholds.TRIGGER_NOISES * state.benign.noise):
            self._doubt(unix_min, slow=False)
            return
        self._follow(unix_min, residual, prompt)
        if self._since(state.recovered_min) > 3 * thresholds.FLAP_MIN:
            state.patience = 1.0
        if state.shortfall > thresholds.SHORTFALL_LIMIT * state.patience:
            self._doubt(unix_min, slow=True)

    def _since(self, then_min: float | None) -> float:
        """Return the minutes since then; infinite for a time that has not been."""
        if then_min is None or self.state.now_min is None:
            return math.inf
        return self.state.now_min - then_min

    def _doubt(self, unix_min: float, *, slow: bool) -> None:
        state = self.state
        state.phase, state.slow, state.readings = DetectorPhase.CONFIRMING, slow, []
        state.since_min, state.low_min = unix_min, None
        state.wake_min = unix_min + thresholds.BURST_GAP_MIN

    def _follow(self, unix_min: float, residual: float, prompt: str | None = None) -> None:
        """Add a healthy reading, or the median of several of various prompts, to what is known."""
        state = self.state
        deviation = residual + state.benign.offset
        slack = thresholds.SLACK * state.sessions.scale
        if state.first_day:
            slack += thresholds.FIRST_DAY_SLACK
            state.day_readings += 1
            state.day_sum += bounded(deviation, 0.05)
        else:
            state.sessions.follow(deviation)
        step = max(-thresholds.SHORTFALL_CREDIT, min(thresholds.SHORTFALL_STEP, -residual - slack))
        state.shortfall = max(0.0, state.shortfall + step)
        state.recent = [*state.recent, residual][-thresholds.RECENT_READINGS :]
        if state.shortfall < thresholds.SHORTFALL_LIMIT / 2:
            state.benign.follow(unix_min, residual, prompt)
        state.benign.previous = residual
        if (
            state.first_day
            and self._since(state.accepted_min) >= thresholds.DAY_MIN + thresholds.SOAK_MIN
            and state.day_readings >= thresholds.FIRST_DAY_READINGS
        ):
            state.benign.correct_baseline(state.day_sum / state.day_readings)
            state.first_day, state.day_readings, state.day_sum = False, 0, 0.0

    # ── In doubt ────────────────────────────────────────────────────────────

    def _confirm(self, unix_min: float, residual: float) -> _Events:
        state = self.state
        state.readings.append(residual)
        good_pair = (
            len(state.readings) == thresholds.GOOD_READINGS
            and min(state.readings) > -thresholds.CLEAR
        )
        if len(state.readings) < thresholds.BURST_READINGS and not good_pair:
            state.wake_min = unix_min + thresholds.BURST_GAP_MIN
            return ()
        level = median(state.readings)
        if state.slow:
            lasting = median([*state.recent, *state.readings])
            least = thresholds.SLOW_LEVEL * state.sessions.scale
            if level <= -thresholds.CLEAR and lasting <= -least:
                return self._alert(lasting)
            state.shortfall = thresholds.SHORTFALL_LIMIT / 2
            self._be_healthy()
        elif level > -thresholds.CLEAR:
            self._be_healthy()
            self._follow(unix_min, level)
        else:
            state.phase = DetectorPhase.DWELLING
            state.wake_min = unix_min + thresholds.DWELL_GAP_MIN
        return ()

    def _dwell(self, unix_min: float, residual: float) -> _Events:
        state = self.state
        before, state.readings = state.readings, [*state.readings, residual]
        level, lately = median(state.readings), median(state.readings[-3:])
        if lately > -thresholds.CLEAR:
            self._be_healthy()
            self._follow(unix_min, lately)
            return ()
        changed = (
            len(before) >= thresholds.LEVEL_READINGS
            and abs(lately - median(before[:-2])) > thresholds.LEVEL_CHANGE
        )
        good = residual > thresholds.GOOD_SHARE * min(level, -thresholds.CLEAR)
        if (good or changed) and len(before) < thresholds.DWELL_READINGS - 1:
            state.since_min, state.low_min = unix_min, None
            state.wake_min = unix_min + thresholds.BURST_GAP_MIN
            return ()
        due = self._due(state.since_min, level)
        if state.low_min is not None and unix_min >= max(
            due, state.low_min + thresholds.SETTLE_MIN
        ):
            if (
                max(level, median(state.readings[-5:]))
                <= -thresholds.FAST_LEVEL * state.sessions.scale
            ):
                return self._alert(level)
            self._be_healthy()
            self._follow(unix_min, level)
        elif unix_min >= due - thresholds.SETTLE_MIN:
            state.low_min = unix_min if state.low_min is None else state.low_min
            state.wake_min = max(due, state.low_min + thresholds.SETTLE_MIN)
        else:
            state.wake_min = min(unix_min + thresholds.DWELL_GAP_MIN, due - thresholds.SETTLE_MIN)
        return ()

    def _due(self, since_min: float, level: float) -> float:
        """Return the minute at which the dwell is over for a loss of this level."""
        state = self.state
        due = since_min + thresholds.DWELL_MIN * state.patience
        if state.hint_min is not None and level <= -thresholds.EXPECTED_DROP:
            expected = max(
                state.hint_min + thresholds.EXPECTED_DWELL_MIN,
                since_min + thresholds.EXPECTED_BURST_MIN,
            )
            return min(due, expected)
        return due

    # ── After a loss ──────────────────────────────────────────────────────

    def _alert(self, level: float) -> _Events:
        state = self.state
        flapping = self._since(state.recovered_min) < thresholds.FLAP_MIN
        state.patience = min(thresholds.PATIENCE_MOST, 2 * state.patience) if flapping else 1.0
        state.phase, state.wake_min, state.drop = DetectorPhase.REGRESSED, None, 1 - math.exp(level)
        state.shortfall, state.credit, state.readings = 0.0, 0.0, []
        return (Alert(state.drop),)

    def _await_recovery(self, unix_min: float, residual: float) -> _Events:
        state = self.state
        if state.drop < thresholds.SMALL_DROP:
            return self._await_small_recovery(residual)
        if residual < -max(thresholds.RECOVERED, thresholds.RECOVERED_SHARE * state.drop):
            state.phase, state.wake_min = DetectorPhase.REGRESSED, None
            return ()
        if state.phase is DetectorPhase.REGRESSED:
            state.phase, state.since_min = DetectorPhase.RECOVERING, unix_min
        elif self._since(state.since_min) >= thresholds.RECOVERY_DWELL_MIN:
            return self._recover()
        state.wake_min = unix_min + thresholds.RECOVERY_GAP_MIN
        return ()

    def _await_small_recovery(self, residual: float) -> _Events:
        """Sum the readings above the middle: single ones cannot distinguish a small loss from none."""
        state = self.state
        above = residual + thresholds.SMALL_MIDDLE * state.drop
        state.credit = max(0.0, state.credit + bounded(above, thresholds.SMALL_STEP))
        return self._recover() if state.credit >= thresholds.SMALL_LIMIT else ()

    def _recover(self) -> _Events:
        state = self.state
        drop, state.drop = state.drop, 0.0
        state.recent, state.benign.previous = [], None
        state.recovered_min = state.now_min
        self._be_healthy()
        return (Recovery(drop),)
