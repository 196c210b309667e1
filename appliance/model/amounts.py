"""Sizes and durations as they are written for people; `appliance.model.quantities` reads theirs.

Imported while a model waits for its start: without `typing`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_MINUTE_S = 60
_HOUR_S = 3600
_DAY_S = 86_400
_DECIMAL_BELOW_S = 100
"""Seconds below which a duration has decimals: 47.9 s reads better than 48 s, but 248 s than 247.9
s."""
_DAYS_FROM_S = 2 * _DAY_S
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_WITH_DECIMAL = frozenset({"GiB", "TiB"})
_STEP = 1024


def size(count_bytes: float) -> str:
    """Return a size in the largest unit that leaves at least 1: ``18.6 GiB``, ``512 MiB``."""
    unit = _unit_of(count_bytes)
    return f"{_in(unit, count_bytes)} {unit}"


def size_of_total(part_bytes: float, total_bytes: float) -> str:
    """Return a part of a total, both in the total's unit: ``12.1 of 18.6 GiB``."""
    unit = _unit_of(total_bytes)
    return f"{_in(unit, part_bytes)} of {_in(unit, total_bytes)} {unit}"


def size_change(from_bytes: float, to_bytes: float) -> str:
    """Return a size before and after, both in the unit of the larger: ``12.1 → 0.4 GiB``."""
    unit = _unit_of(max(from_bytes, to_bytes))
    return f"{_in(unit, from_bytes)} → {_in(unit, to_bytes)} {unit}"


def parts_text(parts: Mapping[str, int]) -> str:
    """Return the sum of parts and those that are not nothing: ``≈10.8 GiB: weights 7.7 GiB, cache 3.1 GiB``."""
    told = ", ".join(f"{name} {size(count)}" for name, count in parts.items() if count)
    return f"≈{size(sum(parts.values()))}: {told}"


def _unit_of(count_bytes: float) -> str:
    value = abs(float(count_bytes))
    for unit in _SIZE_UNITS[:-1]:
        if value < _STEP:
            return unit
        value /= _STEP
    return _SIZE_UNITS[-1]


def _in(unit: str, count_bytes: float) -> str:
    value = count_bytes / _STEP ** _SIZE_UNITS.index(unit)
    return f"{value:.1f}" if unit in _WITH_DECIMAL else f"{value:.0f}"


def duration(seconds: float) -> str:
    """Return a measured duration: ``47.9 s``, ``2 min 5 s``, ``3 h 12 min``, ``12 d``."""
    if round(seconds, 1) < _DECIMAL_BELOW_S:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return _two(whole, _MINUTE_S, "min", 1, "s")
    if whole < _DAYS_FROM_S:
        return _two(whole, _HOUR_S, "h", _MINUTE_S, "min")
    return f"{whole // _DAY_S} d"


def _two(whole: int, big_s: int, big: str, small_s: int, small: str) -> str:
    rest = whole % big_s // small_s
    return f"{whole // big_s} {big} {rest} {small}" if rest else f"{whole // big_s} {big}"


def age(seconds: float) -> str:
    """Return a rough age in one unit: ``12 s``, ``35 min``, ``5 h``, ``2 d``."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE_S:
        return f"{whole} s"
    if whole < 2 * _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAYS_FROM_S:
        return f"{whole // _HOUR_S} h"
    return f"{whole // _DAY_S} d"
