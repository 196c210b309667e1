"""Types of the values that options of llama.cpp's server take in a profile."""

import re
from collections.abc import Iterable
from typing import Annotated, Final, Literal

from appliance.model.value_types import (
    Check,
    Length,
    Range,
    Text,
    TypeName,
    ValueParser,
    WrongValueError,
    is_index,
    shown,
    size,
)

_MAX_INDEX: Final = 1023
_MAX_RANGES: Final = 4096
"""Limit of a text with ranges, in characters."""
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z", re.ASCII)
_MASK: Final = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,256})\Z")
_UNLIMITED: Final = -1


def _numbers(value: object) -> tuple[int, ...]:
    """Parse a list of indexes, or a text such as "0,2,4-9"."""
    found: Iterable[int] = ()
    if isinstance(value, list) and all(is_index(item, _MAX_INDEX) for item in value):
        found = value
    elif isinstance(value, str) and len(value) <= _MAX_RANGES:
        found = _ranges(value)
    if not found:
        raise WrongValueError(f'{shown(value)} is not a list or range such as "0,2,4-9"')
    return tuple(sorted(set(found)))


def _ranges(text: str) -> set[int]:
    """Return every number in `text`; empty when it is malformed."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > _MAX_INDEX:
            return set()
        found.update(range(first, last + 1))
    return found


def _experts(value: object) -> Literal["all"] | tuple[int, ...]:
    return "all" if value == "all" else _numbers(value)


def _on_off_auto(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in ("on", "off", "auto"):
        return str(value)
    raise WrongValueError(f'{shown(value)} is not "on", "off" or "auto"')


def _cache_mib(value: object) -> int:
    return _UNLIMITED if value == "unlimited" else size(value) >> 20


def _tensor_override(text: str) -> str:
    pattern, equals, buffer = text.rpartition("=")
    if not (pattern and equals and buffer) or "," in text:
        raise WrongValueError(
            f"{shown(text)} is not a pattern of tensors and a buffer, such as "
            r"blk\.[0-9]\.ffn_.*_exps\.=CPU"
        )
    return text


def cpu_mask(cpus: Iterable[int]) -> str:
    """Return CPU numbers as the hexadecimal mask that llama.cpp reads: 0,2,4-9 is 3F5."""
    return f"{sum(1 << n for n in set(cpus)):X}"


def cpus_in_mask(text: str) -> list[int]:
    """Return the CPU numbers in a mask. Raises `ValueError`."""
    match = _MASK.match(text)
    if match is None:
        raise ValueError("is no hexadecimal mask")
    bits = int(match[1], 16)
    return [n for n in range(bits.bit_length()) if bits >> n & 1]


def cache_size(text: str) -> str:
    """Return what a profile writes for a number of MiB. Raises `ValueError`."""
    mib = int(text)
    return "unlimited" if mib == _UNLIMITED else f"{mib}MiB"


Cpus = Annotated[tuple[int, ...], ValueParser(_numbers), TypeName("range or list")]
Experts = Annotated[
    Literal["all"] | tuple[int, ...], ValueParser(_experts), TypeName("all, range or list")
]
OnOffAuto = Annotated[str, ValueParser(_on_off_auto), TypeName("true, false or auto")]
CacheMib = Annotated[int, ValueParser(_cache_mib), TypeName("size or unlimited")]
LayerCount = Annotated[int, Range(least=1, most=9999)]
TensorOverrides = Annotated[tuple[Annotated[Text, Check(_tensor_override)], ...], Length(most=64)]
