"""State machine of the regression detector, on short series without chance."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.speed import thresholds
from appliance.speed.detector import Alert, Detector, Recovery
from appliance.speed.detector_state import DetectorPhase

SPEED = 80.0
DAY = thresholds.DAY_MIN
BEGIN = 29_000_000.0
WIGGLE = (0.004, -0.003, 0.001, -0.005, 0.003)
PROMPTS = {"one": 0.0, "two": -0.025, "three": 0.02, "four": 0.006, "five": -0.003}

Told = tuple[float, Alert | Recovery]


@dataclass
class Box:
    """Box whose probes follow the schedule of 15 minutes and the wishes of the detector."""

    detector: Detector = field(default_factory=Detector)
    now: float = BEGIN
    drop: float = 0.0
    """Share of speed that is lost now."""
    measurable: bool = True
    prompts: Iterable[str] = ("one",)
    extra: int = 0
    _count: int = 0

    def rate(self) -> float | None:
        self._count += 1
        prompt = self.prompt()
        level = WIGGLE[self._count % len(WIGGLE)] + PROMPTS[prompt] + math.log(1 - self.drop)
        return SPEED * math.exp(level) if self.measurable else None

    def prompt(self) -> str:
        names = tuple(self.prompts)
        return names[self._count % len(names)]

    def run(self, minutes: float) -> list[Told]:
        """Let time pass; return each event with the minutes since the call."""
        told: list[Told] = []
        begin, slot = self.now, self.now
        while self.now < begin + minutes:
            wake = self.detector.wake_min
            if wake is not None and wake < slot + 15:
                self.now = max(self.now, wake)
                self.extra += 1
            else:
                slot += 15
                self.now = slot
            rate = self.rate()
            events = self.detector.step(self.now, rate, prompt=self.prompt())
            told += [(self.now - begin, event) for event in events]
        return told

    def phase(self) -> DetectorPhase:
        return self.detector.state.phase

    def until(self, phase: DetectorPhase) -> None:
        """Let time pass until a phase begins."""
        for _ in range(100):
            if self.phase() is phase:
                return
            self.run(0.1)
        raise AssertionError(f"still {self.phase()}")


def qualified(**options: object) -> Box:
    """Return a box whose baseline has just been learned."""
    box = Box(**options)  # type: ignore[arg-type]
    box.detector.accept(box.now)
    assert box.run(150) == []
    assert box.phase() is DetectorPhase.HEALTHY
    return box


def regressed(drop: float = 0.2) -> Box:
    box = qualified()
    box.drop = drop
    (told,) = box.run(DAY if drop < 0.06 else 90)
    assert isinstance(told[1], Alert)
    return box


def test_nothing_without_a_baseline() -> None:
    """Before a level is accepted, readings and restarts lead to nothing."""
    detector = Detector()
    assert detector.step(BEGIN, 10.0) == ()
    assert detector.step(BEGIN + 1, None) == ()
    detector.restart(BEGIN + 2)
    assert detector.step(BEGIN + 3, 10.0) == ()
    detector.hint(BEGIN + 3)
    assert detector.step(BEGIN + 20, 5.0) == ()
    assert detector.wake_min is None
    assert detector.state.phase is DetectorPhase.UNSET
    assert detector.baseline_rate is None


def test_baseline_is_learned_after_the_soak() -> None:
    """Readings of the first hour do not count; twelve later ones make the baseline."""
    box = Box(drop=0.3)
    box.detector.accept(box.now)
    assert box.detector.wake_min == BEGIN + 60
    box.run(50)
    box.drop = 0.0
    box.run(100)
    assert box.phase() is DetectorPhase.HEALTHY
    assert box.detector.baseline_rate == pytest.approx(SPEED, rel=0.003)
    assert box.detector.noise == thresholds.NOISE_LEAST


def test_restart_begins_the_soak_anew() -> None:
    """A baseline that is not complete is begun anew by a restart, for the card is cold again."""
    box = Box()
    box.detector.accept(box.now)
    box.run(80)
    assert box.detector.state.learning
    box.detector.restart(box.now)
    assert not box.detector.state.learning
    assert box.detector.wake_min == box.now + 60


def test_healthy_series_is_silent() -> None:
    """A week of readings without a loss leads to no event, and to few further readings."""
    box = qualified()
    box.extra = 0
    assert box.run(7 * DAY) == []
    assert box.extra == 0
    assert not box.detector.state.first_day


@pytest.mark.parametrize("drop", [0.1, 0.2, 0.4])
def test_loss_is_told_with_its_size(drop: float) -> None:
    """A lasting loss is told once, within an hour, with its size."""
    box = qualified()
    box.drop = drop
    ((delay, event),) = box.run(DAY)
    assert 29 <= delay <= 60
    assert isinstance(event, Alert)
    assert event.drop == pytest.approx(drop, abs=0.015)


def test_small_loss_is_told_within_the_day() -> None:
    """A loss below the trigger of 5 % is told by the sum of its readings."""
    box = qualified()
    box.run(2 * DAY)
    box.drop = 0.045
    ((delay, event),) = box.run(DAY)
    assert isinstance(event, Alert)
    assert delay < DAY
    assert event.drop == pytest.approx(0.045, abs=0.012)


def test_sum_of_shortfalls_alone_does_not_alert() -> None:
    """A slow suspicion is dropped, and half of its sum kept, when the burst is good."""
    box = qualified()
    box.run(2 * DAY)
    box.drop = 0.04
    box.until(DetectorPhase.CONFIRMING)
    assert box.detector.state.slow
    box.drop = 0.0
    assert box.run(60) == []
    assert box.phase() is DetectorPhase.HEALTHY


def test_one_contaminated_reading_never_alerts() -> None:
    """A single low reading starts a burst, two good readings end it."""
    box = qualified()
    for _ in range(20):
        box.drop = 0.5
        box.until(DetectorPhase.CONFIRMING)
        box.drop = 0.0
        box.extra = 0
        assert box.run(60) == []
        assert box.extra == 2


def test_burst_with_one_good_reading_of_the_first_two_goes_on() -> None:
    """A burst of four is judged by its median."""
    box = qualified()
    detector = box.detector
    box.drop = 0.5
    box.until(DetectorPhase.CONFIRMING)
    for share in (1.0, 0.5, 1.0, 1.0):
        assert detector.wake_min is not None
        assert detector.step(detector.wake_min, SPEED * share) == ()
    assert box.phase() is DetectorPhase.HEALTHY


def test_dip_that_ends_within_the_dwell_is_silent() -> None:
    """Half an hour of other load is no loss."""
    box = qualified()
    box.drop = 0.3
    box.until(DetectorPhase.DWELLING)
    box.drop = 0.0
    assert box.run(DAY) == []
    assert box.phase() is DetectorPhase.HEALTHY


def test_good_reading_begins_the_dwell_anew() -> None:
    """One good reading within the dwell is followed by a whole dwell before the alert."""
    box = qualified()
    box.drop = 0.3
    box.until(DetectorPhase.DWELLING)
    box.run(15)
    box.drop = 0.0
    box.run(1)
    assert box.phase() is DetectorPhase.DWELLING
    box.drop = 0.3
    ((delay, _),) = box.run(60)
    assert delay == pytest.approx(thresholds.DWELL_MIN, abs=5)


def test_one_reading_never_ends_a_dwell() -> None:
    """After a dwell without readings, two low ones two minutes apart make the loss."""
    box = qualified()
    box.drop = 0.3
    box.until(DetectorPhase.DWELLING)
    box.now += 40
    assert box.detector.step(box.now, 0.7 * SPEED, prompt="one") == ()
    assert box.detector.wake_min == box.now + thresholds.SETTLE_MIN
    assert thresholds.SETTLE_MIN == 2
    (event,) = box.detector.step(box.now + 2, 0.7 * SPEED, prompt="one")
    assert isinstance(event, Alert)


def test_two_loads_in_a_row_are_no_loss() -> None:
    """Another level of loss begins the dwell anew."""
    box = qualified()
    box.drop = 0.1
    box.until(DetectorPhase.DWELLING)
    box.run(12)
    box.drop = 0.4
    assert box.run(20) == []
    box.drop = 0.0
    assert box.run(DAY) == []


def test_flicker_for_hours_is_told() -> None:
    """After forty readings single good ones no longer begin the dwell anew."""
    box = qualified()
    box.drop = 0.3
    box.until(DetectorPhase.DWELLING)
    told: list[Told] = []
    for _ in range(60):
        box.drop = 0.0
        told += box.run(0.1)
        box.drop = 0.3
        told += box.run(2) + box.run(2) + box.run(2)
    assert [type(event) for _, event in told[:1]] == [Alert]


def test_loss_too_small_at_the_end_of_the_dwell() -> None:
    """A level between a good reading and the least loss of the fast path is followed, not told."""
    box = qualified()
    box.drop = 0.2
    box.until(DetectorPhase.CONFIRMING)
    box.drop = 0.036
    box.until(DetectorPhase.DWELLING)
    assert box.run(35) == []
    assert box.phase() is DetectorPhase.HEALTHY


def test_missing_readings_are_wanted_again() -> None:
    """A burst that cannot be measured is tried again every five minutes."""
    box = qualified()
    box.drop = 0.2
    box.until(DetectorPhase.CONFIRMING)
    box.measurable = False
    box.run(1)
    assert box.detector.wake_min == box.now + thresholds.RETRY_MIN
    wake = box.detector.wake_min
    assert box.detector.step(box.now + 1, None) == ()
    assert box.detector.wake_min == wake


@pytest.mark.parametrize("rate", [None, 0.0, -3.0, math.nan, math.inf])
def test_rate_that_is_no_rate_is_no_reading(rate: float | None) -> None:
    """A rate that is not a finite number above 0 changes nothing."""
    box = qualified()
    before = box.detector.state.benign.baseline, box.detector.state.recent
    for _ in range(100):
        box.now += 15
        assert box.detector.step(box.now, rate, prompt="one") == ()
    assert (box.detector.state.benign.baseline, box.detector.state.recent) == before
    assert box.phase() is DetectorPhase.HEALTHY


@pytest.mark.parametrize("minute", [math.nan, math.inf])
def test_time_must_be_finite(minute: float) -> None:
    """A time that is no finite number is refused."""
    with pytest.raises(ValueError, match="time is"):
        Detector().step(minute, 10.0)


@pytest.mark.parametrize("jump", [-365 * DAY, -30.0, 0.0])
def test_clock_set_back_loses_no_dwell(jump: float) -> None:
    """A clock that is set back in a dwell moves its end too, and the loss is told once."""
    box = qualified()
    box.drop = 0.2
    box.until(DetectorPhase.DWELLING)
    box.now += jump
    ((delay, _),) = box.run(DAY)
    assert delay <= 60


def test_days_without_a_reading_end_a_burst_and_a_dwell() -> None:
    """Readings on both sides of a gap are not one stretch."""
    for phase in (DetectorPhase.CONFIRMING, DetectorPhase.DWELLING):
        box = qualified()
        box.drop = 0.2
        box.until(phase)
        box.now += 3 * DAY
        ((delay, _),) = box.run(90)
        assert delay >= thresholds.DWELL_MIN


def test_days_without_a_reading_are_no_loss() -> None:
    """A gap of days in a healthy series leads to no event, and its ends are not compared."""
    box = qualified()
    box.now += 3 * DAY
    assert box.detector.step(box.now, SPEED, prompt="one") == ()
    assert box.detector.state.benign.noise == thresholds.NOISE_LEAST
    assert box.run(DAY) == []


def test_first_requests_after_a_start_are_ignored() -> None:
    """A reading within five minutes of a start is not compared, and another is wanted after them."""
    box = qualified()
    box.detector.restart(box.now)
    assert box.detector.wake_min == box.now + 6
    assert box.detector.step(box.now + 3, SPEED / 2, prompt="one") == ()
    assert box.phase() is DetectorPhase.HEALTHY
    assert box.detector.step(box.now + 6, None) == ()
    assert box.detector.wake_min == box.now + 6 + thresholds.RETRY_MIN


def test_early_reading_is_replaced() -> None:
    """A wanted reading that falls within five minutes of a start is wanted again after them."""
    box = qualified()
    box.detector.restart(box.now)
    box.detector.state.wake_min = None
    box.detector.step(box.now + 2, SPEED)
    assert box.detector.wake_min == box.now + 6


def test_loss_after_a_restart_is_told_sooner() -> None:
    """A restart that brings a loss is told after 25 minutes, unless a reading since was good."""
    box = qualified()
    box.drop = 0.2
    box.detector.restart(box.now)
    ((delay, _),) = box.run(60)
    assert delay == pytest.approx(thresholds.EXPECTED_DWELL_MIN, abs=1)
    box = qualified()
    box.detector.restart(box.now)
    box.run(10)
    box.drop = 0.2
    ((delay, _),) = box.run(60)
    assert delay >= thresholds.DWELL_MIN


def test_restart_does_not_interrupt_a_dwell() -> None:
    """A loss that stands before and after a restart is told when its dwell is over."""
    box = qualified()
    box.drop = 0.2
    box.until(DetectorPhase.DWELLING)
    box.run(15)
    box.detector.restart(box.now)
    assert box.phase() is DetectorPhase.DWELLING
    ((delay, _),) = box.run(60)
    assert delay <= thresholds.DWELL_MIN - 15


def test_hint_asks_for_a_reading_at_once() -> None:
    """A hint wants a reading now; a second one while the first is open changes nothing."""
    box = qualified()
    box.drop = 0.2
    box.detector.hint(box.now)
    assert box.detector.wake_min == box.now
    ((delay, _),) = box.run(60)
    assert delay == pytest.approx(thresholds.EXPECTED_DWELL_MIN, abs=2)
    opened = box.detector.state.hint_min
    box.detector.hint(box.now)
    assert box.detector.state.hint_min == opened


def test_hint_for_a_standing_alert_is_only_noted() -> None:
    """A hint while an alert stands wants no reading."""
    box = regressed()
    box.detector.hint(box.now)
    assert box.detector.wake_min is None


def test_recovery_after_a_quarter_of_an_hour() -> None:
    """Recovery is told once, after 15 min of good readings."""
    box = regressed(0.2)
    box.drop = 0.0
    ((delay, event),) = box.run(DAY)
    assert isinstance(event, Recovery)
    assert event.drop == pytest.approx(0.2, abs=0.015)
    assert thresholds.RECOVERY_DWELL_MIN <= delay <= 45


def test_recovery_is_interrupted_by_a_low_reading() -> None:
    """A low reading, a restart or a gap within the recovery begins it anew."""
    box = regressed(0.2)
    box.drop = 0.0
    box.until(DetectorPhase.RECOVERING)
    box.drop = 0.2
    assert box.run(4) == []
    assert box.phase() is DetectorPhase.REGRESSED
    box.drop = 0.0
    box.until(DetectorPhase.RECOVERING)
    box.detector.restart(box.now)
    assert box.phase() is DetectorPhase.REGRESSED
    box.until(DetectorPhase.RECOVERING)
    box.now += DAY
    later = box.now
    box.run(1)
    assert box.phase() is DetectorPhase.RECOVERING
    assert box.detector.state.since_min == later


def test_small_loss_recovers_by_the_sum_of_its_readings() -> None:
    """A loss of 5 % recovers four hours after its end, and not by itself."""
    box = regressed(0.055)
    assert box.run(3 * DAY) == []
    box.drop = 0.0
    ((delay, event),) = box.run(DAY)
    assert isinstance(event, Recovery)
    assert 180 <= delay <= 360


def test_flapping_doubles_the_dwell() -> None:
    """An alert within a day of a recovery doubles the next dwell; three quiet days end that."""
    box = regressed(0.2)
    delays = []
    for _ in range(4):
        box.drop = 0.0
        box.run(60)
        box.drop = 0.2
        ((delay, _),) = box.run(180)
        delays.append(delay)
    assert [round((delay - 15) / thresholds.DWELL_MIN) for delay in delays] == [1, 2, 4, 4]
    box.drop = 0.0
    box.run(4 * DAY)
    assert box.detector.state.patience == 1.0


def test_baseline_spans_restarts_until_another_is_accepted() -> None:
    """A loss stays a loss over any number of restarts; an accept makes it the baseline."""
    box = regressed(0.2)
    for _ in range(5):
        box.detector.restart(box.now)
        assert box.run(DAY) == []
    assert box.phase() is DetectorPhase.REGRESSED
    box.detector.accept(box.now)
    assert box.run(2 * DAY) == []
    assert box.detector.baseline_rate == pytest.approx(0.8 * SPEED, rel=0.005)


def test_spread_of_sessions_outlives_an_accept() -> None:
    """A session that was healthy for a day counts, and an accept does not forget it."""
    box = qualified()
    box.run(3 * DAY)
    box.detector.accept(box.now)
    assert len(box.detector.state.sessions.levels) == 1
    assert box.detector.state.benign.baseline == 0.0


def test_slow_creep_is_told() -> None:
    """A loss of half a percent a day is not absorbed by the benign model."""
    box = qualified()
    told: list[Told] = []
    for day in range(20):
        box.drop = 0.005 * day
        told += box.run(DAY)
    assert [type(event) for _, event in told] == [Alert]


def test_prompts_have_their_own_levels() -> None:
    """Offsets between five prompts are learned, and lead to no event; a common loss does."""
    box = qualified(prompts=tuple(PROMPTS))
    assert box.detector.state.benign.prompts == pytest.approx(PROMPTS, abs=0.006)
    assert box.run(7 * DAY) == []
    assert box.detector.state.benign.prompts == pytest.approx(PROMPTS, abs=0.006)
    box.drop = 0.1
    ((_, event),) = box.run(90)
    assert event.drop == pytest.approx(0.1, abs=0.012)


def test_too_many_prompts_share_the_mean() -> None:
    """Prompts beyond eight have no offset of their own, so that the state stays small."""
    detector = Detector()
    detector.accept(BEGIN)
    for count in range(60):
        detector.step(BEGIN + 60 + 4 * count, SPEED, prompt=f"prompt {count % 20}")
    assert detector.state.phase is DetectorPhase.HEALTHY
    assert len(detector.state.benign.prompts) == thresholds.PROMPTS_MOST


Call = tuple[str, float, float | None]
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["step"] * 12 + ["restart", "hint", "accept"]),
        st.sampled_from([0.0, 1.5, 4.0, 5.0, 15.0, 15.0, 60.0, 2000.0, -30.0]),
        st.sampled_from([80.0, 80.5, 79.0, 77.0, 76.0, 72.0, 60.0, 40.0, None, math.nan]),
    ),
    max_size=40,
)


@given(start=st.sampled_from([qualified, regressed, Box]), before=CALLS, after=CALLS)
def test_encoded_state_is_the_whole_memory(
    start: Callable[[], Box], before: list[Call], after: list[Call]
) -> None:
    """A detector that was encoded and decoded at any moment acts as the one that was not.

    No further reading is wanted at once after one, so that a caller cannot loop.
    """
    box = start()
    apply(box.detector, box.now, before)
    text = box.detector.encoded()
    assert len(text) <= 1500
    copy = Detector.decoded(text)
    assert copy.encoded() == text
    assert apply(copy, box.now, after) == apply(box.detector, box.now, after)


def apply(detector: Detector, now: float, calls: list[Call]) -> list[object]:
    seen: list[object] = []
    for name, minutes, rate in calls:
        now += minutes
        if name == "step":
            seen.append(detector.step(now, rate, prompt="one"))
        else:
            getattr(detector, name)(now)
        seen.append(detector.wake_min)
        assert name != "step" or detector.wake_min is None or detector.wake_min > now
    return [*seen, detector.encoded()]
