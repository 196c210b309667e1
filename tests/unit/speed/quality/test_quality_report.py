"""The report of a profile's quality."""

from appliance.speed.quality.pass_rate import PassRate
from appliance.speed.quality.quality_record import QualityRecord
from appliance.speed.quality.quality_report import GroupQuality, QualityReport, quality_report


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
