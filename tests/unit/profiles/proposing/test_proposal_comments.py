"""Comments of proposed profiles, and the keys that they are about."""

from appliance.model.model_headers import Model
from appliance.profiles.proposing.engine_choice import EngineChoice
from appliance.profiles.proposing.proposal_box import ProposalBox
from appliance.profiles.proposing.proposal_comments import fit_lines, proposal_lines, settings_text
from appliance.profiles.proposing.proposal_search import Proposal
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
