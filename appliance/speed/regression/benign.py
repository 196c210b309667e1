"""Bounded model of the changes of speed that are no loss: level, time of day, prompt, noise.

The model follows slow changes by small steps within hard bounds, so that a slow loss beyond the
bounds stays visible. Rates are natural logarithms of tokens or steps per second.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from appliance.speed.regression import thresholds
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
