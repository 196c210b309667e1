"""Commands of the supervisor in the gateway (see `appliance.wire.gateway`)."""

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import assert_never

from appliance.gateway.meter import Meter
from appliance.gateway.predecessors import Traffic
from appliance.gateway.relay.request_list import RequestList
from appliance.gateway.routing_table import RoutingTable
from appliance.model.journal_events import JournalEvent, event_fields
from appliance.wire.gateway import (
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

_log = logging.getLogger(__name__)


class SupervisorCommands:
    """Executor of the supervisor's commands.

    Args:
        table: Takes states and holds.
        traffic: Requests to drain.
        meter: Counts of waiting requests, and all counters.
        requests: Has the requests in flight and held.
        reload: Reads keys and profiles again. What it raises is logged and reported.
        listening: Returns where clients are served; None: that is not told.
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
