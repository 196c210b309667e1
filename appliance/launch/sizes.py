"""Bytes for people."""

from __future__ import annotations

_MIB = 1 << 20
_GIB = 1 << 30


def size(count_bytes: float) -> str:
    """Bytes in GiB with one decimal, in MiB below one GiB: ``18.6 GiB``, ``512 MiB``."""
    if abs(count_bytes) < _GIB:
        return f"{count_bytes / _MIB:.0f} MiB"
    return f"{count_bytes / _GIB:.1f} GiB"


def size_of(part_bytes: float, whole_bytes: float) -> str:
    """A part and its whole in the whole's unit: ``12.1 of 18.6 GiB``."""
    if abs(whole_bytes) < _GIB:
        return f"{part_bytes / _MIB:.0f} of {whole_bytes / _MIB:.0f} MiB"
    return f"{part_bytes / _GIB:.1f} of {whole_bytes / _GIB:.1f} GiB"


def change(from_bytes: float, to_bytes: float) -> str:
    """Bytes before and after in the unit of the larger: ``12.1 → 0.4 GiB``."""
    if max(abs(from_bytes), abs(to_bytes)) < _GIB:
        return f"{from_bytes / _MIB:.0f} → {to_bytes / _MIB:.0f} MiB"
    return f"{from_bytes / _GIB:.1f} → {to_bytes / _GIB:.1f} GiB"
