"""Parser of sizes and durations as people write them: "18.6GiB", "5m", "1h30m"."""

import re
from typing import Final

_SIZE: Final = re.compile(r"(\d{1,9}(?:\.\d{1,6})?) ?(B|[KMGT]i?B)?\Z", re.ASCII)
_UNITS: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
_MOST_DIGITS: Final = 999_999_999
_DURATION: Final = re.compile(
    r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,6}(?:\.\d{1,6})?)s)?"
    r"(?:(\d{1,9})ms)?\Z",
    re.ASCII,
)
_PARTS_S: Final = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)


def size_bytes(text: str) -> int | None:
    """Return the bytes in "18.6GiB", "512 MiB", "20GB" or "0"; None: `text` is no size."""
    match = _SIZE.match(text)
    if match is None:
        return None
    number, unit = match.groups()
    if unit is None and float(number) != 0:
        return None  # a bare number could be bytes or MiB
    return round(float(number) * _UNITS[unit or "B"])


def size_text(count_bytes: int) -> str:
    """Return a text that `size_bytes` reads: exact where a unit fits, else to a few bytes."""
    if not count_bytes:
        return "0"
    unit = next(u for u in ("TiB", "GiB", "MiB", "KiB", "B") if not count_bytes % _UNITS[u])
    whole = count_bytes // _UNITS[unit]
    return f"{whole}{unit}" if whole <= _MOST_DIGITS else f"{count_bytes / _UNITS['GiB']:.6f}GiB"


def duration_s(text: str) -> float | None:
    """Return the seconds in "90s", "5m", "1h30m", "250ms" or "2d"; None: `text` is no duration."""
    match = _DURATION.match(text)
    if match is None or not text:
        return None
    return sum(
        float(part) * unit for part, unit in zip(match.groups(), _PARTS_S, strict=True) if part
    )
