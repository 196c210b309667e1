"""Proposals: known models on common boxes, the order in which settings are tried, and the comments."""

from dataclasses import replace

import pytest

from appliance.model.model_headers import Model
from appliance.profiles.estimates.estimating import traits_of
from appliance.profiles.linting.lint import profile_traps
from appliance.profiles.linting.trap import LintFacts
from appliance.profiles.proposing.engine_choice import EngineChoice
from appliance.profiles.proposing.fit_judge import ProposalBox, ProposalRefusedError
from appliance.profiles.proposing.proposal import (
    LEAST_TOKENS,
    USEFUL_TOKENS,
    Proposal,
    fit_lines,
    proposal_lines,
    settings_text,
)
from appliance.system.profile_files.drafts import keys_text
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.proposals import (
    EMBEDDED,
    LLAMA,
    LLAMA_SERVER,
    MIB,
    SGLANG,
    VLLM,
    box,
    gguf,
    judge_of,
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


def lines_of(
    model: Model, here: ProposalBox, choice: EngineChoice = LLAMA_SERVER, tokens: int | None = None
) -> tuple[Proposal, str]:
    proposal = proposed(model, here, choice, tokens)
    return proposal, "\n".join(proposal_lines(proposal, proposal.judged, judge_of(here, model)))


def keys(proposal: Proposal) -> str:
    return keys_text(proposal.keys)


def test_a_proposal_says_what_was_chosen_and_what_more_would_cost() -> None:
    """The comments name the engine, the model, the parts, and the next larger context."""
    proposal, text = lines_of(known("Qwen3.6-35B-A3B"), box(16))
    assert text.startswith(
        "Proposed by appliance profile new: llama-server, since the model is a GGUF file.\n"
        "The model: architecture qwen35moe, 41 layers, experts in 41, made for 131,072 tokens.\n"
        "It fits this box:\n  GPU 0 ≈"
    )
    assert "\nWith ctx = 65536 it would not fit as it is:\n  GPU 0 ≈" in text
    assert "Estimated from the model's header: compute buffers guessed." in text
    assert "Its file has layers that draft" in text
    assert "n_cpu_moe = 13  # layers of 41 whose experts stay in RAM, the fewest" in keys(proposal)
    assert settings_text(proposal) == (
        'gpus = [0], ctx = 32768, parallel = 1, kv = "f16", gpu_layers = "all", n_cpu_moe = 13'
    )


def test_a_context_that_cannot_grow_has_no_next_one() -> None:
    """At the context that the model was made for nothing larger is told."""
    proposal, text = lines_of(known("Gemma-4-26B-A4B"), box(24))
    assert "With ctx" not in text
    assert "drafts" not in text
    assert "ctx = 131072  # all that the model was made for" in keys(proposal)


def test_a_next_context_that_would_fit() -> None:
    """On a CPU a larger context fits, and is slow to read."""
    proposal, text = lines_of(known("Llama-3.1-8B"), box(ram_gib=64))
    assert "\nWith ctx = 65536 it would fit:\n  RAM ≈" in text
    assert "ctx = 32768  # a longer prompt takes minutes to read on a CPU" in keys(proposal)


def test_comments_of_keys() -> None:
    """Each choice has its reason beside it."""
    assert "flash_attn = true  # a quantised cache needs it" in keys(
        proposed(known("Qwen3.6-27B"), box(24))
    )
    dense = keys(proposed(known("Gemma-3-27B"), box(16)))
    assert "gpu_layers = 56  # the most that fit: 7 of 62 layers stay in RAM" in dense
    assert "gpus = [0]  # a model without experts is slow with layers in RAM" in dense
    assert "ctx = 8192  # room for an agent" in dense
    spread = keys(proposed(known("gpt-oss-120b"), box(24, 24)))
    assert "cpu_experts = [0, 4, 8, 12, 16, 20, 24, 28, 32]  # 9 layers of 36" in spread
    mid = keys(proposed(known("Qwen3-32B"), box(32)))
    assert "# the largest that fits with all of the model on the GPUs" in mid
    asked = keys(proposed(known("Llama-3.1-8B"), box(24), tokens=16_384))
    assert "ctx = 16384  # as asked" in asked
    beyond = keys(proposed(known("Llama-3.1-8B"), box(48), tokens=200_000))
    assert "# as asked; the model was made for 131,072" in beyond
    few = keys(proposed(known("Gemma-3-27B"), box(ram_gib=32)))
    assert "ctx_checkpoints = 8  # of one request" in few
    assert 'cache_ram = "2GiB"  # of RAM, for earlier prompts' in few


def test_keys_of_models_that_embed_and_rank() -> None:
    """A model that embeds or ranks reads a text in one batch, and has no cache type."""
    small = keys(proposed(gguf({**LLAMA, "llama.pooling_type": 3}, layer_bytes=MIB), box(16)))
    assert "shared = true  # small: it claims no device, so a switch never stops it" in small
    assert "embedding = true\nbatch = 8192" in small
    assert "kv =" not in small
    ranking, text = lines_of(gguf({**LLAMA, "llama.pooling_type": 4}, layer_bytes=MIB), box(16))
    assert "rerank = true" in keys(ranking)
    assert "made for 131,072 tokens, for ranking." in text


def test_keys_of_engines_on_pytorch() -> None:
    """VLLM and SGLang have their share, the number of GPUs, and time for a first start."""
    two = keys(proposed(weights(20), box(24, 24), VLLM))
    assert "[vllm]\ntensor_parallel = 2\ngpu_memory_utilization = 0.9  # of each GPU" in two
    assert '[deadlines]\nno_progress = "10m"' in two
    proposal, text = lines_of(weights(2, model_type=None), box(24), SGLANG)
    assert "[sglang]\nmem_fraction_static = 0.88" in keys(proposal)
    assert "The model: no architecture named, 36 layers" in text
    pooled, text = lines_of(weights(2, pools=True), box(24), VLLM)
    assert "for embeddings." in text
    assert pooled.plan.parallel == 1


def test_the_embedded_engine_has_few_keys() -> None:
    """The embedded engine has neither a program nor GPUs nor a table."""
    text = keys(proposed(gguf(LLAMA), box(16), EMBEDDED))
    assert "binary" not in text
    assert "gpus" not in text
    assert "[" not in text


def test_a_model_that_does_not_say_what_it_was_made_for() -> None:
    """Without a trained context the comment names none, and no larger one."""
    silent = {key: value for key, value in LLAMA.items() if "context" not in key}
    _, text = lines_of(gguf(silent), box(16))
    assert "The model: architecture llama, 4 layers.\n" in text
    assert "With ctx" not in text


def test_profiles_that_cannot_be_judged() -> None:
    """Where there is no estimate the comment says why, and nothing of a larger context."""
    here, model = box(16), gguf(LLAMA)
    proposal = proposed(model, here)
    bad = judge_of(here, gguf({}))
    unjudged = bad.judged(proposal.judged.profile)
    assert next(iter(fit_lines(unjudged, bad))).startswith("Its memory is not known: ")
    smaller = proposed(model, here, tokens=8192)
    assert "With ctx" not in "\n".join(
        proposal_lines(smaller, bad.judged(smaller.judged.profile), bad)
    )
    too_large = judge_of(box(1), model).judged(proposal.judged.profile)
    assert next(iter(fit_lines(too_large, judge_of(box(1), model)))).startswith(
        "It does not fit this box: ≈"
    )


def test_a_profile_with_drafting_and_without_a_context() -> None:
    """A profile that drafts is not told to, and one without a context has no next one."""
    here, model = box(24), known("Qwen3.6-35B-A3B")
    proposal = proposed(model, here, tokens=8192)
    text = keys(proposal).replace("ctx = 8192  # as asked\n", "")
    text = text.replace('kv = "f16"', 'kv = "f16"\nspeculative = { method = "mtp", tokens = 3 }')
    judge = judge_of(here, model)
    changed = judge.judged(parse_profile("p", text.encode()))
    lines = "\n".join(proposal_lines(proposal, changed, judge))
    assert "With ctx" not in lines
    assert "layers that draft" not in lines
