"""Table of health.sock: requests, and events with probes in them."""

from collections.abc import Mapping

import pytest

from appliance.domain.errors import BadRequestError
from appliance.domain.measurements import (
    EventKind,
    MeasurementEvent,
    Probe,
    ProbeKind,
    ProbeOutcome,
    Series,
)
from appliance.protocol.control import SERIES_WORDS
from appliance.protocol.conversation.codec import MAX_LINE_BYTES, ResultEvent
from appliance.protocol.health_socket import (
    HEALTH,
    MOST_ROWS,
    BenchesRequest,
    HealthRequest,
    HistoryRequest,
    LeaseRequest,
    MeasurementEventsRequest,
    ProbeNowRequest,
    StoreBenchRequest,
)
from appliance.protocol.measurement_events import (
    measured_event,
    measurement_event_in,
    probe_event,
    probe_in,
)
from tests.fakes.probe_rows import EVIDENCE, probe


@pytest.mark.parametrize(
    ("verb", "args", "request_"),
    [
        ("history", {"name": "a", "since_unix_s": 1.8e9}, HistoryRequest("a", 1.8e9)),
        (
            "history",
            {"name": "a", "since_unix_s": 0, "series": "decode", "span_s": 60},
            HistoryRequest("a", 0.0, "decode", 60.0),
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
    ("verb", "args", "words"),
    [
        ("history", {"name": "a"}, "since_unix_s is not a time"),
        ("history", {"name": "a", "since_unix_s": 1e12}, "since_unix_s is not a time"),
        ("history", {"name": "a", "since_unix_s": float("nan")}, "since_unix_s is not a time"),
        ("history", {"since_unix_s": 1}, "name is missing"),
        ("history", {"name": "a", "since_unix_s": 1, "series": "x"}, "series is none of decode"),
        ("history", {"name": "a", "since_unix_s": 1, "span_s": 0}, "span_s is not a number"),
        ("measurements", {"name": "a", "since_unix_s": 1, "most": 1001}, "most is no whole number"),
        ("events", {"after": -1}, "after is no whole number"),
        ("events", {"after": True}, "after is no whole number"),
        ("events", {"follow": 1}, "follow is neither true nor false"),
        ("events", {"name": 3}, "name is missing"),
        ("lease", {}, "names is not a list of names"),
        ("lease", {"names": []}, "names names no profile"),
        ("store-bench", {"name": "a", "document": [1]}, "document is no object"),
        ("benches", {"most": 0}, "most is no whole number from 1 to 1000"),
    ],
)
def test_each_wrong_field_is_named(verb: str, args: Mapping[str, object], words: str) -> None:
    """A field of the wrong type or out of its range is refused by its name."""
    with pytest.raises(BadRequestError, match=words):
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
    event = HEALTH.decode_event(HEALTH.encode_event(probe_event(sent)))
    assert probe_in(event) == sent  # type: ignore[arg-type]


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
    event = HEALTH.decode_event(HEALTH.encode_event(measured_event(sent)))
    assert measurement_event_in(event) == sent  # type: ignore[arg-type]


def test_the_most_rows_of_two_series_fit_one_line() -> None:
    """An answer to `history` with every row of both series is an event that clients take."""
    row = [1_800_000_000.123456, 1_000_000, *([123_456.789012345678] * 3)]
    rows = {series: [row] * MOST_ROWS for series in SERIES_WORDS}
    assert len(HEALTH.encode_event(ResultEvent(details={"rows": rows}))) < MAX_LINE_BYTES / 2


def test_series_are_the_domains() -> None:
    """The protocol repeats the series, to save an import; they are the same."""
    assert list(SERIES_WORDS) == list(Series)
