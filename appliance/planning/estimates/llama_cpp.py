"""Estimate of a GGUF model under llama.cpp, for architectures whose memory follows the rules of `cache`."""

from typing import Final

from appliance.domain.model_headers import Gguf, Model
from appliance.domain.profile import Estimate
from appliance.domain.spec import Profile
from appliance.engines.shared.engine import LlamaCppLoading
from appliance.planning.estimates import cache
from appliance.planning.estimates.facts import GgufFacts, UnknownError
from appliance.planning.estimates.offload import (
    first_layer,
    kept_in_ram,
    layers_on_gpus,
    weights,
)

_NAMES: Final = """
    afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bert bitnet bloom
    chameleon chatglm codeshell cogvlm cohere2 command-r dbrx deci deepseek deepseek2
    deepseek2-ocr dots1 dream ernie4_5 ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon
    falcon-h1 gemma gemma-embedding gemma2 gemma3 gemma3n gemma4 glm-dsa glm4 glm4moe gpt-oss
    gpt2 gptj gptneox granite granitehybrid granitemoe grok grovemoe hunyuan-dense hunyuan-moe
    internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-linear lfm2 lfm2moe llada llada-moe
    llama llama-embed llama4 maincoder mamba mamba2 mimo2 minicpm minicpm3 minimax-m2
    mistral3 modern-bert mpt nemotron nemotron_h nemotron_h_moe neo-bert nomic-bert
    nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo
    plamo2 plamo3 plm qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next
    qwen3vl qwen3vlmoe refact rnd1 rwkv6 rwkv6qwen2 rwkv7 seed_oss smallthinker smollm3 stablelm
    starcoder starcoder2 step35 xverse
"""
_KNOWN: Final = frozenset(_NAMES.split())
"""Architectures with an estimate, from ``LLM_ARCH_NAMES`` of llama.cpp. Another architecture may keep
something that no rule here counts."""
_DEFAULT_UBATCH: Final = 512
_CONTEXT_BYTES: Final = 384 << 20
"""Bytes of a CUDA context with the library's workspace: some hundred MiB a GPU, by driver and
card."""
_ACTIVATIONS: Final = 16
"""Vectors of the embedding's size that a graph keeps for each token of a batch, roughly."""


def estimate(profile: Profile, loading: LlamaCppLoading, model: Model, gguf: Gguf) -> Estimate:
    """Return weights, cache and a rough allowance for the rest. Raises `UnknownError`.

    The prompt cache (``--cache-ram``, 8 GiB of RAM by default) is left out: it grows only with use.
    """
    facts = GgufFacts(gguf)
    if facts.architecture not in _KNOWN:
        raise UnknownError(f"architecture {facts.architecture} is not known")
    offloaded = layers_on_gpus(profile, loading, facts.layers)
    placed = weights(gguf.tensors, facts.layers, offloaded, kept_in_ram(loading))
    caches = cache.layer_bytes(facts, _window(profile, loading, facts))
    cached_on_gpu = sum(caches[first_layer(facts.layers, offloaded) :] if offloaded else ())
    if loading.cache_in_ram:
        cached_on_gpu = 0
    buffers = _buffer_bytes(profile, loading, facts)
    extra = loading.expert_cache_mib << 20
    with_gpu = profile.gpus != ()
    return Estimate(
        vram_bytes=placed.gpu
        + cached_on_gpu
        + model.projector_bytes
        + extra
        + buffers
        + _CONTEXT_BYTES * _gpu_count(profile, loading)
        if with_gpu
        else 0,
        least_vram_bytes=placed.least_gpu,
        ram_bytes=placed.ram
        + sum(caches)
        - cached_on_gpu
        + (0 if with_gpu else model.projector_bytes + buffers),
        notes=(*cache.notes(facts), *_notes(profile)),
    )


def context_tokens(profile: Profile, loading: LlamaCppLoading, gguf: Gguf) -> int | None:
    """Return the tokens that one request may use; None: the file does not say. Raises `UnknownError`."""
    window = _window(profile, loading, GgufFacts(gguf))
    divided = window.caches == 1 and not loading.kv_unified
    return (window.tokens // window.requests if divided else window.tokens) or None


def _window(profile: Profile, loading: LlamaCppLoading, facts: GgufFacts) -> cache.Window:
    """Return the window as engines render it: ``ctx`` is one request's, unless they share a cache.

    Without ``ctx`` and a default llama.cpp takes what the model was trained for, for all requests
    together.
    """
    requests = profile.parallel or 1
    trained = facts.number("context_length") or 0
    tokens = profile.ctx or loading.default_ctx or trained
    shared = loading.kv_unified or (profile.ctx is None and loading.default_ctx is None)
    return cache.Window(
        tokens=tokens,
        caches=1 if shared else requests,
        requests=requests,
        key_type="f16" if profile.kv is None else profile.kv.k,
        value_type="f16" if profile.kv is None else profile.kv.v,
    )


def _buffer_bytes(profile: Profile, loading: LlamaCppLoading, facts: GgufFacts) -> int:
    """Return a rough allowance for the compute buffers of one micro-batch, all in F32.

    What ``ggml_gallocr`` reserves for the worst graph is known only to llama.cpp; the largest
    parts are the logits (tokens x vocabulary), the feed-forward and attention activations, the
    mask over the context, and the scores of every head where flash attention is off.
    """
    tokens = loading.ubatch or min(_DEFAULT_UBATCH, loading.batch or _DEFAULT_UBATCH)
    window = _window(profile, loading, facts)
    wide = max(facts.per_layer("feed_forward_length", default=(facts.embedding,)))
    per_token = facts.vocabulary + _ACTIVATIONS * facts.embedding + 2 * wide + window.cells
    if loading.flash_attn == "off":
        per_token += window.cells * max(facts.heads)
    return tokens * per_token * 4


def _gpu_count(profile: Profile, loading: LlamaCppLoading) -> int:
    if loading.split_mode == "none":
        return 1
    if profile.gpus == "all":
        return max(1, len([part for part in loading.tensor_split if part]))
    return len(profile.gpus)


def _notes(profile: Profile) -> tuple[str, ...]:
    drafts = () if profile.speculative is None else ("drafting not counted",)
    return ("compute buffers guessed", *drafts)
