"""Weights that belong on the GPUs, from a model's header: experts on the wrong side are found."""

from collections.abc import Mapping

import pytest

from appliance.engines.shared.invocation import InvocationContext
from appliance.model.model_headers import Gguf, Model, ModelReference, Tensor, Value
from appliance.model.profile import Applied
from appliance.model.running_facts import DeclaredFact, SelfDescription, Topic
from appliance.profiles.compilation import ProfileSource, spec_of
from appliance.switch.verification import compare, log_description
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.self_reports import Settings, llama_log

GIB = 1 << 30
LAYERS = 30
EXPERTS_GIB = 0.5
DENSE_GIB = 0.05
OUTPUT_GIB = 0.4
TENSORS = (
    Tensor("token_embd.weight", int(OUTPUT_GIB * GIB)),
    Tensor("output.weight", int(OUTPUT_GIB * GIB)),
    *(Tensor(f"blk.{i}.ffn_up_exps.weight", int(EXPERTS_GIB * GIB)) for i in range(LAYERS)),
    *(Tensor(f"blk.{i}.attn_q.weight", int(DENSE_GIB * GIB)) for i in range(LAYERS)),
)
METADATA: Mapping[str, Value] = {
    "general.architecture": "qwen3moe",
    "qwen3moe.block_count": LAYERS,
    "qwen3moe.embedding_length": 2048,
    "qwen3moe.attention.head_count": 32,
    "qwen3moe.attention.head_count_kv": 4,
    "qwen3moe.context_length": 32768,
    "qwen3moe.feed_forward_length": 6144,
    "qwen3moe.vocab_size": 151936,
}


def compiled(keys: str, architecture: str = "qwen3moe") -> Applied:
    """A profile of llama-server for the model, as it is applied."""

    def look(_: ModelReference) -> Model:
        metadata: dict[str, Value] = {
            key.replace("qwen3moe", architecture): v for key, v in METADATA.items()
        }
        metadata["general.architecture"] = architecture
        gguf = Gguf(metadata=metadata, tensors=TENSORS, file_bytes=20 * GIB)
        return Model(main=gguf)

    profile = parse_profile("x", (MINIMAL["llama-server"] + keys).encode())
    source = ProfileSource(path="/etc/x.toml", sha256="0" * 64)
    return spec_of(profile, source, InvocationContext(hf_home="/var/hf"), look=look).applied


def weights(applied: Applied) -> DeclaredFact | None:
    """The declared weights on the GPUs; None: none are."""
    return next((f for f in applied.declared if f.topic is Topic.CPU_EXPERTS), None)


TABLE = "[llama-server]\n"


@pytest.mark.parametrize(
    ("keys", "on_gpus", "agrees"),
    [
        ("", LAYERS, True),
        ("", LAYERS - 4, False),
        (TABLE + 'cpu_experts = "26-29"\n', LAYERS - 4, True),
        (TABLE + 'cpu_experts = "26-29"\n', LAYERS, False),
        (TABLE + 'cpu_experts = "26-29"\n', LAYERS - 8, False),
        (TABLE + 'cpu_experts = "all"\n', 0, True),
        (TABLE + 'cpu_experts = "all"\n', 2, False),
    ],
)
def test_experts_on_the_wrong_side_are_found(keys: str, on_gpus: int, *, agrees: bool) -> None:
    """The buffers on the GPUs are as large as the header says, or the experts are elsewhere."""
    applied = compiled(keys)
    fact = weights(applied)
    assert fact is not None
    assert fact.fails
    loaded_gib = LAYERS * DENSE_GIB + on_gpus * EXPERTS_GIB + OUTPUT_GIB
    log = llama_log(Settings(model="/m.gguf", layers="31/31", gpu_weights_gib=loaded_gib))
    told = log_description(applied, log)
    found = compare((fact,), SelfDescription(facts=told.facts))
    assert bool(found.agreeing) is agrees
    assert bool(found.failing) is not agrees


def test_builds_that_keep_the_output_in_ram_agree() -> None:
    """The output may be on the GPUs or not, by the build."""
    applied = compiled("")
    fact = weights(applied)
    assert fact is not None
    log = llama_log(Settings(model="/m.gguf", gpu_weights_gib=LAYERS * (DENSE_GIB + EXPERTS_GIB)))
    assert compare((fact,), log_description(applied, log)).agreeing


@pytest.mark.parametrize(
    ("keys", "architecture"),
    [
        ("gpus = []\n", "qwen3moe"),
        (TABLE + "expert_cache_mib = 512\n", "qwen3moe"),
        ("", "no-such-architecture"),
    ],
)
def test_what_cannot_be_told_is_not_declared(keys: str, architecture: str) -> None:
    """Without GPUs, with a cache of experts, and of an unknown architecture no weights are declared."""
    assert weights(compiled(keys, architecture)) is None
