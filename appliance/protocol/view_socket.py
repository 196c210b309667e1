"""Table of view.sock: what processes that only look ask the health agent.

The socket is apart from the operators' health.sock, for the reason that status.sock is apart from the
control socket (docs/decisions/030-conversations.md). Its requests are some of those of health.sock, and
mean the same. `act` changes something, by the right of its token, which was in a message to the operator.
"""

from typing import Final

from appliance.protocol.alert_requests import (
    ActRequest,
    AlertRequest,
    AlertsRequest,
    OutboxRequest,
    WindowsRequest,
)
from appliance.protocol.conversation.codec import SocketTable
from appliance.protocol.health_socket import (
    HEALTH,
    HEALTH_READERS,
    BaselineRequest,
    BenchesRequest,
    HealthEvent,
    HealthRequest,
    HistoryRequest,
    MeasurementEventsRequest,
    MeasurementsRequest,
    SpeedsRequest,
)
from appliance.protocol.record import Record

OFFERED: Final[frozenset[type[Record]]] = frozenset(
    {
        SpeedsRequest,
        HistoryRequest,
        MeasurementsRequest,
        MeasurementEventsRequest,
        BaselineRequest,
        BenchesRequest,
        AlertsRequest,
        AlertRequest,
        OutboxRequest,
        WindowsRequest,
        ActRequest,
    }
)
"""Requests that change nothing, and the button of a message."""

VIEW: Final[SocketTable[HealthRequest, HealthEvent]] = SocketTable(
    name="view socket",
    server="health agent",
    unit="appliance-health",
    group="appliance-status",
    requests=tuple(row for row in HEALTH.requests if row[2] in OFFERED),
    events=HEALTH.events,
    readers=HEALTH_READERS,
    until_left=(MeasurementEventsRequest,),
)
