"""Load of an engine (running, queued, KV cache), read from what the engine publishes.

Metrics are looked for by the names of all engines: the program of a ``command`` may be any of them.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import KvCachePage
from appliance.model.gateway import EngineLoad


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


_METRICS: Final = tuple(engine.metrics for engine in ENGINES.values())
_RUNNING: Final = tuple(name for metrics in _METRICS for name in metrics.running)
_QUEUED: Final = tuple(name for metrics in _METRICS for name in metrics.queued)
_KV_CACHE: Final = tuple(name for metrics in _METRICS for name in metrics.kv_cache)
_PREFIX_QUERIES: Final = tuple(name for metrics in _METRICS for name in metrics.prefix_queries)
_PREFIX_HITS: Final = tuple(name for metrics in _METRICS for name in metrics.prefix_hits)
_WANTED: Final = frozenset({*_RUNNING, *_QUEUED, *_KV_CACHE, *_PREFIX_QUERIES, *_PREFIX_HITS})


def kv_cache_page(engine: str) -> KvCachePage | None:
    """Return the page to ask where the metrics of `engine` do not tell the use of its KV cache."""
    known = ENGINES.get(engine)
    return None if known is None else known.kv_cache_page


def counts_prefixes(engine: str) -> bool:
    """Tell whether `engine` counts by itself what its prefix cache held."""
    known = ENGINES.get(engine)
    return known is not None and bool(known.metrics.prefix_queries)


def load_in(metrics: str) -> EngineLoad:
    """Return the load that a page of metrics in Prometheus's text format tells."""
    found = samples(metrics, _WANTED)
    fullest = first_of(found, _KV_CACHE)
    return EngineLoad(
        running=_sum(first_of(found, _RUNNING)),
        queued=_sum(first_of(found, _QUEUED)),
        # Of several ranks the one with the fullest cache makes requests wait.
        kv_cache=min(1.0, max(fullest)) if fullest else None,
        prefix_queries=_sum(first_of(found, _PREFIX_QUERIES)),
        prefix_hits=_sum(first_of(found, _PREFIX_HITS)),
    )


def _sum(values: Sequence[float]) -> int | None:
    return round(sum(values)) if values else None
