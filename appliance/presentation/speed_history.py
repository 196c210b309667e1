"""History of a profile's speed, and its baselines, as the health agent answers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from appliance.model.events import MeasuredEvent
from appliance.model.record import Record
from appliance.model.speeds import BaselineReport, SeriesBaseline
from appliance.presentation.clock_times import LATEST_UNIX_S
from appliance.status.history import RateSummary
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in
from appliance.wire.typed_json import JsonValueError, from_json


class SpeedHistory(Record):
    """Rates of one profile over time."""

    name: str
    since_unix_s: float
    rows: Mapping[str, Sequence[RateSummary]]
    """By series, lists of time, number of probes, lowest, median and highest rate."""
    baseline: BaselineReport | None
    """None: the profile is not measured."""
    events: Sequence[MeasuredEvent]

    def baseline_of(self, series: str) -> SeriesBaseline | None:
        """Return the baseline of a series; None: it has none."""
        found = () if self.baseline is None else self.baseline.series
        return next((one for one in found if one.series == series), None)


def history_in(name: str, since_unix_s: float, details: Json) -> SpeedHistory:
    """Return the history in an answer; rows that are none are left out."""
    rows = object_in(details, "rows")
    return SpeedHistory(
        name=name,
        since_unix_s=since_unix_s,
        rows={series: list(_rows(rows, series)) for series in rows},
        baseline=baseline_in(details.get("baseline")),
        events=[_event(one) for one in objects_in(details, "events")],
    )


def baseline_in(document: object) -> BaselineReport | None:
    """Return the baselines in an answer; None: it has none of a form that this release knows."""
    try:
        return from_json(BaselineReport, document)
    except JsonValueError:
        return None


def _rows(rows: Json, series: str) -> Iterable[RateSummary]:
    found = rows.get(series)
    for row in found if isinstance(found, list) else ():
        match row:
            case [
                int() | float() as unix_s,
                int() as probes,
                int() | float() as low,
                int() | float() as median,
                int() | float() as high,
            ] if 0 <= unix_s <= LATEST_UNIX_S:
                yield RateSummary(unix_s, probes, low, median, high)


def _event(document: Json) -> MeasuredEvent:
    return MeasuredEvent(
        id=int(number_in(document, "id") or 0),
        unix_s=min(max(number_in(document, "unix_s") or 0.0, 0.0), LATEST_UNIX_S),
        profile=text_in(document, "profile"),
        kind=text_in(document, "kind"),
        series=text_in(document, "series") or None,
        text=text_in(document, "text"),
    )
