"""Measured speed of a profile, as the health agent reports it, and the figures of speeds in text."""

from __future__ import annotations

from appliance.model.speeds import SpeedReport
from appliance.model.words import Series
from appliance.wire.json_values import Json
from appliance.wire.typed_json import JsonValueError, from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

DECODE: Final = Series.DECODE
PREFILL: Final = Series.PREFILL
_BARS: Final = "▁▂▃▄▅▆▇█"
_REFERENCE_BAR: Final = 6
"""Bar of the reference, so that a rate may lie above it."""
_FLOOR: Final = 0.5
"""Share of the reference that has the lowest bar: noise of 1 % is flat, a third lost is half the height."""
_MISSING: Final = "·"
_WITHOUT_DECIMAL_FROM: Final = 100.0
_WITH_DECIMALS_BELOW: Final = 10.0


def speed_of(report: Json) -> SpeedReport:
    """Return a report of the health agent with all rates in tokens a second; empty: there is none."""
    if not report:
        return SpeedReport(profile="")
    try:
        return from_json(SpeedReport, report).in_tokens()
    except JsonValueError as error:
        return SpeedReport(profile="", trouble=f"the report of its speed cannot be read: {error}")


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
