"""Speeds of the profiles, as the health agent reports them from its memory and screens show them.

Rates of decoding are steps a second: with `tokens_per_step` they are tokens a second, and without
speculative decoding both are the same. Rates are freed of the offset of their prompts,
so that two of them can be compared.
"""

from dataclasses import dataclass
from typing import Final

from appliance.model.measurements import ProbeOutcome
from appliance.model.words import Series

SPARKLINE_RATES: Final = 16
"""Most rates of a sparkline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSpeed:
    """Speed of one series of a profile."""

    series: Series
    phase: str
    """Word for the state of the detector: ``unset``, ``learning``, ``healthy``, ``confirming``,
    ``dwelling``, ``regressed`` or ``recovering``."""
    rate: float | None = None
    """Rate of the last valid probe; None: none yet."""
    baseline: float | None = None
    """Accepted rate; None: none is learned."""
    band: float | None = None
    """Distance from the baseline, either way, within which single probes are usual; None: as above."""
    change: float | None = None
    """Change from the baseline: of the loss while one is reported, else of the last probes
    together; None: no baseline, or no probe."""
    since_unix_s: float | None = None
    """Beginning of the loss that is reported; None: none is."""
    cause: str | None = None
    """Key of its likely cause; None: unknown, or no loss is reported."""
    cause_text: str = ""
    """Likely cause in words; empty: as above."""
    rates: tuple[float, ...] = ()
    """Last rates for a sparkline, oldest first."""
    tokens_per_step: float = 1.0
    """Tokens that a step of the model made on average in the last valid probe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedReport:
    """Speed of one profile."""

    profile: str
    series: tuple[SeriesSpeed, ...] = ()
    last_probe_unix_s: float | None = None
    """Time of the last probe of any outcome; None: none yet, as for the following."""
    last_outcome: ProbeOutcome | None = None
    last_valid_unix_s: float | None = None
    next_probe_unix_s: float | None = None
    """Time at which the next is due; None: none is, because of `waiting`."""
    waiting: str = ""
    """Reason why none is due, as a phrase; empty: one is."""
    ttft_s: float | None = None
    """Time to the first token of the last valid probe that decoded."""
    cached_share: float | None = None
    """Share of the prompt tokens of real traffic that the prefix cache held lately; None: no traffic,
    or the engine does not tell."""
    quality_pass_rate: float | None = None
    """Share of canaries that passed lately; None: none ran."""
    last_canaries_unix_s: float | None = None
    """Time of the last round of canaries since the agent's start; None: none was."""
    silence: str = ""
    """Sentence about a time without a valid probe that has become too long; empty: it has not."""
    trouble: str = ""
    """Sentence about what keeps the profile from being measured; empty: nothing."""

    def of(self, series: Series) -> SeriesSpeed | None:
        """Return the speed of a series; None: it is not measured."""
        return next((speed for speed in self.series if speed.series is series), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBaseline:
    """Expected rate of one prompt."""

    prompt: str
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesBaseline:
    """Baseline of one series, and what an accept would make of it; rates as in `SeriesSpeed`."""

    series: Series
    phase: str
    """As in `SeriesSpeed`."""
    baseline: float | None = None
    """None: none is learned."""
    band: float | None = None
    accepted_unix_s: float | None = None
    """Time of the last accept; None: never."""
    present: float | None = None
    """Level of the last valid probes, which an accept takes over; None: none yet."""
    change: float | None = None
    """Change of the baseline by an accept; None: one of both is not known."""
    prompts: tuple[PromptBaseline, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineReport:
    """Baselines of one profile."""

    profile: str
    series: tuple[SeriesBaseline, ...] = ()
