"""The record of a profile's quality."""

import json

import pytest

from appliance.model.measurements import CanaryRun, EventKind
from appliance.speed.quality.canary import Canary
from appliance.speed.quality.expectation import PASSED, CanaryOutcome, CanaryVerdict, Expectation
from appliance.speed.quality.quality_record import (
    CountedRun,
    QualityRecord,
    accept_quality,
    begin_round,
    count_verdict,
    decode_quality,
    encode_quality,
    forget_others,
    wants_more,
)

AUTO = Canary(name="tool-auto", group="tools", body={}, expectation=Expectation())
OWN = Canary(name="own:capital", group="own:capital", body={}, expectation=Expectation())
BROKEN = CanaryVerdict(outcome=CanaryOutcome.MALFORMED, fault="the arguments are no JSON")
UNMET = CanaryVerdict(outcome=CanaryOutcome.UNMET, fault="no tool was called")
NO_VERDICT = CanaryVerdict(outcome=CanaryOutcome.NONE)


def count(
    record: QualityRecord, verdict: CanaryVerdict, hour: float = 0.0, canary: Canary = AUTO
) -> CountedRun:
    return count_verdict(record, "genesis", canary, verdict, hour * 3600.0)


def lost() -> QualityRecord:
    """Return a record whose tool calls are lost."""
    record = QualityRecord()
    for hour in range(8):
        count(record, BROKEN, hour)
    return record


def test_unproven() -> None:
    """A canary that has never passed is told and not counted until it passes."""
    record = QualityRecord()
    assert count(record, UNMET) == CountedRun()
    assert record.unproven == {"tool-auto": "no tool was called"}
    run = CanaryRun(profile="genesis", canary="tool-auto", unix_s=0.0, passed=True)
    assert count(record, PASSED) == CountedRun(run=run)
    assert count(record, PASSED) == CountedRun(run=run)
    assert record.unproven == {}
    counted = count(record, UNMET)
    assert counted.run is not None
    assert not counted.run.passed
    assert counted.run.detail == "no tool was called"
    assert record.groups["tools"].runs == "110"


def test_no_verdict() -> None:
    """A request that was not answered leaves no trace."""
    record = QualityRecord()
    assert count(record, NO_VERDICT) == CountedRun()
    assert record == QualityRecord()


def test_events() -> None:
    """A loss and a recovery are events in words, the loss with its share."""
    record = QualityRecord()
    for hour in range(2):
        count(record, PASSED, hour)
    found = [count(record, BROKEN, hour).event for hour in range(2, 10)]
    event = found.pop()
    assert set(found) == {None}
    assert event is not None
    assert event.kind is EventKind.QUALITY_LOST
    assert event.change == pytest.approx(0.2 - 0.98)
    assert event.text == (
        "8 of the last 10 tool calls failed (the arguments are no JSON); do: appliance logs genesis"
    )
    events = [count(record, PASSED, hour).event for hour in range(10, 60)]
    (recovered,) = [event for event in events if event is not None]
    assert recovered.kind is EventKind.QUALITY_RECOVERED
    assert recovered.change is None
    assert event.since_unix_s == recovered.since_unix_s == 2 * 3600.0
    assert recovered.text == "tool calls pass again, after 55 h"


def test_accept() -> None:
    """An accept makes the present share the baseline, and is an event for each group it changes."""
    record = lost()
    for hour in range(6):
        count(record, PASSED, hour, OWN)
    (event,) = accept_quality(record, "genesis", 9.0, "ann")
    assert event.kind is EventKind.ACCEPTED
    assert event.text == "40 % of tool calls pass: accepted by ann as the baseline"
    assert accept_quality(record, "genesis", 9.0, "ann") == []


def test_forget() -> None:
    """Records of canaries that are no longer asked go."""
    record = lost()
    count(record, PASSED, canary=OWN)
    count(record, UNMET, canary=AUTO)
    forget_others(record, [OWN])
    assert list(record.groups) == ["own:capital"]
    assert record.unproven == {}


def test_rounds() -> None:
    """A usual round asks all canaries, a further one those whose group had faults."""
    record = QualityRecord()
    assert not wants_more(record)
    assert begin_round(record, [AUTO, OWN], further=True) == [AUTO, OWN]
    count(record, BROKEN, canary=OWN)
    assert wants_more(record)
    assert begin_round(record, [AUTO, OWN], further=False) == [AUTO, OWN]
    assert begin_round(record, [AUTO, OWN], further=True) == [OWN]
    assert record.rounds == 3


def test_json() -> None:
    """The JSON of a record is the record again, in about a kilobyte."""
    record = lost()
    record.rounds, record.file_problems = 7, ("line 2: no JSON object",)
    count(record, UNMET, canary=OWN)
    for _ in range(200):
        count(record, PASSED)
    text = encode_quality(record)
    assert decode_quality(text) == record
    assert len(text) < 1200
    assert decode_quality(encode_quality(QualityRecord())) == QualityRecord()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"version": 1}',
        encode_quality(QualityRecord()).replace('"version":1', '"version":2'),
        encode_quality(lost()).replace('"baseline":0.02', '"baseline":0'),
        encode_quality(lost()).replace('"baseline":0.02', '"baseline":NaN'),
        encode_quality(lost()).replace('"runs":"0', '"runs":"x'),
    ],
)
def test_damaged(text: str) -> None:
    """A text that is no record of this version is refused."""
    with pytest.raises(ValueError, match=r"\w"):
        decode_quality(text)


def test_text_is_safe() -> None:
    """A record tells faults, and no part of a request."""
    assert "body" not in json.loads(encode_quality(lost()))
