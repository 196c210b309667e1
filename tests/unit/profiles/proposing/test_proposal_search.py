"""Proposals: known models on common boxes, and the order in which settings are tried."""

from dataclasses import replace

import pytest

from appliance.model.model_headers import Model
from appliance.profiles.linting.header_traits import traits_of
from appliance.profiles.linting.lint import profile_traps
from appliance.profiles.linting.trap import LintFacts
from appliance.profiles.proposing.engine_choice import EngineChoice
from appliance.profiles.proposing.proposal_box import ProposalBox, ProposalRefusedError
from appliance.profiles.proposing.proposal_search import LEAST_TOKENS, USEFUL_TOKENS
from tests.fakes.proposals import (
    EMBEDDED,
    LLAMA,
    MIB,
    SGLANG,
    VLLM,
    box,
    gguf,
    known,
    proposed,
    weights,
)

K = 1024
ONE_16, ONE_24, TWO_24, CPU = box(16), box(24), box(24, 24), box(ram_gib=32)
SMALL = gguf(LLAMA)


@pytest.mark.parametrize(
    ("name", "here", "plan"),
    [
        # Model, box: GPUs, context, cache, layers in RAM, layers with experts in RAM.
        ("Qwen3.6-35B-A3B", ONE_16, ([0], 32 * K, "f16", 0, 13)),
        ("Qwen3.6-35B-A3B", ONE_24, ([0], 128 * K, "f16", 0, 0)),
        ("Qwen3.6-35B-A3B", CPU, ([], 32 * K, "f16", 0, 0)),
        ("Gemma-4-26B-A4B", ONE_16, ([0], 32 * K, "f16", 0, 3)),
        ("Gemma-4-26B-A4B", ONE_24, ([0], 128 * K, "f16", 0, 0)),
        ("GLM-4.7-Flash", ONE_24, ([0], 128 * K, "q8_0", 0, 0)),
        ("GLM-4.7-Flash", TWO_24, ([0, 1], 128 * K, "f16", 0, 0)),
        ("gpt-oss-20b", ONE_16, ([0], 128 * K, "f16", 0, 0)),
        ("gpt-oss-120b", ONE_16, ([0], 32 * K, "f16", 0, 30)),
        ("gpt-oss-120b", TWO_24, ([0, 1], 32 * K, "f16", 0, 9)),
        ("Qwen3.6-27B", ONE_16, ([0], 8 * K, "f16", 6, 0)),
        ("Qwen3.6-27B", ONE_24, ([0], 128 * K, "q8_0", 0, 0)),
        ("Gemma-3-27B", ONE_16, ([0], 8 * K, "f16", 7, 0)),
        ("Gemma-3-27B", CPU, ([], 32 * K, "f16", 0, 0)),
        ("Qwen3-32B", ONE_24, ([0], 32 * K, "q8_0", 0, 0)),
        ("Llama-3.3-70B", TWO_24, ([0, 1], 32 * K, "q8_0", 0, 0)),
        ("Llama-3.1-8B", TWO_24, ([0], 128 * K, "f16", 0, 0)),
    ],
)
def test_known_models_on_common_boxes(
    name: str, here: ProposalBox, plan: tuple[list[int], int, str, int, int]
) -> None:
    """Models that people have get the settings that people find by hand."""
    found = proposed(known(name), here).plan
    got = (
        list(found.gpus),
        found.tokens,
        found.cache,
        found.layers_in_ram,
        len(found.experts_in_ram),
    )
    assert got == plan


@pytest.mark.parametrize(
    ("name", "here", "text"),
    [
        (
            "gpt-oss-120b",
            CPU,
            "needs ≥ 59.3 GiB, and this box has 28.0 GiB of RAM: choose a smaller quantisation",
        ),
        ("Qwen3-235B-A22B", TWO_24, "needs ≥ 133.0 GiB, and this box has 47.4 GiB on GPUs and"),
        ("Llama-3.3-70B", CPU, "needs ≥ 41.3 GiB"),
    ],
)
def test_a_model_that_is_too_large_is_refused_with_figures(
    name: str, here: ProposalBox, text: str
) -> None:
    """The refusal has what the model needs at least, and what the box has."""
    with pytest.raises(ProposalRefusedError) as refused:
        proposed(known(name), here)
    assert text in str(refused.value)


def test_a_context_that_is_asked_for_goes_before_speed() -> None:
    """With a context of a person's more experts stay in RAM, and layers and the CPU count at any size."""
    model = known("Qwen3.6-35B-A3B")
    asked = proposed(model, ONE_16, tokens=128 * K).plan
    assert (asked.tokens, len(asked.experts_in_ram)) == (128 * K, 17)
    assert proposed(known("Llama-3.3-70B"), ONE_24, tokens=16 * K).plan.layers_in_ram > 37
    assert proposed(model, CPU, tokens=128 * K).plan.tokens == 128 * K
    assert proposed(model, box(1), tokens=4 * K).plan.gpus == ()


def test_a_context_that_does_not_fit_names_one_that_does() -> None:
    """The refusal of a context that is asked for ends with the largest that would be proposed."""
    with pytest.raises(ProposalRefusedError, match=r"--ctx 32768 fits\Z"):
        proposed(known("Llama-3.1-8B"), box(ram_gib=12), tokens=1024 * K)
    with pytest.raises(ProposalRefusedError, match=r"choose a smaller quantisation\Z"):
        proposed(known("Llama-3.3-70B"), CPU, tokens=4 * K)


def test_experts_of_several_gpus_are_spread_over_their_layers() -> None:
    """Each GPU has a run of layers: those whose experts stay in RAM are as far apart as they can be."""
    plan = proposed(known("gpt-oss-120b"), TWO_24).plan
    assert plan.experts_in_ram == (0, 4, 8, 12, 16, 20, 24, 28, 32)
    assert proposed(known("gpt-oss-120b"), ONE_24).plan.experts_in_ram == tuple(range(24))


def test_a_gpu_in_use_is_left_alone() -> None:
    """Where one of two GPUs is full, the other takes the model, with experts in RAM."""
    here = box(16, 16)
    full = replace(here.devices[1], free_bytes=MIB)
    plan = proposed(known("Qwen3.6-35B-A3B"), replace(here, devices=(here.devices[0], full))).plan
    assert (plan.gpus, len(plan.experts_in_ram)) == ((0,), 13)


def test_requests_and_prompt_cache_take_what_is_left() -> None:
    """Room beside the whole context is for more requests at once, and RAM for earlier prompts."""
    assert proposed(SMALL, ONE_24).plan.parallel == 4
    assert proposed(known("gpt-oss-20b"), ONE_24).plan.parallel == 2
    assert proposed(known("Llama-3.1-8B"), CPU).plan.parallel == 1
    caches = [proposed(SMALL, box(ram_gib=size)).plan.prompt_cache for size in (32, 12, 6.5)]
    assert caches == ["8GiB", "2GiB", "0"]
    assert proposed(SMALL, ONE_24).plan.prompt_cache == ""


def test_checkpoints_are_fewer_where_ram_is_short() -> None:
    """A model with windows keeps fewer checkpoints before its context is made smaller."""
    plan = proposed(known("Gemma-3-27B"), CPU).plan
    assert plan.checkpoints == 8
    assert proposed(known("Gemma-3-27B"), box(ram_gib=24.5)).plan.checkpoints == 2


def test_a_model_that_embeds_runs_beside_others() -> None:
    """A small model for embeddings claims nothing; a large one has a GPU, and reads a text in one batch."""
    small = gguf({**LLAMA, "llama.pooling_type": 3}, layer_bytes=64 * MIB)
    plan = proposed(small, ONE_16).plan
    assert (plan.gpus, plan.tokens, plan.claims_nothing) == ((), 8 * K, True)
    assert plan.prompt_cache == "0"
    large = gguf({**LLAMA, "llama.pooling_type": 4}, layer_bytes=900 * MIB)
    found = proposed(large, ONE_16)
    assert (found.plan.gpus, found.plan.claims_nothing, found.plan.parallel) == ((0,), False, 1)
    assert found.judged.profile.warm_up is None


def test_the_embedded_engine_has_one_place() -> None:
    """The embedded engine runs on the CPU, with a context that is small or asked for."""
    assert proposed(SMALL, ONE_16, EMBEDDED).plan.gpus == ()
    assert proposed(SMALL, ONE_16, EMBEDDED).plan.tokens == LEAST_TOKENS
    assert proposed(SMALL, ONE_16, EMBEDDED, tokens=USEFUL_TOKENS).plan.tokens == USEFUL_TOKENS
    with pytest.raises(ProposalRefusedError, match="needs ≥ 42"):
        proposed(known("Llama-3.3-70B"), CPU, EMBEDDED)
    with pytest.raises(ProposalRefusedError, match="needs ≥ "):
        proposed(known("Gemma-3-27B"), box(ram_gib=20), EMBEDDED)


@pytest.mark.parametrize(
    ("size_gib", "here", "choice", "plan"),
    [
        (8, ONE_24, VLLM, ([0], 64 * K, 1, 0.9)),
        (8, TWO_24, VLLM, ([0, 1], 128 * K, 1, 0.9)),
        (2, TWO_24, SGLANG, ([0], 128 * K, 1, 0.88)),
        (1, box(80), VLLM, ([0], 128 * K, 2, 0.9)),
    ],
)
def test_engines_on_pytorch_hold_the_whole_model(
    size_gib: float,
    here: ProposalBox,
    choice: EngineChoice,
    plan: tuple[list[int], int, int, float],
) -> None:
    """Engines on PyTorch take a share of as many GPUs as divide the attention heads."""
    found = proposed(weights(size_gib), here, choice).plan
    assert (list(found.gpus), found.tokens, found.parallel, found.share) == plan


def test_tensor_parallelism_divides_the_heads() -> None:
    """Over three GPUs a model with 32 heads goes to two."""
    plan = proposed(weights(20), box(24, 24, 24), VLLM).plan
    assert plan.gpus == (0, 1)
    with pytest.raises(ProposalRefusedError, match="choose a smaller quantisation"):
        proposed(weights(50), box(24, 24, 24), VLLM)


def test_a_share_is_what_others_leave() -> None:
    """On a GPU of which others have a part the share is smaller; none is proposed of a full one."""
    here = box(24)
    busy = replace(here.devices[0], free_bytes=here.devices[0].total_bytes // 2)
    plan = proposed(weights(4), replace(here, devices=(busy,)), VLLM).plan
    assert plan.share == 0.5
    full = replace(here.devices[0], free_bytes=MIB)
    with pytest.raises(ProposalRefusedError, match="use a GGUF file"):
        proposed(weights(4), replace(here, devices=(full,)), VLLM)


@pytest.mark.parametrize("size_gib", [30, 200])
def test_safetensors_that_do_not_fit(size_gib: float) -> None:
    """A model in safetensors files is refused with figures, and on a box without GPUs with a remedy."""
    with pytest.raises(ProposalRefusedError, match=r"needs ≥ .*: choose a smaller quantisation"):
        proposed(weights(size_gib), ONE_24, VLLM)
    with pytest.raises(ProposalRefusedError, match="the box has none that can be used"):
        proposed(weights(size_gib), CPU, VLLM)


def test_a_model_without_a_known_context() -> None:
    """Where the file does not say what it was made for, a useful context is the target."""
    silent = gguf({key: value for key, value in LLAMA.items() if "context" not in key})
    assert proposed(silent, ONE_16).plan.tokens == USEFUL_TOKENS
    short = gguf({**LLAMA, "llama.context_length": 2048})
    assert proposed(short, ONE_16).plan.tokens == 2048


def test_a_model_that_cannot_be_estimated_is_refused() -> None:
    """A header with a value that only the estimate reads and that makes no sense ends the search."""
    odd: Model = gguf({**LLAMA, "llama.attention.key_length": -4})
    with pytest.raises(ProposalRefusedError, match="cannot be estimated"):
        proposed(odd, ONE_16)


@pytest.mark.parametrize("name", ["Qwen3.6-35B-A3B", "Gemma-3-27B", "Qwen3-32B", "Llama-3.1-8B"])
def test_what_is_proposed_has_no_trap(name: str) -> None:
    """A proposal has none of the traps that lint finds in a profile and its model."""
    model = known(name)
    for here in (ONE_16, ONE_24, CPU):
        judged = proposed(model, here).judged
        facts = LintFacts(
            profile=judged.profile,
            applied=judged.applied,
            traits=traits_of(model),
            ram_bytes=here.host.total_bytes,
        )
        found = [one.trap.name for one in profile_traps(facts) if one.trap.on_gpus is None]
        assert found == []


def test_weights_that_fill_ram_are_locked() -> None:
    """On the CPU weights of half of RAM or more are locked, as the smaller are not."""
    assert proposed(known("Qwen3-32B"), CPU).plan.locks_weights
    assert not proposed(known("Llama-3.1-8B"), CPU).plan.locks_weights
