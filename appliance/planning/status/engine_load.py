"""What engines say about their own queue and KV cache, read from what they publish.

=============  ===========================  ===========================  =======================
engine         running                      queued                       KV cache
=============  ===========================  ===========================  =======================
llama-server   llamacpp:requests_processing llamacpp:requests_deferred   llamacpp:kv_cache_usage_ratio,
                                                                         or its slots
vllm           vllm:num_requests_running    vllm:num_requests_waiting    vllm:kv_cache_usage_perc,
                                                                         vllm:gpu_cache_usage_perc
sglang         sglang:num_running_reqs      sglang:num_queue_reqs        sglang:token_usage
=============  ===========================  ===========================  =======================

Names come and go with an engine's releases: one that is missing is no fault.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from appliance.domain.gateway import EngineLoad

_RUNNING: Final = (
    "llamacpp:requests_processing",
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
)
_QUEUED: Final = (
    "llamacpp:requests_deferred",
    "vllm:num_requests_waiting",
    "sglang:num_queue_reqs",
)
_KV_CACHE: Final = (
    "llamacpp:kv_cache_usage_ratio",
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
)
_WANTED: Final = frozenset({*_RUNNING, *_QUEUED, *_KV_CACHE})


def load_in(metrics: str) -> EngineLoad:
    """What a page of metrics in Prometheus's text format says."""
    found: dict[str, list[float]] = {}
    for line in metrics.splitlines():
        name = line.partition("{")[0].partition(" ")[0]
        if name in _WANTED and (value := _value(line)) is not None:
            found.setdefault(name, []).append(value)
    fullest = _first(found, _KV_CACHE)
    return EngineLoad(
        running=_sum(_first(found, _RUNNING)),
        queued=_sum(_first(found, _QUEUED)),
        # Of several ranks the fullest is the one that makes requests wait.
        kv_cache=min(1.0, max(fullest)) if fullest else None,
    )


def kv_cache_in_slots(slots: str) -> float | None:
    """The share of llama-server's context that requests take, from its slots; None: no slots."""
    try:
        document = json.loads(slots)
    except (ValueError, RecursionError):
        return None
    rows = [row for row in document if isinstance(row, dict)] if isinstance(document, list) else []
    total = sum(_whole(row.get("n_ctx")) for row in rows)
    return round(min(1.0, sum(map(_tokens, rows)) / total), 4) if total else None


def _tokens(row: Mapping[str, object]) -> int:
    """What a slot has in its context; one that rests keeps only what may be dropped."""
    if row.get("is_processing") is not True:
        return 0
    later = row.get("next_token")
    decoding = later[0] if isinstance(later, list) and later else later
    decoded = decoding.get("n_decoded") if isinstance(decoding, dict) else None
    return _whole(row.get("n_past")) or _whole(row.get("n_prompt_tokens")) + _whole(decoded)


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0


def _value(line: str) -> float | None:
    """``name{labels} value [time]``; a label may contain anything, so from the end."""
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
