"""Choice of the engine by the model's format and the programs of the box."""

from collections.abc import Mapping

import pytest

from appliance.profiles.proposing.engine_choice import EngineChoice, choose_engine
from appliance.profiles.proposing.model_facts import ModelFacts, facts_of
from appliance.profiles.proposing.proposal_box import ProposalRefusedError
from tests.fakes.proposals import LLAMA, gguf, weights

GGUF, SAFETENSORS = facts_of(gguf(LLAMA)), facts_of(weights(1))
ALL = {"llama-server": "/b/llama-server", "vllm": "/b/vllm", "sglang": "/b/sglang"}


def chosen(
    facts: ModelFacts,
    programs: Mapping[str, str],
    *,
    embedded: bool = False,
    binary: str | None = None,
    engine: str | None = None,
) -> EngineChoice:
    return choose_engine(
        facts, find_program=programs.get, has_embedded=embedded, binary=binary, engine=engine
    )


@pytest.mark.parametrize(
    ("facts", "programs", "engine", "binary", "why"),
    [
        (GGUF, ALL, "llama-server", "/b/llama-server", "a GGUF file, and /b/llama-server is here"),
        (GGUF, {}, "xllamacpp", "", "a GGUF file, and no llama-server is in PATH"),
        (SAFETENSORS, ALL, "vllm", "/b/vllm", "safetensors files, and /b/vllm is here"),
        (
            SAFETENSORS,
            {"sglang": "/b/sglang"},
            "sglang",
            "/b/sglang",
            "safetensors files, and /b/sglang is here (vllm is not in PATH)",
        ),
    ],
)
def test_what_the_box_has(
    facts: ModelFacts, programs: Mapping[str, str], engine: str, binary: str, why: str
) -> None:
    """GGUF goes to llama-server, else to the embedded engine; safetensors to vLLM, else to SGLang."""
    found = chosen(facts, programs, embedded=True)
    assert found == EngineChoice(engine=engine, binary=binary, why=why)


def test_a_program_that_is_named() -> None:
    """A program of a person's goes before those in PATH, and its name says which engine it is."""
    assert chosen(GGUF, ALL, binary="/x/llama-server").binary == "/x/llama-server"
    assert chosen(SAFETENSORS, ALL, binary="/x/sglang").engine == "sglang"
    assert chosen(SAFETENSORS, ALL, binary="/x/python").engine == "vllm"


def test_an_engine_that_is_named() -> None:
    """An engine of a person's is taken where it reads the format."""
    assert chosen(SAFETENSORS, ALL, engine="sglang").binary == "/b/sglang"
    assert chosen(GGUF, ALL, engine="xllamacpp", embedded=True).engine == "xllamacpp"
    assert chosen(GGUF, ALL, engine="xllamacpp", embedded=True, binary="/x").engine == "xllamacpp"
    with pytest.raises(ProposalRefusedError, match="for vllm, but for llama-server or xllamacpp"):
        chosen(GGUF, ALL, engine="vllm")


def test_nothing_that_serves_the_format() -> None:
    """Without an engine for the format the refusal says which programs would do."""
    with pytest.raises(ProposalRefusedError, match="no vllm or sglang: install it; --set binary"):
        chosen(SAFETENSORS, {}, embedded=True)
    with pytest.raises(ProposalRefusedError, match="no llama-server"):
        chosen(GGUF, {})
    with pytest.raises(ProposalRefusedError, match="this box has no embedded engine"):
        chosen(GGUF, {}, engine="xllamacpp")
