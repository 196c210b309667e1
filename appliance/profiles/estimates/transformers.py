"""Estimate of a safetensors model under an engine that runs PyTorch.

The cache is that of the requests which the profile names, each with its whole context, by the rules of
vllm/v1/kv_cache_interface.py. Both engines take a share of each GPU whatever that is.
`ConfigFacts` has the dimensions, from the model's config.json.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from appliance.engines.shared.engine import PytorchLoading
from appliance.model.memory_parts import Alternative, MemoryParts, SettingChange
from appliance.model.model_headers import Safetensors
from appliance.model.profile import Estimate
from appliance.model.spec import Profile
from appliance.profiles.estimates.gguf_layers import MOST, MOST_LAYERS, UnknownError

_TEXT: Final = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which models for images or sound keep the dimensions of their language model."""
_DEFAULT_INTERVALS: Final = {
    "qwen3_next": 4,
    "qwen3_5": 4,
    "qwen3_5_moe": 4,
    "qwen3_5_text": 4,
    "qwen3_5_moe_text": 4,
}
"""Layers of which the last has attention, by ``model_type``, where the file does not say."""
_DEFAULT_PERIODS: Final = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4}
"""Layers of which the last has the full context, by ``model_type``, where the file does not say."""
_PATTERN_SIGNS: Final = {"M": "state", "*": "full", "-": "none", "E": "none"}
"""Signs of ``hybrid_override_pattern`` (Nemotron-H)."""


class Keeps(Enum):
    """Memory of earlier tokens that a layer keeps."""

    FULL = "full"
    WINDOW = "window"
    STATE = "state"
    NOTHING = "none"


_KINDS: Final = {
    "full_attention": Keeps.FULL,
    "attention": Keeps.FULL,
    "global": Keeps.FULL,
    "sliding_attention": Keeps.WINDOW,
    "chunked_attention": Keeps.WINDOW,
    "local": Keeps.WINDOW,
    "linear_attention": Keeps.STATE,
    "mamba": Keeps.STATE,
    "mamba2": Keeps.STATE,
    "conv": Keeps.STATE,
    "mlp": Keeps.NOTHING,
    "moe": Keeps.NOTHING,
}
"""Words of ``layer_types`` and ``layers_block_type``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Elements of a token's keys and values in one layer."""

    heads: int
    size: int
    """Elements of a key and a value of one head together."""


class ConfigFacts:
    """Dimensions of the language model that a config.json describes.

    Raises:
        UnknownError: from the constructor and every method, for a value that makes no sense.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        if not config:
            raise UnknownError("there is no config.json beside the weights")
        self._whole = config
        self._text = _language(config)
        self.layers: int = self.required("num_hidden_layers", most=MOST_LAYERS)

    def number(self, key: str, *, most: int = MOST) -> int | None:
        """Return a count; None: the file does not say."""
        value = self._text.get(key)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value <= most:
            raise UnknownError(f"{key} in config.json makes no sense")
        return value

    def required(self, key: str, *, most: int = MOST) -> int:
        """Return a count that every model has."""
        found = self.number(key, most=most)
        if not found:
            raise UnknownError(f"config.json does not say {key}")
        return found

    def word(self, *keys: str) -> str:
        """Return the first of these keys that has a text; empty: none has."""
        for key in keys:
            value = self._text.get(key, self._whole.get(key))
            if isinstance(value, str):
                return value
        return ""

    @property
    def trained_tokens(self) -> int | None:
        """Return the tokens that the model was made for; None: the file does not say."""
        return self.number("max_position_embeddings")

    @property
    def quantisation(self) -> Mapping[str, object]:
        """Return how the weights are quantised; empty: they are not."""
        for config in (self._whole, self._text):
            for key in ("quantization_config", "compression_config"):
                found = config.get(key)
                if isinstance(found, dict):
                    return found
        return {}

    @property
    def latent(self) -> int:
        """Return the elements of a token with latent attention; 0: it has keys and values."""
        rank = self.number("kv_lora_rank")
        return rank + (self.number("qk_rope_head_dim") or 0) if rank else 0

    @property
    def window(self) -> int:
        """Return the tokens of the window of layers that have one; 0: none has."""
        if self._text.get("use_sliding_window") is False:
            return 0
        return self.number("sliding_window") or self.number("attention_chunk_size") or 0

    def head(self, keeps: Keeps) -> Head:
        """Return the heads of a layer."""
        count = self.required("num_attention_heads")
        heads = self.number("num_key_value_heads") or count
        size = self.number("head_dim") or self.required("hidden_size") // count
        if keeps is Keeps.FULL:  # layers with a window may have smaller heads, and more of them
            heads = self.number("num_global_key_value_heads") or heads
            size = self.number("global_head_dim") or size
        return Head(heads=heads, size=size + (self.number("v_head_dim") or size))

    def kinds(self) -> tuple[Keeps, ...]:
        """Return what each layer keeps; those that share the cache of earlier ones keep nothing."""
        shared = self.number("num_kv_shared_layers") or 0
        own = max(0, self.layers - shared)
        return self._kinds()[:own] + (Keeps.NOTHING,) * (self.layers - own)

    @property
    def is_upper_bound(self) -> bool:
        """Whether layers may have a window that the file does not name one by one."""
        return bool(self.window) and Keeps.WINDOW not in self._kinds()

    def _kinds(self) -> tuple[Keeps, ...]:
        for key in ("layer_types", "layers_block_type"):
            listed = self._text.get(key)
            if isinstance(listed, list) and len(listed) >= self.layers:
                found = [
                    _KINDS.get(kind, Keeps.FULL) if isinstance(kind, str) else Keeps.FULL
                    for kind in listed[: self.layers]
                ]
                return tuple(self._fitting(kind) for kind in found)
        signs = self._text.get("hybrid_override_pattern")
        if isinstance(signs, str) and len(signs) >= self.layers:
            return tuple(Keeps(_PATTERN_SIGNS.get(s, "full")) for s in signs[: self.layers])
        kind = self.word("model_type")
        interval = self.number("full_attention_interval") or _DEFAULT_INTERVALS.get(kind, 0)
        if interval:
            return self._periodic(interval, Keeps.STATE)
        period = self.number("sliding_window_pattern") or _DEFAULT_PERIODS.get(kind, 0)
        if period and self.window:
            return self._periodic(period, Keeps.WINDOW)
        return (Keeps.FULL,) * self.layers

    def _periodic(self, period: int, others: Keeps) -> tuple[Keeps, ...]:
        return tuple(
            Keeps.FULL if (layer + 1) % period == 0 else others for layer in range(self.layers)
        )

    def _fitting(self, kind: Keeps) -> Keeps:
        """Return `kind`, or the full context where a window has no size."""
        return Keeps.FULL if kind is Keeps.WINDOW and not self.window else kind

    def state(self) -> tuple[int, int]:
        """Return the elements of one request's state in a layer: of the convolution, and the state."""
        columns = max(0, (self.number("linear_conv_kernel_dim") or 0) - 1)
        if values := self.number("linear_num_value_heads"):
            keys = self.number("linear_num_key_heads") or values
            key = self.number("linear_key_head_dim") or 0
            value = self.number("linear_value_head_dim") or 0
            return columns * (2 * keys * key + values * value), values * value * key
        if short := self.number("conv_L_cache"):
            return self.required("hidden_size") * (short - 1), 0
        size = self.number("ssm_state_size") or self.number("mamba_d_state") or 0
        heads = self.number("mamba_num_heads") or self.number("mamba_n_heads") or 0
        head = self.number("mamba_head_dim") or self.number("mamba_d_head") or 0
        groups = self.number("n_groups") or self.number("mamba_n_groups") or 0
        kernel = self.number("conv_kernel") or self.number("mamba_d_conv") or 0
        inner = heads * head
        return max(0, kernel - 1) * (inner + 2 * groups * size), inner * size


def _language(config: Mapping[str, object]) -> Mapping[str, object]:
    for key in _TEXT:
        inner = config.get(key)
        if isinstance(inner, dict) and "num_hidden_layers" in inner:
            return inner
    return config


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
    given = loading.dtype if loading.dtype not in {None, "auto"} else None
    return _BYTES.get(given or facts.word("torch_dtype", "dtype"), 2)


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
