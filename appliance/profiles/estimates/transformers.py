"""Estimate of a safetensors model under an engine that runs PyTorch.

The cache is that of the requests which the profile names, each with its whole context, by the rules of
vllm/v1/kv_cache_interface.py. Both engines take a share of each GPU whatever that is.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from appliance.engines.shared.engine import PytorchLoading
from appliance.model.memory_parts import Alternative, MemoryParts, SettingChange
from appliance.model.model_headers import Safetensors
from appliance.model.profile import Estimate
from appliance.model.spec import Profile
from appliance.profiles.estimates.config_facts import ConfigFacts, Keeps
from appliance.profiles.estimates.facts import UnknownError

_PROCESS_BYTES: Final = 1 << 30
"""Bytes of a worker's CUDA context, NCCL, graphs and activations: 0.5 to 2 GiB by card and
batch."""
_HOST_BYTES: Final = 4 << 30
"""Bytes of Python, torch and the tokenizer of the server and its workers, roughly."""
_BYTES: Final = {"float32": 4, "float": 4, "float16": 2, "bfloat16": 2, "half": 2}
_OF_SIXTEEN: Final = {"f16": 32, "bf16": 32, "float16": 32, "bfloat16": 32, "nvfp4": 9}
"""Bytes of 16 elements of a cache by the beginning of its type's name: NVFP4 has a scale for each
sixteen (``nvfp4_kv_cache_full_dim``)."""
_ELEMENTS: Final = 16
"""Elements for which the bytes of a cache type are given."""
_EIGHT_BITS: Final = ("fp8", "int8", "mxfp8", "turboquant")
_HEAD_SCALES: Final = "per_token_head"
"""Types with a scale in 32 bits for the keys and one for the values of each token and head."""
_SPARSE_FP8_BYTES: Final = 656
"""Bytes of a token with latent sparse attention and an FP8 cache (``fp8_ds_mla``)."""
_INDEXER_BLOCK: Final = 128
"""Elements of an indexer's key that share a scale of four bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RequestSize:
    """Size of one request in the cache."""

    tokens: int
    count: int
    """Number of requests at once."""
    sixteen: int
    """Bytes of sixteen elements of the cache."""
    scales: int = 0
    """Bytes of scales of one token and head."""


def estimate(profile: Profile, loading: PytorchLoading, model: Safetensors) -> Estimate:
    """Return the parts of a model's memory. Raises `UnknownError`."""
    facts = _facts_of(loading, model)
    request = None if facts is None else _request_of(profile, loading, facts)
    weights = model.weights_bytes - (0 if loading.drafts else model.draft_bytes)
    cache, state = _kept(loading, facts, request)
    alternatives: list[Alternative] = []
    vram, ram = _placed(profile, loading, weights, cache, state)
    if facts is not None and request is not None and loading.cache_bytes is None:
        for change, setting, other in _changes(request):
            changed = _placed(profile, loading, weights, *_kept(loading, facts, other))
            alternatives.append(
                Alternative(change=change, setting=setting, vram=changed[0], ram=changed[1])
            )
    return Estimate(
        vram_bytes=vram.total_bytes,
        least_vram_bytes=_least(profile, loading, model),
        ram_bytes=ram.total_bytes,
        notes=tuple(_notes(profile, loading, facts)),
        vram=vram,
        ram=ram,
        alternatives=tuple(alternatives),
    )


def context_tokens(profile: Profile, model: Safetensors) -> int:
    """Return the tokens that one request may use. Raises `UnknownError`."""
    return _tokens(profile, ConfigFacts(model.config))


def _facts_of(loading: PytorchLoading, model: Safetensors) -> ConfigFacts | None:
    """Return the dimensions; None: the profile says how large the cache is, so none are needed."""
    if loading.cache_bytes is not None:
        return None
    return ConfigFacts(model.config)


def _tokens(profile: Profile, facts: ConfigFacts) -> int:
    tokens = profile.ctx or facts.trained_tokens
    if tokens is None:
        raise UnknownError("neither the profile nor config.json says a context length")
    return tokens


def _request_of(profile: Profile, loading: PytorchLoading, facts: ConfigFacts) -> _RequestSize:
    kind = "auto" if profile.kv is None else profile.kv.k
    if kind == "auto":
        kind = cache_of_checkpoint(facts.quantisation)
    sixteen = _ELEMENTS * _element_bytes(loading, facts)
    if kind.startswith(_EIGHT_BITS):
        sixteen = _ELEMENTS
    return _RequestSize(
        tokens=_tokens(profile, facts),
        count=profile.parallel or 1,
        sixteen=_OF_SIXTEEN.get(kind, sixteen),
        scales=2 * 4 if _HEAD_SCALES in kind else 0,
    )


def cache_of_checkpoint(quantisation: Mapping[str, object]) -> str:
    """Return the cache type that a checkpoint names (``get_kv_cache_quant_algo_string``)."""
    if not str(quantisation.get("quant_method", "")).startswith("modelopt"):
        return "auto"
    inner = quantisation.get("quantization", quantisation)
    if not isinstance(inner, dict):
        return "auto"
    scheme = inner.get("kv_cache_scheme")
    if isinstance(scheme, dict) and (scheme.get("type"), scheme.get("num_bits")) == ("float", 8):
        return "fp8"
    return str(inner.get("kv_cache_quant_algo") or "auto").lower()


def _element_bytes(loading: PytorchLoading, facts: ConfigFacts) -> int:
    told = loading.dtype if loading.dtype not in {None, "auto"} else None
    return _BYTES.get(told or facts.word("torch_dtype", "dtype"), 2)


def _kept(
    loading: PytorchLoading, facts: ConfigFacts | None, request: _RequestSize | None
) -> tuple[int, int]:
    """Return the bytes of cache and of state over all workers."""
    if facts is None or request is None:
        return (loading.cache_bytes or 0) * loading.workers, 0
    kinds = facts.kinds()
    cache = sum(
        _tokens_kept(loading, facts, request, kind) * _token_bytes(loading, facts, request, kind)
        for kind in kinds
        if kind in {Keeps.FULL, Keeps.WINDOW}
    )
    drafting = min(1, loading.drafts)  # the layer that drafts has a cache like the others
    cache += (
        drafting
        * _tokens_kept(loading, facts, request, Keeps.FULL)
        * _token_bytes(loading, facts, request, Keeps.FULL)
    )
    return cache * request.count, kinds.count(Keeps.STATE) * _state(loading, facts) * request.count


def _tokens_kept(
    loading: PytorchLoading, facts: ConfigFacts, request: _RequestSize, kind: Keeps
) -> int:
    """Return the tokens that a layer keeps of one request, in whole pages."""
    if kind is Keeps.FULL:
        return _pages(request.tokens, loading.block) * loading.block
    tokens = min(facts.window - 1 + loading.batch, request.tokens)
    return (_pages(tokens, loading.block) + 1) * loading.block


def _pages(tokens: int, block: int) -> int:
    return -(-tokens // block)


def _token_bytes(
    loading: PytorchLoading, facts: ConfigFacts, request: _RequestSize, kind: Keeps
) -> int:
    """Return the bytes of one token in a layer over all workers that hold a part of the layer."""
    if facts.latent:  # every worker has all of it
        indexer = facts.number("index_head_dim") or 0
        eight_bits = request.sixteen == _ELEMENTS
        main = (
            _SPARSE_FP8_BYTES
            if indexer and eight_bits
            else facts.latent * request.sixteen // _ELEMENTS
        )
        return (main + indexer + indexer // _INDEXER_BLOCK * 4) * loading.tensor
    head = facts.head(kind)
    here = max(1, -(-head.heads // loading.tensor))  # fewer heads than workers are copied
    return here * (head.size * request.sixteen // _ELEMENTS + request.scales) * loading.tensor


def _state(loading: PytorchLoading, facts: ConfigFacts) -> int:
    """Return the bytes of one request's state in a layer (``MambaSpec``)."""
    convolution, state = facts.state()
    usual = _element_bytes(loading, facts)
    one = convolution * usual + state * _BYTES.get(
        loading.state_dtype or facts.word("mamba_ssm_dtype"), usual
    )
    return one * ((2 if loading.aligned else 1) + loading.drafts)


def _placed(
    profile: Profile, loading: PytorchLoading, weights: int, cache: int, state: int
) -> tuple[MemoryParts, MemoryParts]:
    """Return the parts on the GPUs and in main memory."""
    if profile.gpus == ():
        # On the CPU weights and cache are in main memory, too.
        return MemoryParts(), MemoryParts(
            weights_bytes=weights, cache_bytes=cache, state_bytes=state, compute_bytes=_HOST_BYTES
        )
    moved = min(weights, loading.offload_bytes * loading.workers)
    return MemoryParts(
        weights_bytes=weights - moved,
        cache_bytes=cache,
        state_bytes=state,
        compute_bytes=_PROCESS_BYTES * loading.workers,
    ), MemoryParts(weights_bytes=moved, compute_bytes=_HOST_BYTES)


def _least(profile: Profile, loading: PytorchLoading, model: Safetensors) -> int:
    """Return the bytes of weights that every start loads: those of the language model's own layers.

    Towers for images may be left out, layers that draft are, and weights that are not quantised in
    their files may be quantised to four bits at a load.
    """
    if profile.gpus == () or not loading.certain:
        return 0
    try:
        facts = ConfigFacts(model.config)
    except UnknownError:
        return 0
    loaded = sum(model.least_layer_bytes[: facts.layers])
    if loading.converts and not facts.quantisation:
        loaded //= 4
    return max(0, loaded - loading.offload_bytes * loading.workers)


def _changes(request: _RequestSize) -> Iterator[tuple[SettingChange, str, _RequestSize]]:
    half = -(-request.tokens // 2)
    yield SettingChange.HALF_CONTEXT, f"ctx = {half}", replace(request, tokens=half)
    if request.sixteen > _ELEMENTS:
        yield SettingChange.QUANTISED_CACHE, 'kv = "fp8"', replace(request, sixteen=_ELEMENTS)


def _notes(profile: Profile, loading: PytorchLoading, facts: ConfigFacts | None) -> Iterator[str]:
    yield "compute buffers guessed"
    if profile.speculative is not None and not loading.drafts:
        yield "drafting not counted"
    if facts is None:
        return
    one = (profile.parallel or 1) == 1
    yield "room for one request's cache only" if one else "cache guessed"
    if facts.is_upper_bound:
        yield "sliding window, upper bound"
