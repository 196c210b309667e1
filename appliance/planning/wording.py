"""How durations, sizes, names and suggestions are written for people.

`appliance.domain.quantities` reads what people write.
"""

from collections.abc import Iterable, Sequence
from typing import Final

_MINUTE_S: Final = 60
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_DECIMAL_BELOW_S: Final = 100
"""47.9 s reads better than 48 s; 247.9 s does not."""
_DAYS_FROM_S: Final = 2 * _DAY_S
_SIZE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024
_SHORT: Final = 64
"""Characters; a profile's name has at most 48."""


def duration(seconds: float) -> str:
    """`seconds` as a measurement: ``47.9 s``, ``2 min 5 s``, ``3 h 12 min``, ``12 d``."""
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
    """`seconds` as a rough age in one unit: ``12 s``, ``35 min``, ``5 h``, ``2 d``."""
    whole = max(0, int(seconds))
    if whole < 2 * _MINUTE_S:
        return f"{whole} s"
    if whole < 2 * _HOUR_S:
        return f"{whole // _MINUTE_S} min"
    if whole < _DAYS_FROM_S:
        return f"{whole // _HOUR_S} h"
    return f"{whole // _DAY_S} d"


def size(count_bytes: float) -> str:
    """`count_bytes` in the largest unit that leaves at least 1: ``18.6 GiB``, ``512 MiB``."""
    value, unit = _scaled(count_bytes)
    return _amount(value, unit) + f" {unit}"


def size_of_total(part_bytes: float, total_bytes: float) -> str:
    """A part of a total, both in the total's unit: ``12.1 of 18.6 GiB``."""
    total, unit = _scaled(total_bytes)
    part = part_bytes / _STEP ** _SIZE_UNITS.index(unit)
    return f"{_amount(part, unit)} of {_amount(total, unit)} {unit}"


def _scaled(count_bytes: float) -> tuple[float, str]:
    value = float(count_bytes)
    for unit in _SIZE_UNITS[:-1]:
        if abs(value) < _STEP:
            return value, unit
        value /= _STEP
    return value, _SIZE_UNITS[-1]


def _amount(value: float, unit: str) -> str:
    return f"{value:.1f}" if unit in {"GiB", "TiB"} else f"{value:.0f}"


def joined(names: Sequence[str], *, nothing: str = "nothing") -> str:
    """``a``, ``a and b``, ``a, b and c``; `nothing` for no names."""
    if not names:
        return nothing
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was probably meant to be; None: nothing is close."""
    # Only needed once something is already wrong, and not free to import.
    from difflib import get_close_matches  # noqa: PLC0415

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=0.6)), None)


def short(text: str) -> str:
    """What somebody typed or sent, as a message may show it: on one line, and not for ever."""
    if len(text) > _SHORT:
        text = f"{text[:_SHORT]}…"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def no_such_profile(name: str, known: Iterable[str]) -> str:
    """The sentence for a profile that is not applied, with a suggestion where one is close."""
    names = sorted(known)
    name = short(name)
    if not names:
        return f'no profile "{name}": none is applied yet (sudo appliance apply)'
    meant = closest(name, names)
    if meant is None:
        return f'no profile "{name}": appliance list --all'
    return f'no profile "{name}". Did you mean "{meant}"?'
