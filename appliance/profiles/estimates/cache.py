"""Cache and state that llama.cpp keeps, layer by layer, and the checkpoints of a request."""

from dataclasses import dataclass
from typing import Final

from appliance.profiles.estimates.facts import UnknownError
from appliance.profiles.estimates.layers import LayerMemory

TYPES: Final = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
    "q6_0": (32, 26),
    "q8_KV": (32, 32),
}
"""Elements of a block and the bytes that they take, by cache type (``GGML_QUANT_SIZES``). The last two are
ik_llama.cpp's; ``q8_KV`` has 8 bytes more for each row."""
_PADDING: Final = 256
"""Multiple to which the tokens of a cache are rounded up (``llama_context``, ``n_ctx_seq``)."""
_STATE_BYTES: Final = 4
"""Bytes of an element of a recurrent state, which is F32 (``llama_memory_recurrent``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSize:
    """Size of the caches: tokens, requests and types."""

    tokens: int
    """Tokens of one cache: of one request, or of all requests where they share one."""
    caches: int
    """Number of caches: one for each request, or one shared."""
    requests: int
    window: int = 0
    """Tokens of the window of layers that have one."""
    batch: int = 0
    """Tokens of one micro-batch, for which a windowed cache has room beside the window."""
    drafts: int = 0
    """Drafted tokens before a check, for each of which a copy of the state is kept."""
    key_type: str = "f16"
    value_type: str = "f16"
    transposed: bool = False
    """Whether values are stored for the widest layer in all layers: without flash attention."""

    @property
    def cells(self) -> int:
        """Return the tokens of one cache, padded."""
        return _padded(self.tokens)

    @property
    def windowed_cells(self) -> int:
        """Return the tokens of one cache of a layer with a window (llama-kv-cache-iswa.cpp)."""
        shared = self.requests if self.caches == 1 else 1
        return _padded(min(self.cells, self.window * shared + self.batch))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Bytes that one layer keeps."""

    cache: int
    state: int
    least: int
    """Bytes of both that every build since 2025 keeps: without copies for drafts and indexers."""
    checkpoint: int
    """Bytes of one checkpoint of one request."""


def bytes_of(layers: tuple[LayerMemory, ...], size: CacheSize) -> tuple[LayerBytes, ...]:
    """Return the bytes of every layer.

    Raises:
        UnknownError: a cache type is not known.
    """
    widest = max((layer.values for layer in layers), default=0) if size.transposed else 0
    return tuple(_bytes(layer, size, widest) for layer in layers)


def _bytes(layer: LayerMemory, size: CacheSize, widest: int) -> LayerBytes:
    cells = (size.windowed_cells if layer.windowed else size.cells) * size.caches
    kept = max(layer.values, widest) if layer.values else 0
    row = row_bytes(layer.keys, size.key_type) + row_bytes(kept, size.value_type)
    indexer = row_bytes(layer.indexer_keys, size.key_type)
    state = layer.state * _STATE_BYTES
    window = row * size.windowed_cells if layer.windowed else 0
    return LayerBytes(
        cache=(row + indexer) * cells,
        state=state * size.requests * (1 + size.drafts),
        least=row * cells + state * size.requests,
        checkpoint=state + window,
    )


def row_bytes(elements: int, kind: str) -> int:
    """Return the bytes of a row of a cache. Raises `UnknownError`."""
    if kind not in TYPES:
        raise UnknownError(f"the cache type {kind} is not known")
    block, stored = TYPES[kind]
    return -(-elements // block) * stored


def _padded(tokens: int) -> int:
    return -(-tokens // _PADDING) * _PADDING
