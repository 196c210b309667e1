"""Record of a profile's quality: pass rates, sentences, report."""

import itertools
import json
import random
from dataclasses import replace

import pytest

from appliance.model.measurements import CanaryRun, EventKind
from appliance.model.profile import Abilities
from appliance.speed.canaries import Canary, standard_canaries
from appliance.speed.canary_verdict import PASSED, CanaryOutcome, CanaryVerdict, Expectation
from appliance.speed.quality_record import (
    CountedRun,
    GroupQuality,
    PassRate,
    QualityChange,
    QualityRecord,
    QualityReport,
    accept_quality,
    begin_round,
    count_verdict,
    decode_quality,
    encode_quality,
    fault_hint,
    forget_others,
    group_subject,
    lost_text,
    quality_report,
    recovered_text,
    refused_text,
    wants_more,
)
from tests.fakes.profiles import applied

HOUR_S = 3600.0


def run(
    state: PassRate, passes: str, begin_s: float = 0.0, gap_s: float = HOUR_S
) -> list[tuple[int, str]]:
    """Feed passes (1) and faults (0); returns the changes with the number of their runs."""
    found = []
    for number, letter in enumerate(passes):
        change = state.step(begin_s + number * gap_s, passed=letter == "1", fault="broken")
        if change is not None:
            found.append((number, change.value))
    return found


def is_lost(state: PassRate) -> bool:
    return state.lost_unix_s is not None


def test_lost_and_recovered() -> None:
    """A group that only fails is lost at its eighth fault, and recovers with 48 passes in a row."""
    state = PassRate(group="tools")
    assert run(state, "1" * 50 + "0" * 10) == [(57, "lost")]
    assert state.lost_unix_s == 50 * HOUR_S
    assert state.fault == "broken"
    assert run(state, "1" * 60, 100 * HOUR_S) == [(47, "recovered")]
    assert state.lost_unix_s is None


def test_bad_moment() -> None:
    """An hour in which everything fails is no loss, three such hours are."""
    state = PassRate(group="tools")
    assert run(state, "0" * 60, gap_s=60.0) == []
    assert run(state, "1" * 70 + "0", 3600.0, gap_s=60.0) == []
    assert run(PassRate(group="tools"), "0" * 200, gap_s=60.0) == [(121, "lost")]


def test_clock_set() -> None:
    """A clock that is set back or ahead begins another hour, and no loss by itself."""
    state = PassRate(group="tools")
    assert run(state, "0" * 5, 1_000_000.0, gap_s=60.0) == []
    assert run(state, "0" * 5, 0.0, gap_s=60.0) == []
    assert run(state, "0" * 5, 5_000_000.0, gap_s=60.0) == [(1, "lost")]


def test_wants_more() -> None:
    """Further rounds are wanted after a fault until four passes, and on the way to a recovery."""
    state = PassRate(group="tools")
    assert not state.wants_more
    run(state, "0")
    wanted = [state.wants_more, *(run(state, "1") == [] and state.wants_more for _ in range(6))]
    assert wanted == [True] * 5 + [False] * 2
    run(state, "0" * 10)
    assert state.lost_unix_s is not None
    assert not state.wants_more
    run(state, "1" * 4)
    assert state.wants_more


@pytest.mark.parametrize(("share", "limit"), [(0.38, 48), (1.0, 10)])
def test_found_within_a_day(share: float, limit: int) -> None:
    """A share of 38 % of two runs an hour is found within a day in 97 of 100 series."""
    late = 0
    for seed in range(200):
        state, chance = PassRate(group="schema"), random.Random(seed)  # noqa: S311 - a simulation
        for number in range(limit):
            passed = chance.random() >= share
            if state.step(number * HOUR_S / 2, passed=passed) is QualityChange.LOST:
                break
        else:
            late += 1
    assert late <= 6


@pytest.mark.parametrize("share", [0.0, 0.02])
def test_healthy(share: float) -> None:
    """A year of four runs an hour with 2 % of faults is no loss."""
    state, chance = PassRate(group="tools"), random.Random(7)  # noqa: S311 - a simulation
    changes = [
        state.step(number * HOUR_S / 4, passed=chance.random() >= share)
        for number in range(4 * 8766)
    ]
    assert set(changes) == {None}
    assert state.pass_share is not None
    assert state.pass_share >= 0.9


def test_accept_of_a_group() -> None:
    """An accepted level is healthy from then on, and a worse one is lost again."""
    state = PassRate(group="tools")
    assert state.accept() is None
    run(state, "110" * 30)
    assert is_lost(state)
    faults = state.accept()
    assert faults == pytest.approx(1 / 3)
    assert not is_lost(state)
    assert run(state, "110" * 300, 1e6) == []
    assert state.accept() is None
    assert [change for _, change in run(state, "001" * 60, 1e7)] == ["lost"]


def test_accepted_worst() -> None:
    """A level at which hardly anything passes is accepted as one of 60 % of faults."""
    state = PassRate(group="tools")
    assert state.pass_share is None
    run(state, "0" * 60)
    assert state.accept() == 0.6
    numbers = itertools.count()
    while state.step(1e6 + next(numbers) * HOUR_S, passed=False) is None:
        assert next(numbers) < 1000


def test_own_canary() -> None:
    """A canary of the operator's is told by its name."""
    state = PassRate(group="own:capital", runs="1" * 90 + "0" * 6, fault="no JSON")
    text = lost_text("genesis", state)
    assert text.startswith("6 of the last 24 answers to canary capital failed (no JSON)")


def test_subject() -> None:
    """The groups of the standard canaries have names for people."""
    assert group_subject("schema") == "answers by a JSON schema"
    assert recovered_text("tools", 60.0) == "tool calls pass again, after 1 h"


def test_refused_file() -> None:
    """A problem of a canary file is told with the file's path."""
    text = refused_text("a", "/etc/appliance/canaries", "line 2: no JSON object")
    assert text == "/etc/appliance/canaries/a.jsonl: line 2: no JSON object"


def test_a_fault_names_its_trap() -> None:
    """A reasoning parser without thinking spoils schemas and required tools, and no other canary."""
    silent = replace(
        applied("a"), command=("vllm", "--reasoning-parser"), abilities=Abilities(reasoning=False)
    )
    hinted = {c.name for c in standard_canaries(0, tools=True) if fault_hint(silent, c)}
    plain = {c.name for c in standard_canaries(0, tools=True)} - hinted
    assert any("required" in name for name in hinted)
    assert any("auto" in name for name in plain)
    assert all("auto" not in name for name in hinted)
    thinking = replace(silent, abilities=Abilities(reasoning=True))
    assert not any(fault_hint(thinking, c) for c in standard_canaries(0, tools=True))


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


def test_groups() -> None:
    """Each group with runs has its pass rate, and all runs together have one."""
    record = QualityRecord(
        groups={
            "tools": PassRate(group="tools", runs="1100", lost_unix_s=5.0, fault="no JSON"),
            "own:a": PassRate(group="own:a"),
            "schema": PassRate(group="schema", runs="1"),
        }
    )
    report = quality_report("genesis", record, last_round_unix_s=9.0, unanswered="")
    assert report == QualityReport(
        profile="genesis",
        groups=(
            GroupQuality(
                group="schema",
                subject="answers by a JSON schema",
                runs=1,
                pass_rate=1.0,
                baseline=0.98,
                lost_unix_s=None,
                fault="",
            ),
            GroupQuality(
                group="tools",
                subject="tool calls",
                runs=4,
                pass_rate=0.5,
                baseline=0.98,
                lost_unix_s=5.0,
                fault="no JSON",
            ),
        ),
        pass_rate=0.6,
        last_round_unix_s=9.0,
    )


def test_trouble() -> None:
    """The trouble names what has no answer, what is refused, and what has never passed."""
    record = QualityRecord(
        unproven={"own:d": "d", "own:a": "a", "tool-auto": "no tool was called", "own:c": "c"},
        file_problems=("line 2: no JSON object", "line 3: no JSON object"),
    )
    report = quality_report("genesis", record, last_round_unix_s=None, unanswered="busy")
    assert report.pass_rate is None
    assert report.trouble == (
        "canaries get no answer: busy; canary file: line 2: no JSON object;"
        " canary a has never passed: a; canary c has never passed: c;"
        " canary d has never passed: d; 1 more have never passed"
    )
    few = QualityRecord(unproven={"own:a": "a"})
    told = quality_report("genesis", few, last_round_unix_s=None, unanswered="").trouble
    assert told == "canary a has never passed: a"
    calls = QualityRecord(unproven={"tool-auto": "no tool was called"})
    told = quality_report("genesis", calls, last_round_unix_s=None, unanswered="").trouble
    assert told == (
        "canary tool-auto has never passed: no tool was called"
        " (tools = false in the profile, if it promises none)"
    )
