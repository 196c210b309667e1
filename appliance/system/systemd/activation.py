"""Life of a small daemon that a socket of systemd starts, and that leaves when no client comes any more.

The socket stays with systemd meanwhile, so no client is refused: the next one starts the daemon again.
Such a daemon has no settings, and nothing to save at its end.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from appliance.model.service_lines import leaving_line
from appliance.system.systemd.daemon import Readiness, log_to_journal, named_sockets
from appliance.wire.control import Exit
from appliance.wire.server import FEW, Answer, serve_conversations

if TYPE_CHECKING:
    from appliance.wire.conversation import EventT, RequestT, SocketTable

_log = logging.getLogger(__name__)

IDLE_S: Final = 60.0
"""Time without a client after which such a daemon leaves."""


def serve_activated(
    unit: str,
    table: "SocketTable[RequestT, EventT]",
    answer: "Answer[RequestT, EventT]",
    *,
    idle_s: float = IDLE_S,
) -> int:
    """Answer on the socket of a .socket unit until no client comes; returns the exit status.

    Args:
        unit: The socket's unit.
        table: Table of the socket.
        answer: Yields the events of a request.
        idle_s: Time without a client after which to return.
    """
    log_to_journal("info")
    listener = named_sockets().get(unit)
    if listener is None:
        _log.error("%s passed no socket: systemctl start %s", unit, unit)
        return Exit.FAILED
    asyncio.run(
        serve_conversations(
            table,
            listener,
            lambda verb, args, _: table.decode_request(verb, args),
            answer,
            bounds=FEW,
            idle_s=idle_s,
        )
    )
    Readiness().tell(leaving_line(idle_s))
    return Exit.OK
