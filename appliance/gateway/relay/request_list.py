"""List of the requests of clients that are in flight or held, each of which can be cut by its id.

A request gets its id when it is listed for the first time, so that one at which nobody looks costs
nothing. Ids are of this process: another one never takes one of them for a request of its own.
"""

import os
from collections.abc import Iterable, Mapping
from itertools import chain, count
from typing import Final
from weakref import WeakKeyDictionary

from appliance.gateway.relay.exchange import Exchange, RequestSummary
from appliance.gateway.relay.relay import Relay
from appliance.routing.refusals import REQUEST_CANCELLED

MOST_LISTED: Final = 100
"""Requests in one list, the oldest: reading the end of each response takes some 20 µs, so no other is read."""


class RequestList:
    """List of the requests of one relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._ids: WeakKeyDictionary[Exchange, str] = WeakKeyDictionary()
        self._prefix = os.urandom(3).hex()
        self._numbers = count(1)

    def document(self) -> Mapping[str, object]:
        """Return the oldest requests, and how many were left off, for JSON."""
        ages = [(age_s, one) for one in self._exchanges() if (age_s := one.age_s) is not None]
        ages.sort(key=lambda each: -each[0])
        rows = [
            _row(self._id(exchange), summary)
            for _, exchange in ages[:MOST_LISTED]
            if (summary := exchange.summary()) is not None
        ]
        return {"requests": rows, "left_off": len(ages) - len(rows)}

    def cut(self, wanted: str) -> Mapping[str, object] | None:
        """End a request with an error for its client; return its row, None: it is over."""
        exchange = next((one for one in self._exchanges() if self._ids.get(one) == wanted), None)
        summary = None if exchange is None else exchange.summary()
        if exchange is None or summary is None:
            return None
        row = _row(wanted, summary)
        exchange.cut(REQUEST_CANCELLED)
        return row

    def _id(self, exchange: Exchange) -> str:
        return self._ids.setdefault(exchange, f"{self._prefix}-{next(self._numbers)}")

    def _exchanges(self) -> Iterable[Exchange]:
        upstreams = self._relay.upstreams.values()
        requests = chain(self._relay.hold_queue.requests(), *(one.in_flight for one in upstreams))
        return (one for one in requests if isinstance(one, Exchange))


def _row(request_id: str, summary: RequestSummary) -> Mapping[str, object]:
    progress, waited_s = summary.progress, summary.progress.waited_s
    return {
        "id": request_id,
        "profile": summary.profile,
        "api": summary.api.value,
        "key": summary.key,
        "state": summary.state,
        "streams": summary.streams,
        "age_s": round(progress.age_s, 1),
        "waited_s": None if waited_s is None else round(waited_s, 1),
        "pieces": progress.pieces,
        "bytes": progress.size_bytes,
        "tokens": summary.tokens,
    }
