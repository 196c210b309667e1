"""Readers of the headers of model files: GGUF, safetensors, and the JSON files beside these.

GGUF versions 2 and 3, little endian (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Sizes of the
tensor types: ``GGML_QUANT_SIZES`` of gguf-py. Lists of text (a vocabulary has 152,000 entries) are skipped, and
stand in the metadata as their lengths. Kept is what an estimate can use: not the tokenizer beyond the size of
its vocabulary, and of each text only its beginning.

Safetensors (https://github.com/huggingface/safetensors#format): eight bytes with the length of a JSON object, the
object, then the data its offsets point into.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct, error, iter_unpack
from typing import Any, Final

from appliance.model.json_reader import parse_object
from appliance.model.model_headers import Tensor, Value
from appliance.system.model_files.locate import (
    BoundedFile,
    BudgetError,
    EndOfFileError,
    HeaderBudget,
    HeaderError,
)

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_U32: Final = Struct("<I")
_U64: Final = Struct("<Q")
_STRING, _LIST = 8, 9
_SCALARS: Final = {
    0: Struct("<B"),
    1: Struct("<b"),
    2: Struct("<H"),
    3: Struct("<h"),
    4: Struct("<I"),
    5: Struct("<i"),
    6: Struct("<f"),
    7: Struct("<?"),
    10: Struct("<Q"),
    11: Struct("<q"),
    12: Struct("<d"),
}
_MOST_KEYS: Final = 1 << 12
_MOST_TENSORS: Final = 1 << 16
_TENSOR_ENTRIES: Final = 64
"""Entries that a tensor takes of the budget: a hundred bytes are kept of each until the last is read."""
_KEY_ENTRIES: Final = 16
_NUMBER_ENTRIES: Final = 8
"""Entries that a number in a list takes, which is kept in 40 bytes; a text is only skipped."""
_TOKENIZER: Final = "tokenizer."
_TOKENS: Final = "tokenizer.ggml.tokens"
_MOST_DIMENSIONS: Final = 4
_LONGEST_NAME: Final = 1 << 8
"""Longest name of a key; the longest in use has 60 bytes."""
_LONGEST_TENSOR_NAME: Final = 1 << 8
"""Longest name of a tensor: four times the format's own limit."""
_LONGEST_TEXT: Final = 1 << 8
_LONGEST_LIST: Final = 1 << 12
"""Longest list that is kept; longer ones have an entry for each token, not for each layer."""
_ALIGNMENT: Final = 32
_LARGEST: Final = 1 << 60

BLOCKS: Final = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 36),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
    40: (64, 36),
    41: (128, 18),
}
"""Elements of a block and the bytes that they take, by tensor type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """Header of one file."""

    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    end: int
    """End of the last tensor: a shorter file is not whole."""
    file_bytes: int


def read_gguf(path: Path, budget: HeaderBudget) -> GgufFile:
    """Read the header of a file, at the expense of its model's budget.

    Raises:
        OSError: it cannot be read.
        HeaderError: it is no GGUF file of a known version, or not as the format says.
    """
    with BoundedFile(path, budget) as file:
        try:
            return _Header(file).read()
        except (error, OverflowError, UnicodeDecodeError) as wrong:
            raise HeaderError("its header makes no sense") from wrong


class _Header:
    """Cursor over a header."""

    def __init__(self, file: BoundedFile) -> None:
        self._file = file
        self._at = 0

    def read(self) -> GgufFile:
        self._check_magic()
        tensor_count = self._count(_MOST_TENSORS, "tensors")
        key_count = self._count(_MOST_KEYS, "keys")
        metadata: dict[str, Value] = {}
        for _ in range(key_count):
            self._file.budget.take(entries=_KEY_ENTRIES)
            key = self._text(_LONGEST_NAME)
            value = self._value(self._number(_U32))
            if value is not None and (key == _TOKENS or not key.startswith(_TOKENIZER)):
                metadata[key] = value
        found = [self._tensor() for _ in range(tensor_count)]
        return self._measured(metadata, found)

    def _check_magic(self) -> None:
        try:
            self._file.need(8)
        except EndOfFileError as short:
            raise EndOfFileError("it ends before its header begins") from short
        if self._file.buffer[:4] != _MAGIC:
            raise HeaderError("it is no GGUF file")
        version = _U32.unpack_from(self._file.buffer, 4)[0]
        if version not in _VERSIONS:
            swapped = int.from_bytes(self._file.buffer[4:8], "big")
            if swapped in _VERSIONS:
                raise HeaderError("it is a big-endian GGUF file, which this machine cannot use")
            raise HeaderError(f"GGUF version {version} is not known")
        self._at = 8

    def _number(self, layout: Struct) -> Any:
        value = self._file.number(layout, self._at)
        self._at += layout.size
        return value

    def _count(self, most: int, what: str) -> int:
        count: int = self._number(_U64)
        if count > most:
            raise HeaderError(f"it claims to have {count} {what}")
        return count

    def _span(self, length: int) -> int:
        """Skip `length` bytes; returns their position."""
        begin, self._at = self._at, self._at + length
        self._file.need(self._at)
        return begin

    def _text(self, longest: int) -> str:
        length = self._number(_U64)
        if length > longest:
            raise HeaderError(f"a name in it has {length} bytes")
        begin = self._span(length)
        return self._file.buffer[begin : self._at].decode("utf-8")

    def _value(self, kind: int) -> Value | None:
        if kind == _STRING:
            length = self._number(_U64)
            begin = self._span(length)
            kept = self._file.buffer[begin : begin + min(length, _LONGEST_TEXT)]
            return kept.decode("utf-8", "replace")
        if kind == _LIST:
            return self._list(self._number(_U32), self._number(_U64))
        layout = _SCALARS.get(kind)
        if layout is None:
            raise HeaderError(f"a value in it is of the unknown type {kind}")
        value: Value = self._number(layout)
        return value

    def _list(self, kind: int, count: int) -> Value | None:
        if kind == _STRING:
            self._skip_texts(count)
            return count
        layout = _SCALARS.get(kind)
        if layout is None:
            raise HeaderError(f"a list in it is of the unknown type {kind}")
        begin = self._span(count * layout.size)
        if count > _LONGEST_LIST:
            return None
        self._file.budget.take(entries=count * _NUMBER_ENTRIES)
        values = iter_unpack(layout.format, memoryview(self._file.buffer)[begin : self._at])
        return tuple(v for (v,) in values)

    def _skip_texts(self, count: int) -> None:
        self._file.budget.take(entries=count)
        file, at, unpack = self._file, self._at, _U64.unpack_from
        buffer, have = file.buffer, len(file.buffer) - 8
        for _ in range(count):
            if at > have:
                file.need(at + 8)
                have = len(buffer) - 8
            at += 8 + unpack(buffer, at)[0]
        self._at = at
        file.need(at)

    def _tensor(self) -> tuple[str, int | None, int]:
        """Return name, bytes (None: of an unknown type) and position of the next tensor."""
        self._file.budget.take(entries=_TENSOR_ENTRIES)
        name = self._text(_LONGEST_TENSOR_NAME)
        dimensions = self._number(_U32)
        if dimensions > _MOST_DIMENSIONS:
            raise HeaderError(f"a tensor in it has {dimensions} dimensions")
        elements = 1
        for _ in range(dimensions):
            elements *= self._number(_U64)
        kind, place = self._number(_U32), self._number(_U64)
        block = BLOCKS.get(kind)
        stored = None if block is None else -(-elements // block[0]) * block[1]
        if max(stored or 0, place) > _LARGEST:
            raise HeaderError("a tensor in it is larger than any file")
        return name, stored, place

    def _measured(
        self, metadata: dict[str, Value], found: list[tuple[str, int | None, int]]
    ) -> GgufFile:
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise HeaderError("its alignment makes no sense")
        data = -(-self._at // alignment) * alignment
        rest = max(self._file.file_bytes - data, 0)
        # A tensor of an unknown type ends where the next one begins, or with the file.
        places = sorted({place for _, _, place in found})
        following = (
            dict(zip(places, [*places[1:], max(rest, places[-1])], strict=True)) if places else {}
        )
        sizes = [
            following[place] - place if stored is None else stored for _, stored, place in found
        ]
        ends = (place + size for (_, _, place), size in zip(found, sizes, strict=True))
        return GgufFile(
            metadata=metadata,
            tensors=tuple(Tensor(f[0], size) for f, size in zip(found, sizes, strict=True)),
            end=data + max(ends) if found else self._at,
            file_bytes=self._file.file_bytes,
        )


# --- safetensors ---------------------------------------------------------------------

_LENGTH: Final = Struct("<Q")
_LARGEST_JSON_BYTES: Final = 16 << 20
"""Largest JSON header: a tenth of the format's own limit, and ten times the largest seen."""
_LARGEST_WIDE_BYTES: Final = 4 << 20
"""Largest JSON with characters beyond ASCII, which take up to four times their bytes."""
_MOST_VALUES: Final = 400_000
"""Most values of one JSON text: an index of 140,000 weights has 280,000; each takes up to 100 bytes."""
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
