"""Times of one request as the difference of an engine's metrics before and after it.

Metrics are looked for by the names of all engines: the program of a ``command`` may be any of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from appliance.engines import ENGINES
from appliance.status.metrics_page import first_of, samples


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounters:
    """Counters of an engine at one moment, named as in `Metrics`; None: the engine has none."""

    finished: float | None
    prefill_s: float | None
    decode_s: float | None
    cached_tokens: float | None
    drafted_tokens: float | None
    accepted_tokens: float | None
    verify_steps: float | None


_FIELDS: Final = tuple(field.name for field in fields(RequestCounters))
_NAMES: Final[Mapping[str, Sequence[str]]] = {
    field: [name for engine in ENGINES.values() for name in getattr(engine.metrics, field)]
    for field in _FIELDS
}
_WANTED: Final = frozenset(name for names in _NAMES.values() for name in names)


def read_counters(page: str) -> RequestCounters:
    """Return the counters on a page of metrics, each summed over its labels."""
    found = samples(page, _WANTED)
    values = {field: first_of(found, names) for field, names in _NAMES.items()}
    return RequestCounters(**{field: sum(v) if v else None for field, v in values.items()})


def finished_between(before: RequestCounters, after: RequestCounters) -> int | None:
    """Return how many requests ended between two readings; None: the engine does not count them.

    An engine may count a request a moment after the end of its response.
    """
    change = _change(before.finished, after.finished)
    return None if change is None else round(change)


def one_request(before: RequestCounters, after: RequestCounters) -> RequestCounters | None:
    """Return the counters of the only request that ended between two readings.

    None: none ended, or more than one, or the engine was restarted meanwhile.
    """
    if finished_between(before, after) != 1:
        return None
    changes = {f: _change(getattr(before, f), getattr(after, f)) for f in _FIELDS}
    return RequestCounters(**changes)


def _change(before: float | None, after: float | None) -> float | None:
    """Return the growth of a counter; one with labels appears only with its first request."""
    if after is None or after < (before or 0.0):
        return None
    return after - (before or 0.0)
