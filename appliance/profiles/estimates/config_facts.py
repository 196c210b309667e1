"""Dimensions of a model from its config.json, and what engines on PyTorch keep in each of its layers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from appliance.profiles.estimates.facts import MOST, MOST_LAYERS, UnknownError

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
        """Whether layers may have a window that the file does not tell of each."""
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
