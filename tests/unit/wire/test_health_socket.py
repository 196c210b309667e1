"""Table of health.sock: requests, and events with probes in them."""

from collections.abc import Mapping

import pytest

from appliance.model.errors import BadRequestError
from appliance.model.events import MeasuredEvent
from appliance.model.measurements import (
    EventKind,
    MeasurementEvent,
    Probe,
    ProbeKind,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.wire.conversation import MAX_LINE_BYTES, ResultEvent
from appliance.wire.health_socket import (
    HEALTH,
    MOST_ROWS,
    BenchesRequest,
    HealthRequest,
    HistoryRequest,
    LeaseRequest,
    MeasurementEventsRequest,
    ProbeNowRequest,
    StoreBenchRequest,
    StoredProbeEvent,
)
from appliance.wire.typed_json import from_json
from tests.fakes.probe_rows import EVIDENCE, probe


@pytest.mark.parametrize(
    ("verb", "args", "request_"),
    [
        ("history", {"name": "a", "since_unix_s": 1.8e9}, HistoryRequest("a", 1.8e9)),
        (
            "history",
            {"name": "a", "since_unix_s": 0, "series": "decode", "span_s": 60},
            HistoryRequest("a", 0.0, Series.DECODE, 60.0),
        ),
        ("events", {}, MeasurementEventsRequest()),
        ("events", {"follow": True, "name": None}, MeasurementEventsRequest(follow=True)),
        ("probe", {}, ProbeNowRequest()),
        ("lease", {"names": ["a", "b", "a"]}, LeaseRequest(("a", "b"))),
        (
            "store-bench",
            {"name": "a", "document": {"runs": [1]}},
            StoreBenchRequest("a", {"runs": [1]}),
        ),
        ("benches", {"most": 1000}, BenchesRequest(1000)),
    ],
)
def test_what_is_left_out_has_its_default(
    verb: str, args: Mapping[str, object], request_: HealthRequest
) -> None:
    """Fields that are null or missing have their default."""
    assert HEALTH.decode_request(verb, args) == request_


@pytest.mark.parametrize(
    ("verb", "args", "field"),
    [
        ("history", {"name": "a"}, "since_unix_s"),
        ("history", {"name": "a", "since_unix_s": 1e12}, "since_unix_s"),
        ("history", {"name": "a", "since_unix_s": float("nan")}, "since_unix_s"),
        ("history", {"since_unix_s": 1}, "name"),
        ("history", {"name": "a", "since_unix_s": 1, "series": "x"}, "series"),
        ("history", {"name": "a", "since_unix_s": 1, "span_s": 0}, "span_s"),
        ("measurements", {"name": "a", "since_unix_s": 1, "most": 1001}, "most"),
        ("events", {"after": -1}, "after"),
        ("events", {"after": True}, "after"),
        ("events", {"follow": 1}, "follow"),
        ("events", {"name": 3}, "name"),
        ("lease", {}, "names"),
        ("lease", {"names": []}, "names"),
        ("store-bench", {"name": "a", "document": [1]}, "document"),
        ("benches", {"most": 0}, "most"),
    ],
)
def test_each_wrong_field_is_named(verb: str, args: Mapping[str, object], field: str) -> None:
    """A field of the wrong type or out of its range is refused by its name."""
    with pytest.raises(BadRequestError, match=rf"^{field}\b"):
        HEALTH.decode_request(verb, args)


@pytest.mark.parametrize(
    "sent",
    [
        probe(1.8e9),
        Probe(
            profile="a",
            began_unix_s=1.8e9,
            began_s=3.0,
            boot_id="b",
            kind=ProbeKind.WARM_UP,
            prompt="refactor",
            outcome=ProbeOutcome.YIELDED,
            evidence=EVIDENCE,
        ),
    ],
)
def test_a_probe_arrives_as_it_was_stored(sent: Probe) -> None:
    """Raw times, evidence and what was not measured are the same on the other side."""
    event = HEALTH.decode_event(HEALTH.encode_event(StoredProbeEvent.of(sent)))
    assert isinstance(event, StoredProbeEvent)
    assert event.read() == sent


@pytest.mark.parametrize(
    "sent",
    [
        MeasurementEvent(unix_s=1.8e9, profile="", kind=EventKind.STORE_RECOVERED, id=3),
        MeasurementEvent(
            unix_s=1.8e9,
            profile="a",
            kind=EventKind.REGRESSION,
            series=Series.DECODE,
            change=-0.34,
            cause="foreign-holder",
            rate=27.1,
            baseline=41.0,
            since_unix_s=1.79e9,
            likely="9.8 GiB of GPU memory held by python3",
            text="a is slow",
            id=4,
        ),
    ],
)
def test_a_measurement_event_arrives_as_it_was_stored(sent: MeasurementEvent) -> None:
    """Kind, series, change and cause are the same on the other side."""
    event = HEALTH.decode_event(HEALTH.encode_event(sent))
    assert isinstance(event, MeasuredEvent)
    assert from_json(MeasurementEvent, event.fields()) == sent


def test_the_most_rows_of_two_series_fit_one_line() -> None:
    """An answer to `history` with every row of both series is an event that clients take."""
    row = [1_800_000_000.123456, 1_000_000, *([123_456.789012345678] * 3)]
    rows = {series: [row] * MOST_ROWS for series in Series}
    assert len(HEALTH.encode_event(ResultEvent(details={"rows": rows}))) < MAX_LINE_BYTES / 2
