"""History of a profile's speed as the health agent answers it."""

from __future__ import annotations

from appliance.model.events import MeasuredEvent
from appliance.model.record import Record
from appliance.presentation.clock_times import LATEST_UNIX_S
from appliance.status.history import RateSummary
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class History(Record):
    """History of a profile, as the agent answers it."""

    name: str
    since_unix_s: float
    rows: Mapping[str, Sequence[RateSummary]]
    """By series."""
    baselines: Mapping[str, Json]
    """Baseline of each series (`appliance.speed.speeds.SeriesBaseline`)."""
    events: Sequence[MeasuredEvent]


def history_in(name: str, since_unix_s: float, details: Json) -> History:
    """Return the history in an answer; rows that are none are left out."""
    rows, baseline = object_in(details, "rows"), object_in(details, "baseline")
    return History(
        name=name,
        since_unix_s=since_unix_s,
        rows={series: list(_rows(rows, series)) for series in rows},
        baselines={text_in(one, "series"): one for one in objects_in(baseline, "series")},
        events=[_event(one) for one in objects_in(details, "events")],
    )


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
