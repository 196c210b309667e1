"""Report of patches: lines that prove that a patch was applied."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.patch_report import missing

P4 = "P4 TurboQuant hybrid"


@pytest.mark.parametrize(
    "output",
    [
        "P4 TurboQuant hybrid: applied",
        "[patch] Applied P4 TurboQuant hybrid to model_runner.py",
        "P4 TurboQuant hybrid already applied",
        "P4 TurboQuant hybrid applied (3 anchors, 0 skipped, no errors, failed: 0)",
        "P4 TurboQuant hybrid: anchor 2 skipped\nP4 TurboQuant hybrid: applied",
        "P4 TurboQuant hybrid not applied\nretry\nP4 TurboQuant hybrid APPLIED",
        "noise\n  P4 TurboQuant hybrid  ... applied\nnoise",
    ],
)
def test_a_line_that_reports_it_as_applied_is_proof(output: str) -> None:
    """A line with the expectation and the word applied proves it, unless it is denied."""
    assert missing(output.splitlines(), [P4]) == []


@pytest.mark.parametrize(
    "output",
    [
        "",
        "P4 TurboQuant hybrid",
        "applied",
        "P4 TurboQuant hybrid: not applied",
        "P4 TurboQuant hybrid: NOT APPLIED",
        "P4 TurboQuant hybrid: unapplied",
        "P4 TurboQuant hybrid skipped, anchors applied elsewhere",
        "P4 TurboQuant hybrid failed to be applied",
        "P4 TurboQuant hybrid isn't applied",
        "P4 TurboQuant hybrid could not be applied",
        "P4 TurboQuant hybrid would be applied (dry run)",
        "P4 TurboQuant hybrid: applied=False",
        "P4 TurboQuant hybrid: 0 hunks applied",
        "P4 TurboQuant hybrid: applied\nP4 TurboQuant hybrid: FAILED, reverted",
        "P4 TurboQuant hybrids applied",
        "XP4 TurboQuant hybrid applied",
        "p4 turboquant hybrid applied",
        "misapplied P4 TurboQuant hybrid",
    ],
)
def test_anything_else_is_no_proof(output: str) -> None:
    """Silence, a denial, a skip or another patch's name proves nothing."""
    assert missing(output.splitlines(), [P4]) == [P4]


def test_what_is_missing_keeps_its_order() -> None:
    """Only the expectations without proof are named, in the profile's order."""
    lines = ["B applied", "D: skipped"]
    assert missing(lines, ["D", "B", "C", "A"]) == ["D", "C", "A"]


def test_the_name_of_a_patch_is_no_verdict() -> None:
    """A patch whose own name sounds like a failure can be proved."""
    assert missing(["failed-load guard: applied"], ["failed-load guard"]) == []
    assert missing(["applied guard: found"], ["applied guard"]) == ["applied guard"]


@given(st.lists(st.text()), st.text(min_size=1))
def test_no_output_breaks_the_reading(lines: list[str], expectation: str) -> None:
    """Any text is read without an error."""
    assert missing(lines, [expectation]) in ([], [expectation])
