"""Comparison of declared facts with reported ones: equal, different, unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.running_facts import DeclaredFact, ReportedFact, SelfDescription, Topic
from appliance.switch.verification.fact_comparison import compare


def declared(**values: object) -> DeclaredFact:
    """A fact on the context, declared by the key ctx."""
    return DeclaredFact(**{"topic": Topic.CONTEXT, "key": "ctx", "text": "4096", **values})  # type: ignore[arg-type]


def reported(**values: object) -> ReportedFact:
    """A fact on the context, reported by a page."""
    return ReportedFact(
        **{"topic": Topic.CONTEXT, "source": "/props n_ctx", "text": "x", **values}  # type: ignore[arg-type]
    )


EXACT = declared(least=4096, most=4096)
ATLEAST = declared(least=4096)
ATMOST = declared(most=4096)
ALL = declared(words=("all",))
LAYERS = declared(least=99, most=99)


@pytest.mark.parametrize(
    ("fact", "told", "state"),
    [
        (EXACT, reported(number=4096), "agrees"),
        (EXACT, reported(number=2048), "differs"),
        (EXACT, reported(number=8192), "differs"),
        (EXACT, reported(words=("many",)), "unknown"),
        (EXACT, reported(), "unknown"),
        (ATLEAST, reported(number=1 << 40), "agrees"),
        (ATLEAST, reported(number=0), "differs"),
        (ATMOST, reported(number=0), "agrees"),
        (ATMOST, reported(number=4097), "differs"),
        (ALL, reported(words=("none",)), "differs"),
        (ALL, reported(words=("all",), number=65, is_all=True), "agrees"),
        (ALL, reported(words=(), number=64), "unknown"),
        (LAYERS, reported(words=("all",), number=65, is_all=True), "agrees"),
        (LAYERS, reported(number=64), "differs"),
        (LAYERS, reported(number=100, is_all=True), "differs"),
        (EXACT, reported(topic=Topic.SLOTS, number=1), "unknown"),
        (EXACT, reported(subject="other", number=1), "unknown"),
    ],
)
def test_a_fact_agrees_differs_or_is_unknown(
    fact: DeclaredFact, told: ReportedFact, state: str
) -> None:
    """Numbers agree within the declared range, words when they share one; nothing else compares."""
    found = compare((fact,), SelfDescription(facts=(told,)))
    sorted_out = {
        "agrees": [one.declared for one in found.agreeing],
        "differs": [one.declared for one in found.mismatches],
        "unknown": list(found.unknown),
    }
    assert sorted_out.pop(state) == [fact]
    assert not any(sorted_out.values())


def test_each_source_has_to_agree() -> None:
    """Of two sources on one fact the one that differs is named."""
    pages = (reported(number=4096), reported(number=2048, source="log"))
    (found,) = compare((EXACT,), SelfDescription(facts=pages)).failing
    assert found.reported.source == "log"


def test_a_fact_that_fails_nothing_is_tolerated() -> None:
    """A mismatch on a fact that fails nothing is kept apart, and comes last among all."""
    soft = declared(least=1, most=1, fails=False)
    found = compare((soft, EXACT), SelfDescription(facts=(reported(number=7),)))
    assert [one.declared for one in found.tolerated] == [soft]
    assert [one.declared for one in found.mismatches] == [EXACT, soft]


def test_faults_are_passed_on() -> None:
    """Faults of pages are part of the result."""
    told = SelfDescription(faults=("/props is not answered",))
    assert compare((EXACT,), told).faults == ("/props is not answered",)


FACTS = st.builds(
    reported,
    number=st.none() | st.integers(),
    words=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    topic=st.sampled_from(Topic),
    is_all=st.booleans(),
)


@given(st.lists(FACTS, max_size=20))
def test_every_declared_fact_has_one_state(facts: list[ReportedFact]) -> None:
    """Each declared fact is in exactly one state for any report."""
    wanted = (EXACT, ATLEAST, ALL)
    found = compare(wanted, SelfDescription(facts=tuple(facts)))
    states = [one.declared for one in (*found.agreeing, *found.mismatches)] + [*found.unknown]
    assert sorted(map(id, states)) == sorted(map(id, wanted))
