"""Memory that engines keep, computed layer by layer from their own formulas, without the appliance's code.

llama.cpp b11549: src/llama-kv-cache.cpp (a tensor of cells x row for keys and one for values, in each layer),
src/llama-kv-cache-iswa.cpp (cells of a windowed cache), src/llama-memory-recurrent.cpp (one row of F32 for
each sequence), src/llama-context.cpp (n_ctx_seq is padded to 256). vLLM 0.33: vllm/v1/kv_cache_interface.py
(max_memory_usage_bytes of each kind of layer).
"""

from collections.abc import Sequence
from dataclasses import dataclass

_BLOCK_BYTES = {"f16": 64, "bf16": 64, "f32": 128, "q8_0": 34, "q5_1": 24, "q5_0": 22}
_BLOCK_BYTES |= {"q4_1": 20, "q4_0": 18, "iq4_nl": 18}
"""Bytes of 32 elements, by cache type (ggml/src/ggml-common.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Contents of one layer for one token or one request, in elements."""

    keys: int = 0
    values: int = 0
    window: int = 0
    """Tokens that the layer looks back; 0: to the beginning."""
    indexer: int = 0
    convolution: int = 0
    """Elements of the state that a convolution keeps."""
    state: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Options of one run of llama-server."""

    ctx: int
    requests: int = 1
    unified: bool = False
    ubatch: int = 512
    key_type: str = "f16"
    value_type: str = "f16"
    swa_full: bool = False


def llama_layer_bytes(layer: Layer, run: Run) -> int:
    """Bytes that llama.cpp allocates for the cache and the state of one layer."""
    sequences = 1 if run.unified else run.requests
    cells = -(-run.ctx // 256) * 256
    if layer.window and not run.swa_full:
        wanted = layer.window * (run.requests if run.unified else 1) + run.ubatch
        cells = -(-min(cells, wanted) // 256) * 256
    keys = _row(layer.keys, run.key_type) + _row(layer.indexer, run.key_type)
    values = _row(layer.values, run.value_type)
    state = 4 * (layer.convolution + layer.state) * run.requests
    return cells * sequences * (keys + values) + state


def llama_bytes(layers: Sequence[Layer], run: Run) -> int:
    """Bytes that llama.cpp allocates for caches and states."""
    return sum(llama_layer_bytes(layer, run) for layer in layers)


def _row(elements: int, kind: str) -> int:
    return (
        -(-elements // 32) * _BLOCK_BYTES[kind]
        if kind not in {"f16", "bf16", "f32"}
        else (elements * _BLOCK_BYTES[kind] // 32)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmLayer:
    """Contents of one layer under vLLM."""

    heads: int = 0
    """KV heads; 0 with latent attention and with a state."""
    head: int = 0
    """Elements of a key, or of a value."""
    latent: int = 0
    """Elements of a token with latent attention."""
    window: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRun:
    """Options of one run of vLLM."""

    ctx: int
    tensor: int = 1
    element_bytes: int = 2
    batch: int = 2048
    block: int = 16


def vllm_bytes(layers: Sequence[VllmLayer], run: VllmRun) -> int:
    """Bytes that one request with the whole context takes on all tensor-parallel ranks."""
    return sum(_vllm_layer_bytes(layer, run) for layer in layers) * run.tensor


def _vllm_layer_bytes(layer: VllmLayer, run: VllmRun) -> int:
    """Bytes on one rank."""
    if layer.state_bytes:
        return layer.state_bytes // run.tensor
    if layer.latent:
        page = run.block * layer.latent * run.element_bytes
    else:
        page = 2 * run.block * max(1, layer.heads // run.tensor) * layer.head * run.element_bytes
    if layer.window:
        tokens = min(layer.window - 1 + run.batch, run.ctx)
        return (-(-tokens // run.block) + 1) * page
    return -(-run.ctx // run.block) * page
