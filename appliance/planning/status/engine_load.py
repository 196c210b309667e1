"""Load of an engine (running, queued, KV cache), read from what the engine publishes.

Metrics are looked for by the names of all engines: the program of a ``command`` may be any of them.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from appliance.domain.gateway import EngineLoad
from appliance.engines import ENGINES
from appliance.engines.shared.engine import KvCachePage

_METRICS: Final = tuple(engine.metrics for engine in ENGINES.values())
_RUNNING: Final = tuple(name for metrics in _METRICS for name in metrics.running)
_QUEUED: Final = tuple(name for metrics in _METRICS for name in metrics.queued)
_KV_CACHE: Final = tuple(name for metrics in _METRICS for name in metrics.kv_cache)
_WANTED: Final = frozenset({*_RUNNING, *_QUEUED, *_KV_CACHE})


def kv_cache_page(engine: str) -> KvCachePage | None:
    """Return the page to ask where the metrics of `engine` do not tell the use of its KV cache."""
    known = ENGINES.get(engine)
    return None if known is None else known.kv_cache_page


def load_in(metrics: str) -> EngineLoad:
    """Return the load that a page of metrics in Prometheus's text format tells."""
    found: dict[str, list[float]] = {}
    for line in metrics.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _WANTED and (value := _value(line)) is not None:
            found.setdefault(name, []).append(value)
    fullest = _first(found, _KV_CACHE)
    return EngineLoad(
        running=_sum(_first(found, _RUNNING)),
        queued=_sum(_first(found, _QUEUED)),
        # Of several ranks the one with the fullest cache makes requests wait.
        kv_cache=min(1.0, max(fullest)) if fullest else None,
    )


def _value(line: str) -> float | None:
    """Parse ``name{labels} value [time]`` from its end, since a label may contain anything."""
    words = line.rpartition("}")[2].split() if "}" in line else line.split()[1:]
    try:
        value = float(words[0])
    except (IndexError, ValueError):
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _first(found: Mapping[str, Sequence[float]], names: Iterable[str]) -> Sequence[float]:
    return next((found[name] for name in names if name in found), ())


def _sum(values: Sequence[float]) -> int | None:
    return round(sum(values)) if values else None
