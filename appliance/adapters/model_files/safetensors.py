"""Readers of safetensors headers, and of the JSON files beside them.

Layout: https://github.com/huggingface/safetensors#format: eight bytes with the length of a JSON
object, the object, then the data its offsets point into.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any, Final

from appliance.adapters.model_files.bounded import BoundedFile, HeaderError
from appliance.protocol.json_values import parse_object

_LENGTH: Final = Struct("<Q")
_LARGEST_JSON_BYTES: Final = 16 << 20
"""Largest JSON header: a tenth of the format's own limit, and ten times the largest seen."""
_LARGEST: Final = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetensorsFile:
    """Header of one file."""

    weights_bytes: int
    end: int
    """End of the last tensor: a shorter file is not whole."""
    file_bytes: int


def read_safetensors(path: Path) -> SafetensorsFile:
    """Read the header of a file.

    Raises:
        OSError: it cannot be read.
        HeaderError: it is no safetensors file, or not as the format says.
    """
    with BoundedFile(path) as file:
        length = file.number(_LENGTH, 0)
        if length > _LARGEST_JSON_BYTES:
            raise HeaderError("it is no safetensors file")
        begin = _LENGTH.size
        file.need(begin + length)
        header = _object(bytes(file.buffer[begin : begin + length]))
        weights = 0
        for name, entry in header.items():
            if name != "__metadata__":
                weights = max(weights, _end(entry))
        return SafetensorsFile(
            weights_bytes=weights, end=begin + length + weights, file_bytes=file.file_bytes
        )


def _end(entry: Any) -> int:
    try:
        first, end = entry["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise HeaderError("its header makes no sense") from error
    if type(first) is not int or type(end) is not int or not 0 <= first <= end <= _LARGEST:
        raise HeaderError("its header makes no sense")
    return end


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in a small file.

    Raises:
        OSError: it cannot be read.
        HeaderError: it is too large, or holds no object.
    """
    with BoundedFile(path) as file:
        if file.file_bytes > _LARGEST_JSON_BYTES:
            raise HeaderError(f"{path.name} is larger than {_LARGEST_JSON_BYTES >> 20} MiB")
        file.need(file.file_bytes)
        return _object(bytes(file.buffer[: file.file_bytes]))


def _object(text: bytes) -> dict[str, Any]:
    try:
        return parse_object(text)
    except ValueError as error:
        raise HeaderError(f"its header is {error}") from error
