"""Row of a profile's measured speed, and the figures of speeds in text.

The row is read from the JSON of `appliance.speed.speeds.SpeedReport`, whose module takes too long
to import for every status. Rates of decoding are tokens a second here: the report's steps a second
times its tokens a step.
"""

from __future__ import annotations

from appliance.model.record import Record
from appliance.wire.json_values import Json, number_in, objects_in, text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

DECODE: Final = "decode"
PREFILL: Final = "prefill"
_BARS: Final = "▁▂▃▄▅▆▇█"
_REFERENCE_BAR: Final = 6
"""Bar of the reference, so that a rate may lie above it."""
_FLOOR: Final = 0.5
"""Share of the reference that has the lowest bar: noise of 1 % is flat, a third lost is half the height."""
_MISSING: Final = "·"
_WITHOUT_DECIMAL_FROM: Final = 100.0
_WITH_DECIMALS_BELOW: Final = 10.0
_IN_DOUBT: Final = frozenset({"confirming", "dwelling"})
LOST_PHASES: Final = frozenset({"regressed", "recovering"})
"""Phases of a series in which a lasting loss is reported."""


class SeriesRow(Record):
    series: str
    phase: str
    """As `speed.speeds.SeriesSpeed` has it."""
    rate: float | None = None
    """Tokens a second, as all rates of the row; None: not measured."""
    baseline: float | None = None
    """None: none is learned."""
    band: float | None = None
    """Distance from the baseline, either way, of usual probes; None: as above."""
    change: float | None = None
    """Change from the baseline; None: one of both is not known."""
    since_unix_s: float | None = None
    """Beginning of the loss that is reported; None: none is."""
    cause: str = ""
    """Likely cause in words; empty: unknown, or no loss is reported."""
    rates: tuple[float, ...] = ()
    """Last rates, oldest first."""

    @property
    def is_lost(self) -> bool:
        """Tell whether a loss is reported."""
        return self.phase in LOST_PHASES

    @property
    def is_in_doubt(self) -> bool:
        """Tell whether probes were slow, and it is not certain yet that they stay so."""
        return self.phase in _IN_DOUBT


class SpeedRow(Record):
    series: tuple[SeriesRow, ...] = ()
    last_probe_unix_s: float | None = None
    """Time of the last probe of any outcome; None: none yet, as for the following."""
    last_outcome: str = ""
    last_valid_unix_s: float | None = None
    next_probe_unix_s: float | None = None
    waiting: str = ""
    """Reason why no probe is due; empty: one is."""
    ttft_s: float | None = None
    quality: float | None = None
    """Share of canaries that passed; None: none ran."""
    trouble: str = ""

    def of(self, series: str) -> SeriesRow | None:
        """Return the row of a series; None: it is not measured."""
        return next((row for row in self.series if row.series == series), None)


def speed_row(report: Json) -> SpeedRow:
    """Return the row of a report; what another release left out is empty."""
    return SpeedRow(
        series=tuple(_series_row(speed) for speed in objects_in(report, "series")),
        last_probe_unix_s=number_in(report, "last_probe_unix_s"),
        last_outcome=text_in(report, "last_outcome"),
        last_valid_unix_s=number_in(report, "last_valid_unix_s"),
        next_probe_unix_s=number_in(report, "next_probe_unix_s"),
        waiting=text_in(report, "waiting"),
        ttft_s=number_in(report, "ttft_s"),
        quality=number_in(report, "quality_pass_rate"),
        trouble=text_in(report, "trouble"),
    )


def _series_row(speed: Json) -> SeriesRow:
    factor = number_in(speed, "tokens_per_step") or 1.0

    def tokens(key: str) -> float | None:
        rate = number_in(speed, key)
        return None if rate is None else rate * factor

    rates = speed.get("rates")
    return SeriesRow(
        series=text_in(speed, "series"),
        phase=text_in(speed, "phase"),
        rate=tokens("rate"),
        baseline=tokens("baseline"),
        band=tokens("band"),
        change=number_in(speed, "change"),
        since_unix_s=number_in(speed, "since_unix_s"),
        cause=text_in(speed, "cause_text") or text_in(speed, "cause"),
        rates=tuple(
            rate * factor
            for rate in (rates if isinstance(rates, list) else ())
            if isinstance(rate, (int, float))
        ),
    )


# --- figures in text -----------------------------------------------------------------


def sparkline(rates: Sequence[float | None], reference: float | None) -> str:
    """Return one bar a rate, and a dot for each that is None.

    Args:
        rates: The rates, oldest first.
        reference: Rate of the seventh of eight bars; None: the highest of them is.
    """
    present = [rate for rate in rates if rate is not None]
    top = reference or max(present, default=0.0)
    return "".join(_MISSING if rate is None else _bar(rate, top) for rate in rates)


def _bar(rate: float, top: float) -> str:
    height = (rate / top - _FLOOR) / (1 - _FLOOR) if top > 0 else 0.0
    # Bounded before it is rounded: a rate may be infinitely many times the reference.
    return _BARS[round(max(0.0, min(height * _REFERENCE_BAR, len(_BARS) - 1)))]


def rate_text(rate: float) -> str:
    """Return a rate with three figures or so: ``0.85``, ``27.1``, ``1850``."""
    if rate >= _WITHOUT_DECIMAL_FROM:
        return f"{rate:.0f}"
    return f"{rate:.1f}" if rate >= _WITH_DECIMALS_BELOW else f"{rate:.2f}"


def change_text(change: float) -> str:
    """Return a relative change in per cent, with a decimal below ten: ``+34 %``, ``+5.4 %``."""
    percent = abs(change) * 100
    figures = f"{percent:.0f}" if round(percent, 1) >= _WITH_DECIMALS_BELOW else f"{percent:.1f}"
    return f"{'−' if change < 0 else '+'}{figures} %"  # noqa: RUF001 - a minus sign


def band_text(baseline: float, band: float | None) -> str:
    """Return a baseline with its band: ``41.0 ±1.2``; the band in the decimals of the baseline."""
    text = rate_text(baseline)
    if band is None:
        return text
    decimals = len(text.partition(".")[2])
    return f"{text} ±{band:.{decimals}f}"
