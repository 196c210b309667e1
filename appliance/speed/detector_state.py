"""State of a regression detector, and its JSON: about 1 kB, exact to the last bit.

A part of it is the benign model: a bounded model of the changes of speed that are no loss, by level,
time of day, prompt and noise. It follows slow changes by small steps within hard bounds, so that a
slow loss beyond the bounds stays visible. Another part is the spread of healthy sessions: how far from
the baseline this box comes back after a restart. Rates are natural logarithms of tokens or steps a second.

All times are minutes on the clock of the caller; None is a time that has not been.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from appliance.model.json_reader import decode_json
from appliance.speed import thresholds
from appliance.status.history import median


def bounded(value: float, most: float) -> float:
    """Return the value, moved into the range from -`most` to `most`."""
    return max(-most, min(most, value))


@dataclass(slots=True, kw_only=True)
class BenignModel:
    """Expected rate of one series at each minute, and the noise of single readings about it."""

    baseline: float = 0.0
    """Log rate that was accepted; only the end of its first day corrects it."""
    offset: float = 0.0
    cosine: float = 0.0
    sine: float = 0.0
    """Daily cycle, by UTC."""
    noise: float = thresholds.NOISE_FIRST
    """Standard deviation of a single reading."""
    previous: float | None = None
    """Residual of the last healthy reading; None: none that the next one may be compared with."""
    prompts: dict[str, float] = field(default_factory=dict)
    """Offset of each prompt from the mean over the prompts."""

    @classmethod
    def of_readings(cls, readings: Mapping[str, Sequence[float]]) -> "BenignModel":
        """Return the model of a new baseline: log rates of each prompt, none without a reading.

        The middle of the prompts is their median, which one prompt with bad readings does not move.
        """
        medians = {prompt: median(rates) for prompt, rates in readings.items()}
        middle = median(medians.values())
        prompts = _centred(
            {
                prompt: bounded(rate - middle, thresholds.PROMPT_SPAN)
                for prompt, rate in medians.items()
            }
        )
        levels = [rate - prompts[prompt] for prompt, rates in readings.items() for rate in rates]
        baseline = median(levels)
        spread = 1.4826 * median(abs(level - baseline) for level in levels)
        noise = min(thresholds.NOISE_MOST, max(thresholds.NOISE_LEAST, 1.2 * spread))
        return cls(baseline=baseline, noise=noise, prompts=prompts)

    def residual(self, unix_min: float, log_rate: float, prompt: str) -> float:
        """Return how far a reading lies above what is expected.

        A prompt that the baseline does not know is expected to be as fast as the mean of the others.
        """
        cosine, sine = _time_of_day(unix_min)
        cycle = self.cosine * cosine + self.sine * sine
        return log_rate - self.baseline - self.offset - cycle - self.prompts.get(prompt, 0.0)

    def follow(self, unix_min: float, residual: float, prompt: str | None) -> None:
        """Adapt to a healthy reading of a prompt, or with None to the median of several."""
        error = bounded(residual, 1.5 * self.noise)
        self.offset = bounded(self.offset + thresholds.OFFSET_GAIN * error, thresholds.OFFSET_MOST)
        self._follow_cycle(unix_min, error)
        if prompt is not None:
            self._follow_prompt(prompt, error)
        if self.previous is not None:
            # Successive differences do not see the level: E|x - y| is 2/sqrt(pi) deviations.
            deviation = 0.8862 * min(abs(residual - self.previous), 5 * self.noise)
            noise = self.noise + thresholds.NOISE_GAIN * (deviation - self.noise)
            self.noise = min(thresholds.NOISE_MOST, max(thresholds.NOISE_LEAST, noise))

    def _follow_cycle(self, unix_min: float, error: float) -> None:
        cosine, sine = _time_of_day(unix_min)
        self.cosine += thresholds.CYCLE_GAIN * error * cosine
        self.sine += thresholds.CYCLE_GAIN * error * sine
        excess = math.hypot(self.cosine, self.sine) / thresholds.CYCLE_MOST
        if excess > 1:
            self.cosine /= excess
            self.sine /= excess

    def _follow_prompt(self, prompt: str, error: float) -> None:
        """Adapt one prompt's offset; what all prompts have in common stays out of the offsets."""
        if prompt not in self.prompts and len(self.prompts) >= thresholds.PROMPTS_MOST:
            return
        moved = self.prompts.get(prompt, 0.0) + thresholds.PROMPT_GAIN * error
        self.prompts = _centred({**self.prompts, prompt: moved})

    def correct_baseline(self, shift: float) -> None:
        """Move the baseline to the middle of its first day."""
        self.baseline += bounded(shift, thresholds.FIRST_DAY_SHIFT)
        self.offset = 0.0


def _centred(prompts: Mapping[str, float]) -> dict[str, float]:
    """Return offsets of prompts, moved to a mean of none, each within its bound."""
    mean = sum(prompts.values()) / len(prompts)
    return {
        name: bounded(offset - mean, thresholds.PROMPT_SPAN) for name, offset in prompts.items()
    }


def _time_of_day(unix_min: float) -> tuple[float, float]:
    angle = 2 * math.pi * unix_min / thresholds.DAY_MIN
    return math.cos(angle), math.sin(angle)


@dataclass(slots=True, kw_only=True)
class SessionSpread:
    """Levels of past sessions about the baseline, and that of the current one.

    The spread is a property of the box: it is kept when a new level is accepted.
    """

    readings: int = 0
    level: float = 0.0
    """Mean of the current session's healthy readings, of the last day at most."""
    levels: list[float] = field(default_factory=list)
    """Levels of past sessions that lasted a day, the latest last."""

    def follow(self, deviation: float) -> None:
        """Add a healthy reading's deviation from the baseline."""
        self.readings = min(self.readings + 1, thresholds.SESSION_READINGS)
        self.level += (bounded(deviation, 0.06) - self.level) / self.readings

    def end(self, *, healthy: bool) -> None:
        """End the session; it counts if it was healthy and lasted a day."""
        if healthy and self.readings == thresholds.SESSION_READINGS:
            self.levels = [*self.levels, round(self.level, 5)][-thresholds.SESSIONS_KEPT :]
        self.readings, self.level = 0, 0.0

    @property
    def scale(self) -> float:
        """Factor by which the thresholds of a loss are widened; 1 to `SESSION_SCALE_MOST`."""
        squares = sum(level**2 for level in self.levels)
        prior = thresholds.SESSION_PRIOR * thresholds.SESSION_RMS**2
        rms = math.sqrt((prior + squares) / (thresholds.SESSION_PRIOR + len(self.levels)))
        ratio = rms / (thresholds.SESSION_RMS * thresholds.SESSION_MARGIN)
        return min(thresholds.SESSION_SCALE_MOST, max(1.0, ratio))


VERSION: Final = 1
_LARGEST: Final = 1e12
"""Bound of all numbers in a state: minutes since 1970 are below it for 1900 years, also in a trial that
runs ten thousand times faster."""


class DetectorPhase(StrEnum):
    UNSET = "unset"
    LEARNING = "learning"
    HEALTHY = "healthy"
    CONFIRMING = "confirming"
    DWELLING = "dwelling"
    REGRESSED = "regressed"
    RECOVERING = "recovering"


@dataclass(slots=True, kw_only=True)
class DetectorState:
    """State of one detector."""

    phase: DetectorPhase = DetectorPhase.UNSET
    wake_min: float | None = None
    """Minute at which a further reading is wanted; None: the schedule suffices."""
    now_min: float | None = None
    """Minute of the last call."""
    since_min: float = 0.0
    """Beginning of the burst, dwell or recovery, or of the soak of a baseline."""
    accepted_min: float | None = None
    start_min: float | None = None
    """Last start of the backend."""
    hint_min: float | None = None
    """Hint since which no reading has been good."""
    reading_min: float | None = None
    """Last reading."""
    low_min: float | None = None
    """First of the two low readings that end a dwell."""
    recovered_min: float | None = None
    patience: float = 1.0
    """Factor on the dwell and on the limit of the slow path while the speed flaps."""
    slow: bool = False
    """Whether the burst belongs to the slow path."""
    shortfall: float = 0.0
    """Sum of shortfalls of the slow path."""
    credit: float = 0.0
    """Sum of readings above the middle of a small loss."""
    drop: float = 0.0
    """Share of speed lost, as last reported."""
    recent: list[float] = field(default_factory=list)
    """Last healthy residuals."""
    readings: list[float] = field(default_factory=list)
    """Residuals of the burst and the dwell."""
    learning: dict[str, list[float]] = field(default_factory=dict)
    """Log rates of a baseline that is not complete, by prompt."""
    first_day: bool = True
    """Whether the baseline still waits for the correction after its first day."""
    day_readings: int = 0
    day_sum: float = 0.0
    benign: BenignModel = field(default_factory=BenignModel)
    sessions: SessionSpread = field(default_factory=SessionSpread)

    def shift(self, minutes: float) -> None:
        """Move all times, as after a clock was set."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name.endswith("_min") and value is not None:
                setattr(self, each.name, value + minutes)


def encode(state: DetectorState) -> str:
    """Return the state as JSON."""
    return json.dumps({"version": VERSION, **asdict(state)}, separators=(",", ":"))


def decode(text: str) -> DetectorState:
    """Return the state of its JSON.

    Raises:
        ValueError: The text is no state, or one of another version.
    """
    document = decode_json(text)
    if not isinstance(document, dict) or document.pop("version", None) != VERSION:
        raise ValueError(f"detector state: not of version {VERSION}")
    return DetectorState(**_checked(DetectorState(), document))


def _checked(like: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass after a check of names and types."""
    names = {each.name for each in fields(like)}
    if names != set(document):
        raise ValueError(f"detector state: fields differ: {sorted(names ^ set(document))}")
    return {name: _value(name, getattr(like, name), document[name]) for name in names}


def _value(name: str, like: object, value: Any) -> Any:
    """Return the value of a field, which must be of the kind that a new state has there."""
    if isinstance(like, BenignModel | SessionSpread) and isinstance(value, dict):
        return type(like)(**_checked(like, value))
    if isinstance(like, DetectorPhase):
        return DetectorPhase(value)
    if isinstance(like, dict) and isinstance(value, dict):
        many = list(value.values())
        fits = all(map(_are_numbers, many)) if name == "learning" else _are_numbers(many)
    elif isinstance(like, list):
        fits = _are_numbers(value)
    elif isinstance(like, bool):
        fits = isinstance(value, bool)
    elif isinstance(like, int):
        fits = type(value) is int and 0 <= value <= _LARGEST
    else:
        fits = _are_numbers([value]) or (like is None and value is None)
    if not fits:
        raise ValueError(f"detector state: {name} is {str(value)[:40]!r}")
    return value


def _are_numbers(values: object) -> bool:
    """Tell whether these are numbers that a state can have; NaN and infinity are none."""
    return isinstance(values, list) and all(
        type(value) in {int, float} and abs(value) <= _LARGEST for value in values
    )
