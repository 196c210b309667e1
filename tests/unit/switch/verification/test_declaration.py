"""Declaration of a profile: facts of its engine, patches, and what may differ."""

import pytest

from appliance.model.running_facts import DeclaredFact, Topic
from appliance.switch.verification.declaration import declared_facts, patch_facts
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL

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
