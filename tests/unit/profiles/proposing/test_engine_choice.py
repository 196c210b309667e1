"""Choice of the engine by the facts of the model and the programs of the box."""

from collections.abc import Mapping

import pytest

from appliance.model.model_headers import Gguf, Model, Tensor, Value
from appliance.profiles.proposing.engine_choice import (
    EngineChoice,
    ModelFacts,
    ModelTask,
    choose_engine,
    facts_of,
)
from appliance.profiles.proposing.fit_judge import ProposalRefusedError
from tests.fakes.proposals import LLAMA, MIB, gguf, known, weights

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


def test_facts_of_a_gguf_file() -> None:
    """Layers, experts, layers that draft, and the context come from the header."""
    facts = facts_of(known("Qwen3.6-35B-A3B"))
    assert (facts.architecture, facts.is_known, facts.blocks) == ("qwen35moe", True, 41)
    assert facts.experts == tuple(range(41))
    assert facts.drafts
    assert (facts.trained_tokens, facts.task) == (131072, ModelTask.GENERATE)
    assert facts_of(gguf(LLAMA)).experts == ()


def test_facts_of_safetensors() -> None:
    """The dimensions come from config.json; a model with modules of sentence-transformers embeds."""
    facts = facts_of(weights(1))
    assert (facts.architecture, facts.blocks, facts.heads) == ("qwen3", 36, 32)
    assert facts.trained_tokens == 131072
    assert facts_of(weights(1, pools=True)).task is ModelTask.EMBED


@pytest.mark.parametrize(
    ("architecture", "pooling", "task"),
    [
        ("llama", 0, ModelTask.GENERATE),
        ("llama", 3, ModelTask.EMBED),
        ("llama", 4, ModelTask.RANK),
        ("bert", 2, ModelTask.EMBED),
        ("bert", None, ModelTask.EMBED),
    ],
)
def test_the_task_of_a_gguf_file(architecture: str, pooling: int | None, task: ModelTask) -> None:
    """A pooling type, or an architecture of encoders, says that a model embeds or ranks."""
    keys: dict[str, Value] = {k.replace("llama", architecture): v for k, v in LLAMA.items()}
    if pooling is not None:
        keys[f"{architecture}.pooling_type"] = pooling
    assert facts_of(gguf(keys, architecture=architecture)).task is task


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"general.architecture": "clip"}, "the file is a projector, not a model"),
        ({"general.type": "adapter"}, "the file is an adapter, not a model"),
        ({"general.type": "imatrix"}, "statistics for quantising"),
        ({}, "names no architecture"),
        ({"general.architecture": "llama"}, "does not say llama.block_count"),
        ({**LLAMA, "general.architecture": "llama", "llama.block_count": 600}, "600 layers"),
        ({**LLAMA, "general.architecture": "llama", "llama.block_count": -1}, "makes no sense"),
    ],
)
def test_files_that_are_no_model(metadata: dict[str, Value], text: str) -> None:
    """A projector, an adapter and a header that makes no sense are each refused in their own words."""
    model = Model(main=Gguf(metadata=metadata, tensors=(), file_bytes=1))
    with pytest.raises(ProposalRefusedError, match=text):
        facts_of(model)


def test_headers_that_would_take_long_are_refused() -> None:
    """The work for a header is bounded: neither tensors nor layers without end are estimated."""
    tensors = tuple(Tensor(f"blk.0.{number}", MIB) for number in range(5000))
    metadata: dict[str, Value] = {"general.architecture": "llama", **LLAMA}
    with pytest.raises(ProposalRefusedError, match="5,000 tensors and 4 layers"):
        facts_of(Model(main=Gguf(metadata=metadata, tensors=tensors, file_bytes=1)))
    with pytest.raises(ProposalRefusedError, match="4,000 layers"):
        facts_of(weights(1, num_hidden_layers=4000))
    with pytest.raises(ProposalRefusedError, match="does not say num_hidden_layers"):
        facts_of(weights(1, num_hidden_layers=None))
