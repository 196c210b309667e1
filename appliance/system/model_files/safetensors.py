"""Readers of safetensors headers, and of the JSON files beside them.

Layout: https://github.com/huggingface/safetensors#format: eight bytes with the length of a JSON
object, the object, then the data its offsets point into.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, Final

from appliance.model.json_reader import parse_object
from appliance.system.model_files.bounded import (
    BoundedFile,
    BudgetError,
    HeaderBudget,
    HeaderError,
)

_LENGTH: Final = Struct("<Q")
_LARGEST_JSON_BYTES: Final = 16 << 20
"""Largest JSON header: a tenth of the format's own limit, and ten times the largest seen."""
_LARGEST_WIDE_BYTES: Final = 4 << 20
"""Largest JSON with characters beyond ASCII, which take up to four times their bytes."""
_MOST_VALUES: Final = 400_000
"""Most values of one JSON text: an index of 140,000 weights has 280,000; each takes up to 100 bytes."""
_LARGEST: Final = 1 << 60
_LAYER: Final = re.compile(r"(?:\A|\.)(?:layers|h|blocks)\.(\d{1,4})\.", re.ASCII)
_DRAFTS: Final = re.compile(r"(?:\A|\.)mtp(?:_layers)?\.", re.ASCII)
_OTHER_TOWERS: Final = re.compile(r"vis|audio|image|encoder|speech|talker|code2wav", re.ASCII)
"""Words in the names of weights that are not the language model's."""
_NOT_KEPT: Final = ("g_idx", "qzeros", "zero_point")
"""Endings of weights that engines drop after they have repacked the others."""
_NARROWED: Final = {"F32": 2, "F64": 4}
"""Divisors of the bytes of types that may be loaded in 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetensorsFile:
    """Header of one file."""

    weights_bytes: int
    draft_bytes: int = 0
    """Bytes of tensors that only draft, by their names."""
    layer_bytes: dict[int, int] = field(default_factory=dict)
    """Bytes of the tensors of each numbered layer of the language model."""
    least_layer_bytes: dict[int, int] = field(default_factory=dict)
    """Bytes that these take at least once loaded."""
    end: int
    """End of the last tensor: a shorter file is not whole."""
    file_bytes: int


def read_safetensors(path: Path, budget: HeaderBudget) -> SafetensorsFile:
    """Read the header of a file, at the expense of its model's budget.

    Raises:
        OSError: it cannot be read.
        HeaderError: it is no safetensors file, or not as the format says.
    """
    with BoundedFile(path, budget) as file:
        length = file.number(_LENGTH, 0)
        if length > _LARGEST_JSON_BYTES:
            raise HeaderError("it is no safetensors file")
        begin = _LENGTH.size
        file.need(begin + length)
        header = _object(file, begin, begin + length)
        weights = drafts = 0
        layers: dict[int, int] = {}
        least: dict[int, int] = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            first, end = _span(entry)
            weights = max(weights, end)
            if _DRAFTS.search(name):
                drafts += end - first
            elif (layer := _layer_of(name)) is not None:
                layers[layer] = layers.get(layer, 0) + end - first
                least[layer] = least.get(layer, 0) + _kept(name, entry, end - first)
        return SafetensorsFile(
            weights_bytes=weights,
            draft_bytes=drafts,
            layer_bytes=layers,
            least_layer_bytes=least,
            end=begin + length + weights,
            file_bytes=file.file_bytes,
        )


def _layer_of(name: str) -> int | None:
    """Return the number of the language model's layer that a tensor belongs to; None: none."""
    match = None if _OTHER_TOWERS.search(name) else _LAYER.search(name)
    return None if match is None else int(match[1])


def _kept(name: str, entry: Any, count: int) -> int:
    """Return the bytes that a tensor of `count` bytes takes at least once it is loaded."""
    return 0 if name.endswith(_NOT_KEPT) else count // _NARROWED.get(str(entry.get("dtype")), 1)


def _span(entry: Any) -> tuple[int, int]:
    try:
        first, end = entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise HeaderError("its header makes no sense") from error
    if type(first) is not int or type(end) is not int or not 0 <= first <= end <= _LARGEST:
        raise HeaderError("its header makes no sense")
    return first, end


def read_object(path: Path, budget: HeaderBudget) -> dict[str, Any]:
    """Read the JSON object in a small file, at the expense of its model's budget.

    Raises:
        OSError: it cannot be read.
        HeaderError: it is too large, or holds no object.
    """
    with BoundedFile(path, budget) as file:
        if file.file_bytes > _LARGEST_JSON_BYTES:
            raise HeaderError(f"{path.name} is larger than {_LARGEST_JSON_BYTES >> 20} MiB")
        file.need(file.file_bytes)
        return _object(file, 0, file.file_bytes)


def _object(file: BoundedFile, begin: int, end: int) -> dict[str, Any]:
    """Return the JSON object between two places of a file, with its values taken from the budget."""
    text = file.buffer[begin:end]
    values = sum(map(text.count, (b",", b":", b"[", b"{")))
    file.budget.take(entries=values)
    if values > _MOST_VALUES or (len(text) > _LARGEST_WIDE_BYTES and not text.isascii()):
        raise BudgetError("its headers are larger than those of any model")
    file.buffer.clear()
    try:
        return parse_object(text)
    except ValueError as error:
        raise HeaderError(f"its header is {error}") from error
