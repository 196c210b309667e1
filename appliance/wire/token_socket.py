"""Table of token.sock: what appliance-web asks the supervisor for in the name of an operator.

Its requests are some of those of the control socket, and mean the same. Each has the token of an operator
(`appliance.wire.conversation`); without one the socket offers nothing, since its client has no rights
of its own.
"""

from __future__ import annotations

from appliance.wire.control_requests import (
    CONTROL,
    AttachRequest,
    CancelRequest,
    ControlRequest,
    CutRequest,
    MarkRequest,
    RestartRequest,
    StartRequest,
    StopRequest,
    SwitchRequest,
)
from appliance.wire.conversation import ActingRequest, SocketTable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.wire.control_events import ControlEvent

OFFERED: Final = (
    SwitchRequest,
    StartRequest,
    StopRequest,
    RestartRequest,
    CancelRequest,
    AttachRequest,
    CutRequest,
    MarkRequest,
)
"""Requests by token. Not `run`, which takes the credentials of a process, nor those that make further
credentials, nor `hold`, which a terminal is for."""

TOKEN: Final[SocketTable[ControlRequest | ActingRequest, ControlEvent]] = SocketTable(
    name="token socket",
    server="supervisor",
    unit="appliance-supervisor",
    group="appliance-web",
    requests=tuple(row for row in CONTROL.requests if row[2] in OFFERED),
    events=CONTROL.events,
    results=CONTROL.results,
    closing=CONTROL.closing,
    until_left=CONTROL.until_left,
)
