"""Chart of a profile's speed: rates, the baseline with its band, and numbered events.

Places are per cent of the plot, so that a picture of any width shows letters of one size.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from appliance.presentation.clock_times import local_minute
from appliance.presentation.speed_history import SpeedHistory
from appliance.status.history import RateSummary, fitted
from appliance.status.speed_row import band_text, rate_text

MOST_POINTS: Final = 170
"""Points of a chart: one an hour for a week."""
MOST_MARKERS: Final = 20
"""Markers of a chart, the newest: more cannot be told apart on a phone."""
_HEADROOM: Final = 0.08
"""Share of the range that is left free above and below."""
_LEAST_RANGE: Final = 0.2
"""Least range, as a share of the highest rate: noise of 1 % must not fill the plot."""
_DAY_S: Final = 86_400.0
_TICKS: Final = 3
_GAP_S: Final = 6 * 3600.0
"""Time without a probe over which no line is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMark:
    """Event to draw: a numbered line."""

    unix_s: float
    kind: str
    """``change`` of the speed, or ``switch``."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLine:
    """Line from one place to another."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartBand:
    """Strip over the whole width."""

    top: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLabel:
    """Text at a place on an axis."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartMarker:
    """Numbered line of an event, and its sentence for the list below the plot."""

    number: int
    x: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RateChart:
    """Chart of one series."""

    title: str
    summary: str
    """Sentence for readers who do not see the picture."""
    lines: tuple[ChartLine, ...]
    spreads: tuple[ChartLine, ...]
    """Lowest to highest rate of each point that stands for several probes."""
    band: ChartBand | None
    """Band of the baseline; None: no baseline."""
    level: float | None
    """Height of the baseline; None likewise."""
    rates: tuple[ChartLabel, ...]
    days: tuple[ChartLabel, ...]
    markers: tuple[ChartMarker, ...]


def rate_chart(
    history: SpeedHistory, series: str, marks: Sequence[ChartMark], *, now: float
) -> RateChart | None:
    """Return the chart of one series from the history's beginning until now; None: it has no rates."""
    points = [
        row
        for row in fitted(history.rows.get(series, ()), MOST_POINTS)
        if all(map(math.isfinite, row)) and row.unix_s <= now
    ]
    if not points:
        return None
    baseline = history.baseline_of(series)
    level, band = (None, None) if baseline is None else (baseline.baseline, baseline.band)
    scale = _Scale.of(points, level, band or 0.0, since=history.since_unix_s, now=now)
    usual = "no baseline yet" if level is None else f"baseline {band_text(level, band)}"
    shown = [m for m in sorted(marks, key=lambda m: m.unix_s) if scale.since <= m.unix_s <= now]
    return RateChart(
        title=f"{history.name}, {series}",
        summary=(
            f"{rate_text(points[-1].median)} lately, {rate_text(min(p.low for p in points))} to"
            f" {rate_text(max(p.high for p in points))} since {local_minute(scale.since)}; {usual}"
        ),
        lines=tuple(_lines(points, scale)),
        spreads=tuple(_spreads(points, scale)),
        band=_band(scale, level, band),
        level=None if level is None else scale.y(level),
        rates=tuple(ChartLabel(at=scale.y(rate), text=rate_text(rate)) for rate in scale.ticks()),
        days=tuple(_days(scale)),
        markers=tuple(
            ChartMarker(number=number, x=scale.x(mark.unix_s), kind=mark.kind, text=mark.text)
            for number, mark in enumerate(shown[-MOST_MARKERS:], 1)
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    low: float
    high: float
    since: float
    now: float

    @classmethod
    def of(
        cls,
        points: Sequence[RateSummary],
        level: float | None,
        band: float,
        *,
        since: float,
        now: float,
    ) -> "_Scale":
        edges = [] if level is None or not math.isfinite(level) else [level - band, level + band]
        high = max(*(point.high for point in points), *edges, 0.0)
        low = min(*(point.low for point in points), *edges, high)
        middle, half = (low + high) / 2, max(high - low, _LEAST_RANGE * high, 1e-9) / 2
        half *= 1 + 2 * _HEADROOM
        return cls(
            low=max(0.0, middle - half), high=middle + half, since=min(since, now - 1), now=now
        )

    def x(self, unix_s: float) -> float:
        return _place((unix_s - self.since) / (self.now - self.since))

    def y(self, rate: float) -> float:
        return _place(1 - (rate - self.low) / (self.high - self.low))

    def ticks(self) -> Iterable[float]:
        """Return rates for labels, evenly spaced."""
        step = (self.high - self.low) / (_TICKS + 1)
        return (self.low + step * number for number in range(1, _TICKS + 1))


def _place(share: float) -> float:
    return round(100 * max(0.0, min(share, 1.0)), 2)


def _lines(points: Sequence[RateSummary], scale: _Scale) -> Iterable[ChartLine]:
    """Yield a line from each point to the next, and a short one for a point that stands alone."""
    for number, point in enumerate(points):
        after = points[number + 1] if number + 1 < len(points) else None
        x, y = scale.x(point.unix_s), scale.y(point.median)
        if after is not None and after.unix_s - point.unix_s <= _GAP_S:
            yield ChartLine(x1=x, y1=y, x2=scale.x(after.unix_s), y2=scale.y(after.median))
        elif number == 0 or point.unix_s - points[number - 1].unix_s > _GAP_S:
            yield ChartLine(x1=max(0.0, x - 0.3), y1=y, x2=min(100.0, x + 0.3), y2=y)


def _spreads(points: Sequence[RateSummary], scale: _Scale) -> Iterable[ChartLine]:
    for point in points:
        if point.probes > 1 and point.high > point.low:
            x = scale.x(point.unix_s)
            yield ChartLine(x1=x, y1=scale.y(point.high), x2=x, y2=scale.y(point.low))


def _band(scale: _Scale, level: float | None, band: float | None) -> ChartBand | None:
    if level is None or not band:
        return None
    top, bottom = scale.y(level + band), scale.y(level - band)
    return ChartBand(top=top, height=round(max(0.5, bottom - top), 2))


def _days(scale: _Scale) -> Iterable[ChartLabel]:
    """Yield the names of the days at their noon, by the clock of this box."""
    day = _midnight(scale.since)
    while day < scale.now:
        noon = day + _DAY_S / 2
        if scale.since <= noon <= scale.now:
            moment = datetime.fromtimestamp(noon)  # noqa: DTZ006 - the clock of the box
            yield ChartLabel(at=scale.x(noon), text=moment.strftime("%a"))
        day += _DAY_S


def _midnight(unix_s: float) -> float:
    moment = datetime.fromtimestamp(unix_s)  # noqa: DTZ006 - the clock of the box
    return moment.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
