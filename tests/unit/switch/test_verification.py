"""Verification: declared and reported facts, and where a model is."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.memory import GroupMemory, Holder
from appliance.model.names import unit_of
from appliance.model.running_facts import DeclaredFact, ReportedFact, SelfDescription, Topic
from appliance.switch.preflight_facts import BoxFacts
from appliance.switch.verification import compare, declared_facts, misplaced, patch_facts, unlocked
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.profiles import applied

PATCH = '[patch]\ncommand = ["/opt/patch"]\nexpect = ["P4 TurboQuant hybrid", "GUARD"]\n'
GUARD = "GUARD"
P4 = "P4 TurboQuant hybrid"


def facts(engine: str, keys: str = "") -> dict[tuple[Topic, str], DeclaredFact]:
    """Facts of the shortest profile with more keys, by topic and subject."""
    found = declared_facts(parse_profile("x", (MINIMAL[engine] + keys).encode()))
    assert len({(one.topic, one.subject) for one in found}) == len(found)
    return {(one.topic, one.subject): one for one in found}


@pytest.mark.parametrize("engine", MINIMAL)
def test_each_fact_can_be_compared(engine: str) -> None:
    """Every declared fact has words or a range, and a key that declares it."""
    for fact in facts(engine, PATCH).values():
        assert fact.words or (fact.least, fact.most) != (None, None)
        assert fact.key
        assert fact.text


def test_patches_are_declared() -> None:
    """Each expected patch is a fact of its own."""
    found = facts("vllm", PATCH)
    assert {subject for topic, subject in found if topic is Topic.PATCH} == {P4, GUARD}


def test_an_allowed_mismatch_fails_nothing() -> None:
    """Topics in allow_mismatch are told and fail nothing; others still do."""
    found = facts("llama-server", 'ctx = 4096\nallow_mismatch = ["ctx"]\n')
    assert not found[Topic.CONTEXT, ""].fails
    assert found[Topic.SLOTS, ""].fails


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([f"{P4}: applied"], {P4: "applied"}),
        ([f"{P4}: applied", f"{P4}: skipped"], {P4: "not applied"}),
        (["nothing of that kind"], {}),
        ([f"{GUARD} not applied", f"Applied {GUARD}"], {GUARD: "applied"}),
    ],
)
def test_the_log_tells_of_patches(lines: list[str], words: dict[str, str]) -> None:
    """The last line on a patch says whether it is applied; a patch without a line is unknown."""
    declared = tuple(facts("vllm", PATCH).values())
    assert {one.subject: one.text for one in patch_facts(declared, lines)} == words


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
ALL_LAYERS = declared(words=("all",))
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
        (ALL_LAYERS, reported(words=("none",)), "differs"),
        (ALL_LAYERS, reported(words=("all",), number=65, is_all=True), "agrees"),
        (ALL_LAYERS, reported(words=(), number=64), "unknown"),
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
    wanted = (EXACT, ATLEAST, ALL_LAYERS)
    found = compare(wanted, SelfDescription(facts=tuple(facts)))
    states = [one.declared for one in (*found.agreeing, *found.mismatches)] + [*found.unknown]
    assert sorted(map(id, states)) == sorted(map(id, wanted))


GIB = 1 << 30
MIB = 1 << 20
ALL = applied("a", "gpu-all")
RIGHT = applied("a", "gpu-1")
SHARED = replace(applied("a"), gpus=(1,))
MINI = replace(applied("mini", "cpu"), locks_memory=True)
SPLIT = replace(applied("split", "gpu-0"), locks_memory=True)


def on(*units: str) -> Sequence[Holder]:
    return [Holder(pid=1, held_bytes=1, comm="x", user="x", unit=unit) for unit in units]


def box(holders: Mapping[int, Sequence[Holder]]) -> BoxFacts:
    return BoxFacts(
        ram_total_bytes=GIB, devices=by_index(*(card(i, holders.get(i)) for i in (0, 1)))
    )


OWN = unit_of("a")


@pytest.mark.parametrize(
    ("profile", "holders", "problem"),
    [
        (ALL, {0: on(OWN), 1: on()}, None),
        (ALL, {0: on(), 1: on()}, "on no GPU"),
        (ALL, {0: on("other.service"), 1: on()}, "on no GPU"),
        (RIGHT, {0: on("other.service"), 1: on(OWN)}, None),
        (RIGHT, {0: on(OWN), 1: on(OWN)}, "on GPU 0, which its profile does not list"),
        (SHARED, {0: on(), 1: on()}, "on no GPU"),
        (RIGHT, {0: on(OWN)}, None),
        (RIGHT, {}, None),
        (MINI, {0: on(), 1: on()}, None),
    ],
)
def test_model_on_the_wrong_device(
    profile: object, holders: Mapping[int, Sequence[Holder]], problem: str | None
) -> None:
    """Said only where every GPU's processes are known."""
    assert isinstance(profile, type(ALL))
    said = misplaced(profile, box(holders))
    assert said == problem if problem is None or said is None else problem in said


def group(resident: int, locked: int) -> GroupMemory:
    return GroupMemory(resident_bytes=resident, locked_bytes=locked, pinned_bytes=locked, pids=(1,))


@pytest.mark.parametrize(
    ("resident", "locked", "model", "amount"),
    [
        (20 * GIB, 0, 18 * GIB, "0.0 of 18.0 GiB"),
        (20 * GIB, 18 * GIB, 18 * GIB, None),
        (40 * GIB, 18 * GIB, 18 * GIB, None),
        (20 * GIB, 8 * GIB, 18 * GIB, "8.0 of 18.0 GiB"),
        (4 * GIB, 3 * GIB, 18 * GIB, None),
        (20 * GIB, 8 * MIB, None, "0.0 of 20.0 GiB"),
        (20 * GIB, 500 * MIB, None, None),
        (4 * MIB, 0, None, None),
        (0, 0, 18 * GIB, None),
    ],
)
def test_model_that_is_not_locked(
    resident: int, locked: int, model: int | None, amount: str | None
) -> None:
    """Far less locked than the model's file that is in memory; unknown files are given room."""
    said = unlocked(MINI, group(resident, locked), model_bytes=model)
    assert said is None if amount is None else said is not None
    if said is not None:
        assert f"mini answers, but its memory is not locked ({amount})" in said
        assert "LimitMEMLOCK" in said


def test_model_that_is_partly_on_gpus() -> None:
    """The part of the file in main memory is not known: only a refusal is reported."""
    some, none = group(20 * GIB, GIB), group(20 * GIB, 64 << 10)
    assert unlocked(SPLIT, some, model_bytes=18 * GIB) is None
    assert unlocked(SPLIT, none, model_bytes=18 * GIB) is not None


def test_memory_that_need_not_be_locked() -> None:
    """No profile that does not lock, or is without figures, is reported."""
    assert unlocked(ALL, group(GIB, 0), model_bytes=GIB) is None
    assert unlocked(MINI, None, model_bytes=GIB) is None
