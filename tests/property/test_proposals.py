"""Proposals for random models and boxes: what is proposed is a valid profile, and fits by the gate's own rule."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from appliance.model.memory import HostMemory
from appliance.model.model_headers import Gguf, Model, Tensor, Value
from appliance.profiles.proposing.engine_choice import EngineChoice
from appliance.profiles.proposing.fit_judge import ProposalBox, ProposalRefusedError
from appliance.profiles.proposing.proposal import Proposal
from appliance.switch.memory.fit import shortfalls
from appliance.switch.memory.requirement import MemoryRequirement
from tests.fakes.proposals import (
    EMBEDDED,
    GIB,
    LLAMA_SERVER,
    MIB,
    SGLANG,
    VLLM,
    box,
    judge_of,
    proposed,
    read,
    weights,
)

ARCHITECTURES = ("llama", "gemma3", "gpt-oss", "qwen35moe", "deepseek2", "new-model")


@st.composite
def headers(draw: st.DrawFn) -> Model:
    """Draw the header of a model: its layers, its heads, experts, windows and what it was made for."""
    name = draw(st.sampled_from(ARCHITECTURES))
    layers = draw(st.integers(1, 12))
    keys: dict[str, Value] = {
        "block_count": layers,
        "embedding_length": draw(st.sampled_from([512, 4096])),
        "attention.head_count": 8,
        "attention.head_count_kv": draw(st.integers(1, 8)),
        "attention.key_length": 128,
        "attention.value_length": 128,
        "attention.sliding_window": draw(st.sampled_from([128, 1024])),
        "feed_forward_length": 8192,
        "vocab_size": 128_000,
    }
    trained = draw(st.sampled_from([0, 2048, 32_768, 131_072, 262_144]))
    if trained:
        keys["context_length"] = trained
    if draw(st.booleans()) and layers > 1:
        keys["nextn_predict_layers"] = 1
    pooling = draw(st.sampled_from([None, None, None, 1, 4]))
    if pooling is not None:
        keys["pooling_type"] = pooling
    sizes = st.integers(1, 4 * GIB)
    tensors = [Tensor("token_embd.weight", draw(sizes))]
    has_experts = draw(st.booleans())
    for layer in range(layers):
        tensors.append(Tensor(f"blk.{layer}.attn_q.weight", draw(sizes)))
        if has_experts:
            tensors.append(Tensor(f"blk.{layer}.ffn_up_exps.weight", draw(sizes)))
    metadata: dict[str, Value] = {"general.architecture": name}
    metadata |= {f"{name}.{key}": value for key, value in keys.items()}
    return Model(main=Gguf(metadata=metadata, tensors=tuple(tensors), file_bytes=1 << 30))


BOXES = st.builds(
    lambda gpus, ram: box(*gpus, ram_gib=ram),
    st.lists(st.sampled_from([2, 8, 16, 24, 80]), max_size=3),
    st.sampled_from([4, 16, 64, 256]),
)
TOKENS = st.one_of(st.none(), st.integers(16, 300_000))


def found(
    model: Model, here: ProposalBox, choice: EngineChoice, tokens: int | None
) -> Proposal | None:
    try:
        return proposed(model, here, choice, tokens)
    except ProposalRefusedError:
        return None


def check(proposal: Proposal, model: Model, here: ProposalBox) -> None:
    """Check a proposal by its keys alone: a valid profile, whose estimate the gate's rule admits when declared."""
    profile = read("p", proposal.keys)
    assert profile == proposal.judged.profile
    judged = judge_of(here, model).judged(profile)
    assert judged.fits
    applied = judged.applied
    estimate = applied.estimate
    assert estimate is not None
    needed = MemoryRequirement(
        ram_bytes=estimate.ram_bytes,
        vram_bytes=estimate.vram_bytes if applied.gpus else None,
        gpus=() if not applied.gpus else proposal.plan.gpus,
        split=applied.gpu_split,
        margin_bytes=0 if applied.vram_fraction else here.margin_bytes,
    )
    assert list(shortfalls(needed, here.devices, here.host)) == []


@given(headers(), BOXES, st.sampled_from([LLAMA_SERVER, LLAMA_SERVER, EMBEDDED]), TOKENS)
def test_what_is_proposed_is_valid_and_fits(
    model: Model, here: ProposalBox, choice: EngineChoice, tokens: int | None
) -> None:
    """A proposal of a GGUF model is read as it was judged, fits, and has the context that was asked for."""
    proposal = found(model, here, choice, tokens)
    if proposal is not None:
        check(proposal, model, here)
        assert tokens is None or proposal.plan.tokens == tokens


@given(st.floats(0.1, 60), BOXES, st.sampled_from([VLLM, SGLANG]), TOKENS)
def test_what_is_proposed_for_safetensors_is_valid_and_fits(
    size_gib: float, here: ProposalBox, choice: EngineChoice, tokens: int | None
) -> None:
    """A proposal of a safetensors model fits, too: its share is free, and holds the estimate."""
    model = weights(size_gib)
    proposal = found(model, here, choice, tokens)
    if proposal is not None:
        check(proposal, model, here)


@given(headers(), st.integers(1, 3), st.integers(2, 40), st.integers(0, 40), st.integers(4, 64))
def test_more_gpu_memory_never_makes_a_context_smaller(
    model: Model, count: int, size_gib: int, more_gib: int, ram_gib: int
) -> None:
    """Larger GPUs never get a smaller context, and are never refused what smaller ones hold."""
    small = found(model, box(*[size_gib] * count, ram_gib=ram_gib), LLAMA_SERVER, None)
    large = found(model, box(*[size_gib + more_gib] * count, ram_gib=ram_gib), LLAMA_SERVER, None)
    if small is not None:
        assert large is not None
        assert large.plan.tokens >= small.plan.tokens


@given(headers(), st.integers(1, 2), st.integers(2, 24), st.integers(0, 24))
def test_more_main_memory_never_makes_a_context_smaller(
    model: Model, count: int, size_gib: int, more_gib: int
) -> None:
    """The same holds for main memory."""
    here = box(*[size_gib] * count, ram_gib=8)
    host = HostMemory(total_bytes=64 * GIB, available_bytes=here.host.available_bytes)
    bigger = replace(host, available_bytes=host.available_bytes + more_gib * GIB + MIB)
    small = found(model, replace(here, host=host), LLAMA_SERVER, None)
    large = found(model, replace(here, host=bigger), LLAMA_SERVER, None)
    if small is not None:
        assert large is not None
        assert large.plan.tokens >= small.plan.tokens
