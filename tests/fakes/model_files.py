"""Model files with headers that are real and weights that are holes."""

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from appliance.system.model_files.headers import BLOCKS

F32, F16, Q8_0 = 0, 1, 8
ALIGNMENT = 32

Metadata = Mapping[str, object]
Shapes = Mapping[str, tuple[int, Sequence[int]]]
"""Tensor name to its type and dimensions."""


def text(value: str) -> bytes:
    """A GGUF string."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(item: object) -> bytes:
    """A GGUF value with its type; of a list all entries have the type of the first."""
    if isinstance(item, bool):
        return struct.pack("<I?", 7, item)
    if isinstance(item, int):
        return struct.pack("<Iq", 11, item)
    if isinstance(item, float):
        return struct.pack("<Id", 12, item)
    if isinstance(item, str):
        return struct.pack("<I", 8) + text(item)
    assert isinstance(item, list)
    entries = [value(entry) for entry in item]
    kind = entries[0][:4] if entries else struct.pack("<I", 4)
    return (
        struct.pack("<I", 9)
        + kind
        + struct.pack("<Q", len(item))
        + b"".join(entry[4:] for entry in entries)
    )


def stored(kind: int, dimensions: Sequence[int]) -> int:
    """Bytes of a tensor."""
    elements = 1
    for dimension in dimensions:
        elements *= dimension
    block, size = BLOCKS[kind]
    return -(-elements // block) * size


def gguf_header(metadata: Metadata, tensors: Shapes, *, version: int = 3) -> tuple[bytes, int]:
    """The header, padded, and the bytes of the data behind it."""
    parts = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    parts += [text(key) + value(item) for key, item in metadata.items()]
    place = 0
    for name, (kind, dimensions) in tensors.items():
        parts.append(text(name) + struct.pack("<I", len(dimensions)))
        parts.append(struct.pack(f"<{len(dimensions)}QIQ", *dimensions, kind, place))
        place += -(-stored(kind, dimensions) // ALIGNMENT) * ALIGNMENT
    header = b"".join(parts)
    return header + b"\0" * (-len(header) % ALIGNMENT), place


def write_gguf(path: Path, metadata: Metadata, tensors: Shapes, *, cut: int = 0) -> Path:
    """A GGUF file, `cut` bytes too short."""
    header, data = gguf_header(metadata, tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + data - cut)
    return path


LLAMA: Metadata = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.context_length": 8192,
    "llama.embedding_length": 1024,
    "llama.feed_forward_length": 4096,
    "llama.attention.head_count": 16,
    "llama.attention.head_count_kv": 4,
    "llama.vocab_size": 32000,
}
LAYER = {"attn_q.weight": (1024, 1024), "ffn_down.weight": (4096, 1024)}


def llama_tensors(layers: int = 4, *, tied: bool = False, experts: int = 0) -> Shapes:
    """The tensors of a small llama."""
    found: dict[str, tuple[int, Sequence[int]]] = {"token_embd.weight": (F16, (1024, 32000))}
    for layer in range(layers):
        for name, dimensions in LAYER.items():
            found[f"blk.{layer}.{name}"] = (Q8_0, dimensions)
        if experts:
            found[f"blk.{layer}.ffn_up_exps.weight"] = (Q8_0, (1024, 512, experts))
    found["output_norm.weight"] = (F32, (1024,))
    if not tied:
        found["output.weight"] = (F16, (1024, 32000))
    return found


def write_safetensors(path: Path, sizes: Mapping[str, int], *, cut: int = 0) -> Path:
    """A safetensors file with tensors of these sizes, `cut` bytes too short."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    place = 0
    for name, size in sizes.items():
        offsets = [place, place + size]
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": offsets}
        place += size
    raw = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + place - cut)
    return path
