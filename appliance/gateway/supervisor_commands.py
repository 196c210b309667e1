"""Commands of the supervisor in the gateway (see `appliance.wire.gateway`), and the list of requests that they show.

The list has the requests of clients that are in flight or held, each of which can be cut by its id.
A request gets its id when it is listed for the first time, so that a request that is never listed costs
nothing. Ids are of this process: another one never takes one of them for a request of its own.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, count
from time import monotonic
from typing import Final, assert_never
from weakref import WeakKeyDictionary

from appliance.gateway.exchange import Exchange
from appliance.gateway.handover import Traffic
from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.journal_events import JournalEvent, event_fields
from appliance.routing.refusals import REQUEST_CANCELLED
from appliance.wire.gateway import (
    ClientRequestRow,
    ClientRequestsDocument,
    CutCommand,
    DrainCommand,
    GatewayAnswer,
    GatewayCommand,
    HoldCommand,
    ReleaseCommand,
    ReloadCommand,
    RequestsCommand,
    RouteCommand,
    StatsCommand,
)
from appliance.wire.json_values import Json

MOST_LISTED: Final = 100
"""Requests in one list, the oldest: reading the end of each response takes some 20 µs, so no other is read."""


class RequestList:
    """List of the requests of one relay."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._ids: WeakKeyDictionary[Exchange, str] = WeakKeyDictionary()
        self._prefix = os.urandom(3).hex()
        self._numbers = count(1)

    def document(self) -> ClientRequestsDocument:
        """Return the oldest requests, and how many were left off."""
        ages = [(age_s, one) for one in self._exchanges() if (age_s := one.age_s) is not None]
        ages.sort(key=lambda each: -each[0])
        listed = [exchange for _, exchange in ages[:MOST_LISTED]]
        rows = [row for one in listed if (row := one.row(self._id(one))) is not None]
        return {"requests": rows, "left_off": len(ages) - len(rows)}

    def cut(self, wanted: str) -> ClientRequestRow | None:
        """End a request with an error for its client; return its row, None: it is over."""
        exchange = next((one for one in self._exchanges() if self._ids.get(one) == wanted), None)
        row = None if exchange is None else exchange.row(wanted)
        if exchange is not None and row is not None:
            exchange.cut(REQUEST_CANCELLED)
        return row

    def _id(self, exchange: Exchange) -> str:
        return self._ids.setdefault(exchange, f"{self._prefix}-{next(self._numbers)}")

    def _exchanges(self) -> Iterable[Exchange]:
        upstreams = self._relay.upstreams.values()
        requests = chain(self._relay.hold_queue.requests(), *(one.in_flight for one in upstreams))
        return (one for one in requests if isinstance(one, Exchange))


_log = logging.getLogger(__name__)


class SupervisorCommands:
    """Executor of the supervisor's commands.

    Args:
        table: Takes states and holds.
        traffic: Requests to drain.
        meter: Counts of waiting requests, and all counters.
        requests: Has the requests in flight and held.
        reload: Reads keys and profiles again. What it raises is logged and reported.
        listening: Returns where clients are served; None: the answer leaves it out.
    """

    def __init__(
        self,
        table: RoutingTable,
        traffic: Traffic,
        meter: Meter,
        requests: RequestList,
        *,
        reload: Callable[[], None],
        listening: Callable[[], Json] | None = None,
    ) -> None:
        self._table = table
        self._traffic = traffic
        self._meter = meter
        self._requests = requests
        self._reload = reload
        self._listening = listening
        self._began_s = monotonic()

    async def do(self, command: GatewayCommand) -> GatewayAnswer:  # noqa: PLR0911 - one a command
        """Execute a command. Raises `ValueError` when keys or profiles cannot be read."""
        match command:
            case RouteCommand(state):
                self._table.take(state)
            case HoldCommand(names):
                self._table.hold(names)
                return GatewayAnswer(waiting=self._meter.waiting(names))
            case DrainCommand(names, timeout_s):
                return await self._drain(names, timeout_s)
            case ReleaseCommand(state):
                waiting = self._meter.waiting()
                self._table.take(state)
                return GatewayAnswer(released=waiting)
            case StatsCommand():
                return GatewayAnswer(stats=self._stats())
            case RequestsCommand():
                return GatewayAnswer(requests=self._requests.document())
            case CutCommand(request):
                return self._cut(request)
            case ReloadCommand():
                self._try_reload()
            case never:
                assert_never(never)
        return GatewayAnswer()

    def _cut(self, request: str) -> GatewayAnswer:
        row = self._requests.cut(request)
        if row is None:
            return GatewayAnswer()
        return GatewayAnswer(cut=1, requests={"requests": [row], "left_off": 0})

    def _stats(self) -> Json:
        stats = {**self._meter.document(), "uptime_s": round(monotonic() - self._began_s, 1)}
        return stats if self._listening is None else {**stats, "listening": self._listening()}

    async def _drain(self, names: Sequence[str], timeout_s: float) -> GatewayAnswer:
        finished, cut = await self._traffic.drain(names, timeout_s)
        if cut:
            fields = event_fields(JournalEvent.REQUESTS_CUT, profiles=names)
            _log.warning("%d requests were cut after %.0f s", cut, timeout_s, extra=fields)
        return GatewayAnswer(finished=finished, cut=cut)

    def _try_reload(self) -> None:
        try:
            self._reload()
        except Exception as error:
            _log.exception("reload failed: keys and profiles stay as they were")
            raise ValueError(f"not read: {error}") from error
