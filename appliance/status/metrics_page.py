"""Reader of an engine's metrics in Prometheus's text format."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence


def samples(page: str, names: Collection[str]) -> Mapping[str, Sequence[float]]:
    """Return the values of `names` on a page: one for every set of labels, none of them negative.

    The sum of a histogram is a name of its own, with the ending ``_sum``.
    """
    found: dict[str, list[float]] = {}
    for line in page.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in names and (value := _value(line)) is not None:
            found.setdefault(name, []).append(value)
    return found


def first_of(found: Mapping[str, Sequence[float]], names: Iterable[str]) -> Sequence[float]:
    """Return the values of the first of several names that the page has; empty: it has none."""
    return next((found[name] for name in names if name in found), ())


def _value(line: str) -> float | None:
    """Parse ``name{labels} value [time]`` from its end, since a label may contain anything."""
    words = line.rpartition("}")[2].split() if "}" in line else line.split()[1:]
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None
