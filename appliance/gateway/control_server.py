"""gateway.sock: how the supervisor tells the gateway what serves, and asks what it sees.

NDJSON, one object a line each way, any number of requests on a connection, one after another:

===============================================  ==========================================
``{"verb": "route", "state": {…}}``              serve by this from now on
``{"verb": "hold", "names": […]}``               let new requests for these profiles wait;
                                                 answers how many wait
``{"verb": "drain", "names": […], "timeout_s"}`` answers when their requests have finished or
                                                 were cut, and how many of each
``{"verb": "release", "state": {…}}``            as ``route``; answers how many waited
``{"verb": "stats"}``                            answers what was measured
``{"verb": "reload"}``                           read keys and profiles again
===============================================  ==========================================

An answer has ``ok``; when that is false, ``error`` says why. Who is hung up on without one asks
again: another process has taken over. A drain ends with its connection: a
supervisor that dies or is told to go back cuts nobody. Who may connect is the socket's mode.
"""

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from appliance.domain.gateway import State
from appliance.gateway.meter import Meter
from appliance.protocol.gateway import decode_names, decode_state
from appliance.protocol.unix_server import Bounds, serve_unix

_log = logging.getLogger(__name__)

_BOUNDS: Final = Bounds(line_bytes=256 << 10, per_user=128, total=192)
"""The supervisor has a connection for each question, and each of its own clients may ask one.
The longest line is the state of all profiles, less than 100 bytes each."""
_FULL: Final = b'{"ok": false, "error": "too many connections"}\n'
_LINE_S: Final = 10.0
"""From a line's first byte to its last, and for an answer to be taken."""
_LONGEST_DRAIN_S: Final = 86400.0

Message = Mapping[str, Any]


class Board(Protocol):
    """What is told to clients."""

    def take(self, state: State) -> None:
        """Serve by this from now on."""
        ...

    def hold(self, names: Sequence[str]) -> None:
        """Let new requests for these wait, until the next state says otherwise."""
        ...


class Traffic(Protocol):
    """The requests that are under way."""

    def in_flight(self, names: Sequence[str]) -> int:
        """Requests that were sent to these profiles and are not over."""
        ...

    async def drain(self, names: Sequence[str], timeout_s: float) -> tuple[int, int]:
        """Wait for them, then cut those that are left: how many finished, how many were cut."""
        ...


class Control:
    """Answers on gateway.sock.

    Args:
        board: Takes what the supervisor tells.
        traffic: Is drained.
        meter: Has measured it.
        reload: Reads keys and profiles again. What it raises is answered and logged.
    """

    def __init__(
        self, board: Board, traffic: Traffic, meter: Meter, *, reload: Callable[[], None]
    ) -> None:
        self._board = board
        self._traffic = traffic
        self._meter = meter
        self._reload = reload
        self._began_s = monotonic()
        self._conversations: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self, listener: socket.socket) -> None:
        """Answer for ever. The socket's file stays: it is systemd's.

        Cancelled, it takes no new connections; who is waiting for an answer still gets it.
        """
        await serve_unix(listener, self._connected, _BOUNDS, refusal=_FULL)

    def retire(self) -> None:
        """Answer nothing that is asked from now on: the process that has taken over does.

        What is being answered, such as a drain, goes on.
        """
        self._closed = True

    async def close(self) -> None:
        """End every conversation, and begin none."""
        self._closed = True
        for task in self._conversations:
            task.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._converse(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)
        await asyncio.wait({task})

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The next line is awaited during an answer: how else would one learn that nobody waits?
        upcoming = asyncio.ensure_future(_next_line(reader))
        try:
            while (line := await upcoming) and not self._closed:
                upcoming = asyncio.ensure_future(_next_line(reader))
                answer = await self._unless_left(self._answer(line), upcoming)
                if answer is None:
                    return
                writer.write(json.dumps(answer).encode() + b"\n")
                async with asyncio.timeout(_LINE_S):
                    await writer.drain()
        except (ConnectionError, ValueError, TimeoutError):
            _log.debug("the supervisor left")
        finally:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)

    async def _unless_left(
        self, answer: Coroutine[Any, Any, Message], upcoming: asyncio.Future[bytes]
    ) -> Message | None:
        """The answer; None: who asked has closed the connection meanwhile."""
        answering = asyncio.ensure_future(answer)
        try:
            both: set[asyncio.Future[Any]] = {answering, upcoming}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not await upcoming:
                return None
            return await answering
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, line: bytes) -> Message:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ValueError("a request is an object")  # noqa: TRY301, TRY004
            return {"ok": True, **await self._do(request)}
        except (ValueError, RecursionError) as error:
            return {"ok": False, "error": str(error)}

    async def _do(self, request: Message) -> Message:
        match request.get("verb"):
            case "route":
                self._board.take(decode_state(request.get("state")))
                return {}
            case "hold":
                names = decode_names(request, "names")
                self._board.hold(names)
                return {"waiting": self._meter.waiting(names)}
            case "drain":
                return await self._drain(decode_names(request, "names"), _seconds(request))
            case "release":
                waiting = self._meter.waiting()
                self._board.take(decode_state(request.get("state")))
                return {"released": waiting}
            case "stats":
                return {"stats": {**self._meter.document(), "uptime_s": self._uptime_s()}}
            case "reload":
                self._try_reload()
                return {}
            case verb:
                raise ValueError(f"no such verb: {verb!r:.40}")

    async def _drain(self, names: Sequence[str], timeout_s: float) -> Message:
        finished, cut = await self._traffic.drain(names, timeout_s)
        if cut:
            _log.warning("%d requests were cut after %.0f s", cut, timeout_s)
        return {"finished": finished, "cut": cut}

    def _try_reload(self) -> None:
        try:
            self._reload()
        except Exception as error:
            _log.exception("what was read before stays in force")
            raise ValueError(f"not read: {error}") from error

    def _uptime_s(self) -> float:
        return round(monotonic() - self._began_s, 1)


async def _next_line(reader: asyncio.StreamReader) -> bytes:
    """The next request, empty at the end; one that has begun has to end soon.

    Raises:
        TimeoutError: it did not.
        ValueError: it is too long.
    """
    begun = await reader.read(1)
    if begun in {b"", b"\n"}:
        return begun
    async with asyncio.timeout(_LINE_S):
        return begun + await reader.readline()


def _seconds(request: Message) -> float:
    value = request.get("timeout_s")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("timeout_s is no number")  # noqa: TRY004
    if not 0 <= value <= _LONGEST_DRAIN_S:
        raise ValueError("timeout_s is no time")
    return float(value)
