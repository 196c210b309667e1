"""Speeds of the profiles, as the health agent reports them from its memory and screens show them.

Rates of decoding are steps a second: with `tokens_per_step` they are tokens a second, and without
speculative decoding both are the same. Rates are freed of the offset of their prompts,
so that two of them can be compared.
"""

from typing import Final, Self

from appliance.model.record import Record
from appliance.model.words import ProbeOutcome, Series

SPARKLINE_RATES: Final = 16
"""Most rates of a sparkline."""
LOST_PHASES: Final = frozenset({"regressed", "recovering"})
"""Phases of a series in which a lasting loss is reported."""
_IN_DOUBT: Final = frozenset({"confirming", "dwelling"})


class SeriesSpeed(Record, frozen=True, kw_only=True):
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

    @property
    def is_lost(self) -> bool:
        """Tell whether a loss is reported."""
        return self.phase in LOST_PHASES

    @property
    def is_in_doubt(self) -> bool:
        """Tell whether probes were slow, and it is not certain yet that they stay so."""
        return self.phase in _IN_DOUBT

    def in_tokens(self) -> Self:
        """Return the same with all rates in tokens a second."""
        factor = self.tokens_per_step or 1.0

        def tokens(rate: float | None) -> float | None:
            return None if rate is None else rate * factor

        return self.replaced(
            rate=tokens(self.rate),
            baseline=tokens(self.baseline),
            band=tokens(self.band),
            rates=tuple(rate * factor for rate in self.rates),
            tokens_per_step=1.0,
        )


class SpeedReport(Record, frozen=True, kw_only=True):
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

    def in_tokens(self) -> Self:
        """Return the same with all rates in tokens a second."""
        return self.replaced(series=tuple(speed.in_tokens() for speed in self.series))


class PromptBaseline(Record, frozen=True, kw_only=True):
    """Expected rate of one prompt."""

    prompt: str
    rate: float


class SeriesBaseline(Record, frozen=True, kw_only=True):
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


class BaselineReport(Record, frozen=True, kw_only=True):
    """Baselines of one profile."""

    profile: str
    series: tuple[SeriesBaseline, ...] = ()
