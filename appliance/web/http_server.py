"""HTTP server of the web process: uvicorn, with bounds on connections and on the time of a request head.

===================================  ======================================================
a connection                         is closed
===================================  ======================================================
that reads no response               after `READ_WITHIN_S`
without a request head               after `HEAD_S`, from its begin or the last response
with a head above 16 KiB             at once, with 400
above `MOST_CONNECTIONS`             for a newcomer: the longest idle one of the owner of the
                                     most; one in answer only for an owner who has less. Else
                                     the newcomer is, with 503
of other machines, above             likewise among them: this machine's own clients keep their
`MOST_OF_OTHERS`                     places
at an address that is not open       at once, without an answer
===================================  ======================================================

An owner is a user of this machine, or another machine: `appliance.routing.fair_share`.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

import h11
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from appliance.routing.fair_share import Share, ShareUse, choose_evictions
from appliance.web.guards import Endpoint, is_of_this_machine
from appliance.web.problem import PROBLEM_TYPE, ProblemDocument, problem_body, problem_of

HEAD_S: Final = 10.0
READ_WITHIN_S: Final = 20.0
MOST_CONNECTIONS: Final = 256
MOST_OF_OTHERS: Final = 128
"""Connections of other machines."""
_MOST_HEAD_BYTES: Final = 16 << 10
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_ENDING_S: Final = 2.0
"""Time for responses under way when the process ends."""
_LOOK_EVERY_S: Final = 1.0
_MALFORMED: Final = problem_of(400, "the request is not HTTP/1.1, or its head is too long")
_FULL: Final = problem_of(503, "too many connections are open", "close some, or try again")

Admits = Callable[[str, int], bool]
OwnerOf = Callable[[Endpoint, Endpoint], str]


class BoundedProtocol(H11Protocol):
    """Connection of one client."""

    head_s: ClassVar[float] = HEAD_S
    read_within_s: ClassVar[float] = READ_WITHIN_S
    _since_s: float = 0.0
    """Time since when the connection waits for a head, or answers a request."""
    _owner: str | None = None
    """Owner; None: nobody has asked for it."""
    _head_timer: asyncio.TimerHandle | None = None
    _reading_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection, or refuse it."""
        super().connection_made(transport)
        if not self._is_admitted:
            transport.abort()
        else:
            self._expect_head()
            if self._is_one_too_many:
                self._stop_timer()
                self._refuse(_FULL)

    def pause_writing(self) -> None:
        """Wait for the client to read; one that reads nothing is disconnected."""
        super().pause_writing()
        self._reading_timer = self.loop.call_later(self.read_within_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection."""
        self._stop_timer()
        if self._reading_timer is not None:
            self._reading_timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Take in what came; a head that is there ends the wait for one."""
        if self.conn.their_state is h11.IDLE and self._is_head_too_long:
            # h11 itself refuses a long head only while its end has not come.
            self.send_400_response("the head is too long")
            return
        super().handle_events()
        if self._is_answering:
            self._since_s = self.loop.time()
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._expect_head()
        super().on_response_complete()

    def send_400_response(self, _msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(_MALFORMED)

    @property
    def is_of_others(self) -> bool:
        """Tell whether the client may be another machine."""
        return not is_of_this_machine(self.server, self.client)

    @property
    def _is_admitted(self) -> bool:
        assert isinstance(self.config, ServerConfig)  # noqa: S101 - `WebServer` makes both
        return self.server is not None and self.config.admits(self.server[0], self.server[1] or 0)

    @property
    def _is_one_too_many(self) -> bool:
        """Tell whether there is no room for the connection, also after others have made some."""
        open_ones = [
            one
            for one in self.connections
            if isinstance(one, BoundedProtocol) and not one.transport.is_closing()
        ]
        others = [one for one in open_ones if one.is_of_others]
        if self.is_of_others and len(others) > MOST_OF_OTHERS:
            return not self._make_room(others)
        return len(open_ones) > MOST_CONNECTIONS and not self._make_room(open_ones)

    def _make_room(self, sharing: "Sequence[BoundedProtocol]") -> bool:
        """Disconnect one of these connections for this one; False: all owners have no more than its own."""
        shares = [one.share() for one in sharing]
        for at in choose_evictions(shares, self.share().owner, least=1):
            if sharing[at] is not self:
                sharing[at].transport.abort()
                return True
        return False

    def share(self) -> Share:
        """Return the connection's share of all connections."""
        if self._owner is None:
            assert isinstance(self.config, ServerConfig)  # noqa: S101 - as below
            self._owner = self.config.owner_of(self.client, self.server)
        if self._is_answering:
            return Share(self._owner, 1, ShareUse.WORKING, -self._since_s)
        return Share(self._owner, 1, ShareUse.IDLE, self._since_s)

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def _is_head_too_long(self) -> bool:
        came, _ = self.conn.trailing_data
        end = _HEAD_END.search(came)
        return (len(came) if end is None else end.end()) > _MOST_HEAD_BYTES

    def _expect_head(self) -> None:
        self._stop_timer()
        self._since_s = self.loop.time()
        self._head_timer = self.loop.call_later(self.head_s, self._give_up)

    def _give_up(self) -> None:
        """Disconnect the client, unless it still reads the last response."""
        if self.transport.get_write_buffer_size():
            self._expect_head()
        else:
            self.transport.abort()

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, problem: ProblemDocument) -> None:
        body = problem_body(problem)
        if self.conn.our_state is h11.IDLE:
            head = (
                f"HTTP/1.1 {problem.status} {problem.title}\r\ncontent-type: {PROBLEM_TYPE}\r\n"
                f"content-length: {len(body)}\r\nx-content-type-options: nosniff\r\n"
                "cache-control: no-store\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


class ServerConfig(Config):
    """Configuration of uvicorn, and which addresses are open.

    Args:
        application: Answers requests.
        admits: Tells whether clients at an address and port are let in now.
        owner_of: Returns the owner of a connection.
        more: As of uvicorn's own class.
    """

    def __init__(
        self, application: ASGIApp, admits: Admits, owner_of: OwnerOf, **more: Any
    ) -> None:
        super().__init__(application, **more)
        self.admits = admits
        self.owner_of = owner_of


class WebServer(Server):
    """Server on the sockets that systemd passed; ends when it is told to, or when nobody asks.

    Args:
        application: Answers requests.
        admits: Tells whether clients at an address and port are let in now.
        owner_of: Returns the owner of a connection by the addresses of the client's and of this end.
        protocol: Class of its connections, which has their deadlines.
    """

    def __init__(
        self,
        application: ASGIApp,
        admits: Admits,
        owner_of: OwnerOf,
        protocol: type[BoundedProtocol] = BoundedProtocol,
    ) -> None:
        super().__init__(
            ServerConfig(
                application,
                admits,
                owner_of,
                http=protocol,
                ws="none",
                lifespan="off",
                loop="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
                timeout_keep_alive=int(protocol.head_s),
                timeout_graceful_shutdown=int(_ENDING_S),
            )
        )

    async def serve_until_idle(self, listeners: list[socket.socket], idle_s: float) -> None:
        """Answer until no connection was open for `idle_s`."""
        idle = asyncio.create_task(self._end_when_idle(idle_s))
        try:
            await self.serve(sockets=listeners)
        finally:
            idle.cancel()

    async def _end_when_idle(self, idle_s: float) -> None:
        loop = asyncio.get_running_loop()
        seen, since_s = -1, loop.time()
        while True:
            if self.server_state.connections or self.server_state.total_requests != seen:
                seen, since_s = self.server_state.total_requests, loop.time()
            elif loop.time() - since_s >= idle_s:
                self.should_exit = True
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the daemon, which ends this server by cancelling it."""
        yield
