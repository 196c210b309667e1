"""Sentences on a verification, and its rows."""

import pytest

from appliance.model.running_facts import DeclaredFact, ReportedFact, SelfDescription, Topic
from appliance.model.status import VerificationRow
from appliance.status.verification import (
    difference_note,
    differences,
    failure_text,
    phase_text,
    verification_row,
)
from appliance.switch.verification import compare

CONTEXT = DeclaredFact(topic=Topic.CONTEXT, key="ctx", text="4096", least=4096, most=4096)
DRAFTS = DeclaredFact(
    topic=Topic.DRAFTS, key="speculative", text="off", words=("off",), fails=False
)
PATCH = DeclaredFact(
    topic=Topic.PATCH, key="patch.expect", text="applied", words=("applied",), subject="P4"
)
HALF = ReportedFact(topic=Topic.CONTEXT, source="/props n_ctx", text="2048", number=2048)
WHOLE = ReportedFact(topic=Topic.CONTEXT, source="/props n_ctx", text="4096", number=4096)
ON = ReportedFact(topic=Topic.DRAFTS, source="/slots speculative", text="on", words=("on",))
SAID = "context per request 4096 declared (ctx), 2048 reported (/props n_ctx)"
SOFT = "speculative decoding off declared (speculative), on reported (/slots speculative)"


def row(
    *facts: ReportedFact, declared: tuple[DeclaredFact, ...] = (CONTEXT, DRAFTS, PATCH)
) -> VerificationRow:
    """The row of a comparison with what was reported."""
    told = SelfDescription(facts=facts, faults=() if facts else ("/props is not answered",))
    return verification_row(compare(declared, told), at_unix_s=7.0)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            row(WHOLE),
            "x: 1 fact agrees; not reported: speculative decoding and patch P4",
        ),
        (row(HALF, declared=(CONTEXT,)), f"x: 0 facts agree; {SAID}"),
        (row(), "x: the engine reports nothing about itself; /props is not answered"),
        (row(declared=()), "x: nothing to compare; /props is not answered"),
    ],
)
def test_the_phase_says_what_was_compared(found: VerificationRow, text: str) -> None:
    """The text counts what agrees, has both values of what differs, and names what is unknown."""
    assert phase_text("x", found) == text


def test_a_failure_names_what_the_profile_does_not_allow() -> None:
    """The reason of a roll-back has the failing facts alone, the note of the status all."""
    found = row(HALF, ON)
    assert failure_text("x", found) == f"x runs otherwise than declared: {SAID}"
    assert difference_note(found) == f"runs otherwise than declared: {SAID}; {SOFT}"
    assert [fact.fails for fact in differences(found)] == [True, False]


def test_agreement_says_nothing() -> None:
    """Without a difference there is neither a failure nor a note; without a row neither."""
    assert (
        failure_text("x", row(WHOLE)) == difference_note(row(WHOLE)) == difference_note(None) == ""
    )
