"""Bytes and seconds for people."""

from __future__ import annotations

_MIB = 1 << 20
_GIB = 1 << 30
_MINUTE_S = 60
_HOUR_S = 3600
_WHOLE_FROM_S = 10
"""12 s reads better than 12.3 s; 0 s does not."""


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


def duration(seconds: float) -> str:
    """`seconds` roughly, ``0.4 s``, ``35 s``, ``12 min``, ``5 h``."""
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.1f} s" if seconds < _WHOLE_FROM_S else f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S:.0f} min"
    return f"{seconds // _HOUR_S:.0f} h"
