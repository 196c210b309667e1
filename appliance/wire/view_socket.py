"""Table of view.sock: what processes that only look ask the health agent.

The socket is apart from the operators' health.sock, for the reason that status.sock is apart from the
control socket (docs/decisions/030-conversations.md). Its requests are some of those of health.sock, and
mean the same. `act` changes something, by the right of its token, which was in a message to the operator.
The other requests that change something want the token of an operator (`appliance.wire.token_socket`).
"""

from typing import Final

from appliance.model.record import Record
from appliance.wire.alert_requests import (
    AckRequest,
    ActRequest,
    AddWindowRequest,
    AlertRequest,
    AlertsRequest,
    OutboxRequest,
    RemoveWindowRequest,
    SilenceRequest,
    TestAlertRequest,
    UnsilenceRequest,
    WindowsRequest,
)
from appliance.wire.conversation import ActingRequest, SocketTable
from appliance.wire.health_socket import (
    HEALTH,
    BaselineRequest,
    BenchesRequest,
    HealthEvent,
    HealthRequest,
    HistoryRequest,
    MeasurementEventsRequest,
    MeasurementsRequest,
    ProbeNowRequest,
    SpeedsRequest,
    StateRecordRequest,
)

OFFERED: Final[frozenset[type[Record]]] = frozenset(
    {
        SpeedsRequest,
        HistoryRequest,
        StateRecordRequest,
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
BY_TOKEN: Final[frozenset[type[Record]]] = frozenset(
    {
        AckRequest,
        SilenceRequest,
        UnsilenceRequest,
        TestAlertRequest,
        AddWindowRequest,
        RemoveWindowRequest,
        ProbeNowRequest,
    }
)
"""Requests for the operator whose token they have."""

VIEW: Final[SocketTable[HealthRequest | ActingRequest, HealthEvent]] = SocketTable(
    name="view socket",
    server="health agent",
    unit="appliance-health",
    group="appliance-status",
    requests=tuple(row for row in HEALTH.requests if row[2] in OFFERED | BY_TOKEN),
    events=HEALTH.events,
    until_left=(MeasurementEventsRequest, ProbeNowRequest),
)
