"""Pictures of the page: the chart of a profile's speed, and the bar of its states over the last days.

The chart has rates, the baseline with its band, and numbered events. Places are per cent of the plot, so that a picture
of any width shows letters of one size. The bar is of the health agent's record and the operations on record:

====================  =======================================================================
a part of a bar       when
====================  =======================================================================
a recorded state      from the first recorded change on: a state of the status document
                      (``unresponsive`` too), ``degraded`` or ``unknown``
``serving``           before the record: from the end of an operation that brought the profile up,
                      until the next one that concerns it
``changing``          before the record: while an operation that concerns it ran
``stopped``           before the record: after an operation that took it down
``failed``            before the record: after one that failed and restored nothing
``unknown``           before the first operation; and where nothing was recorded, or what
                      operations left is not what is observed now
====================  =======================================================================
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from appliance.model.status import ProfileRow, RecordedOperation
from appliance.presentation.clock_times import local_minute
from appliance.presentation.speed_history import SpeedHistory
from appliance.status.history import RateSummary, fitted
from appliance.status.speed_figures import band_text, rate_text
from appliance.status.state_record import GAP_S
from appliance.wire.json_values import Json, number_in, object_in

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


DAYS: Final = 7
_LENGTH_S: Final = DAYS * 86_400.0
_RAISES: Final = frozenset({"switch", "start", "restart", "repair"})
MOST_PARTS: Final = 200
"""Parts of a bar that are drawn, the newest."""
MOST_CHANGES: Final = 12
"""Parts of a bar that are told in words, the newest."""
HEIGHTS: Final = {
    "serving": 100.0,
    "degraded": 70.0,
    "unresponsive": 35.0,
    "loading": 50.0,
    "restarting": 50.0,
    "stopping": 50.0,
    "changing": 50.0,
    "failed": 35.0,
    "refused": 35.0,
    "stopped": 15.0,
    "unknown": 100.0,
}
"""Heights by state; each is a class of the style sheet too."""
_NOTHING: Final = frozenset({"stopped", "unknown"})
"""States of which a bar alone would say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """Part of a bar, in per cent of it."""

    state: str
    begin: float
    width: float
    height: float
    """Height of the part, in per cent of the bar: the state can be told without its colour."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBar:
    """One profile."""

    name: str
    parts: tuple[StatePart, ...]
    summary: str
    """Share of the time in each state, for readers who do not see the picture."""
    changes: tuple[str, ...]
    """Sentences about the last parts, the newest first."""


@dataclass(frozen=True, slots=True)
class _Change:
    unix_s: float
    state: str


def state_bars(
    rows: Sequence[ProfileRow],
    operations: Sequence[RecordedOperation],
    record: Json | None,
    *,
    now: float,
) -> tuple[StateBar, ...]:
    """Return a bar for each profile of which something is on record, or that runs.

    Args:
        rows: Profiles of the status document.
        operations: Operations that are over, in any order.
        record: Answer of the health agent to `states`; None: there is none.
        now: Unix seconds; the end of the bars.
    """
    ended = sorted(operations, key=lambda operation: operation.finished_unix_s or 0.0)
    bars = []
    for row in rows:
        recorded = list(_recorded(row.name, record or {}, now))
        if recorded:
            earlier = _changes(row.name, ended)
            changes = [c for c in earlier if c.unix_s < recorded[0].unix_s] + recorded
            state = None
        else:
            changes, state = [*_changes(row.name, ended), *_now(row)], row.state
        if any(change.state not in _NOTHING for change in changes):
            bars.append(_bar(row.name, changes, state, now))
    return tuple(bars)


def _recorded(name: str, record: Json, now: float) -> Iterable[_Change]:
    """Yield the changes that the health agent has recorded; after a gap nothing is known."""
    found = object_in(record, "profiles").get(name)
    for change in found if isinstance(found, list) else ():
        match change:
            case [int() | float() as unix_s, str() as state] if math.isfinite(unix_s):
                yield _Change(min(float(unix_s), now), state if state in HEIGHTS else "unknown")
            case _:
                pass
    until = number_in(record, "until_unix_s")
    if found and until is not None and now - until > GAP_S:
        yield _Change(until, "unknown")


def _changes(name: str, operations: Iterable[RecordedOperation]) -> Iterable[_Change]:
    """Yield the states that operations left a profile in, each from its time on."""
    before = "unknown"
    for operation in operations:
        ended = operation.finished_unix_s
        if ended is None or name not in {*operation.profiles, *operation.target}:
            continue
        after = _after(name, operation, before)
        if after != before:
            yield _Change(min(operation.began_unix_s, ended), "changing")
        yield _Change(ended, after)
        before = after


def _after(name: str, operation: RecordedOperation, before: str) -> str:
    match operation.outcome:
        case "done":
            raised = operation.kind in _RAISES and name in operation.target
            return "serving" if raised else "stopped"
        case "failed":
            return "failed"
        case "rolled-back" | "refused":
            return before
        case _:
            return "unknown"


def _now(row: ProfileRow) -> Iterable[_Change]:
    """Yield the state that is observed, from the time since which it is known to be so."""
    since = row.since_unix_s
    if row.state == "serving" and since is not None:
        yield _Change(since, "serving")


def _bar(name: str, changes: Sequence[_Change], state: str | None, now: float) -> StateBar:
    """Return a bar; `state`: the present state, where the changes do not end with it."""
    begin = now - _LENGTH_S
    ordered = sorted(changes, key=lambda change: change.unix_s)
    parts = list(_parts(_joined(ordered), state, begin, now))[-MOST_PARTS:]
    widths: dict[str, float] = {}
    for part in parts:
        widths[part.state] = widths.get(part.state, 0.0) + part.width
    shares = [f"{one} {_share(widths[one])}" for one in HEIGHTS if one in widths]
    return StateBar(
        name=name,
        parts=tuple(parts),
        summary=f"{', '.join(shares)} of the last {DAYS} days",
        changes=tuple(part.text for part in reversed(parts[-MOST_CHANGES:])),
    )


def _share(width: float) -> str:
    return f"{width:.0f} %" if width >= 1 else "under 1 %"


def _joined(changes: Iterable[_Change]) -> Iterable[_Change]:
    """Yield the changes that change something."""
    state = ""
    for change in changes:
        if change.state != state:
            yield change
        state = change.state


def _parts(
    changes: Iterable[_Change], present: str | None, begin: float, now: float
) -> Iterable[StatePart]:
    known = [_Change(begin, "unknown"), *changes]
    for number, change in enumerate(known):
        is_last = number + 1 == len(known)
        since, until = max(begin, change.unix_s), now if is_last else known[number + 1].unix_s
        state = change.state
        if is_last and present is not None and (state == "serving") != (present == "serving"):
            state = "unknown"
        if (until := min(now, until)) > since:
            yield StatePart(
                state=state,
                begin=round(100 * (since - begin) / _LENGTH_S, 3),
                width=round(100 * (until - since) / _LENGTH_S, 3),
                height=HEIGHTS[state],
                text=f"{state} {local_minute(since)} to {local_minute(until)}",
            )
