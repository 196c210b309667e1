"""Client for the command line: one connection, one request, its events.

The client for processes with an event loop is `appliance.wire.async_client`.
"""

import time

# Not from socket, which imports selectors and makes enumerations: 1.3 ms of every command.
from _socket import AF_UNIX, SOCK_STREAM, socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Generic, Self

from appliance.model.errors import PermissionDeniedError, UnreachableError
from appliance.model.record import Record
from appliance.wire.conversation import (
    GREETING_S,
    MAX_LINE_BYTES,
    ErrorEvent,
    EventT,
    HelloEvent,
    RequestRefusedError,
    RequestT,
    ResultEvent,
    SocketTable,
)

_CHUNK_BYTES: Final = 65_536


class Conversation(Generic[EventT]):
    """Conversation with a server: one request, and the events that answer it.

    Args:
        table: Table of the socket.
        path: Of the socket.
        request: Is sent at once.
        greeting_s: How long to wait for the greeting; None: the caller does other work meanwhile, and
            then calls `greet`.

    Raises:
        UnreachableError: nobody listens, or no greeting comes within `greeting_s`.
        PermissionDeniedError: this user may not open the socket.
        RequestRefusedError: the two sides share no version of the protocol, or the server has too
            many connections.
    """

    def __init__(
        self,
        table: SocketTable[RequestT, EventT],
        path: str,
        request: RequestT,
        *,
        greeting_s: float | None = GREETING_S,
    ) -> None:
        self.closed = False
        """Whether a closing event was read."""
        self.last_line = ""
        """Last event exactly as received, without the line's end."""
        self._table: SocketTable[Any, EventT] = table
        self._buffer = bytearray()
        self._searched_bytes = 0
        """Length of the beginning of the buffer that has no line end."""
        self._socket = _connected(table, path)
        try:
            self._send(request)
            if greeting_s is not None:
                self.greet(greeting_s)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the conversation; what goes on without the client goes on."""
        self._socket.close()

    def next_event(self, timeout_s: float | None = None) -> EventT | None:
        """Return the next event; None: none came within `timeout_s`.

        Raises:
            UnreachableError: the server went away before its closing event.
        """
        line = self._line(timeout_s)
        if line is None:
            return None
        try:
            event = self._table.decode_event(line)
        except ValueError as error:
            raise UnreachableError(self._table.not_our_protocol) from error
        self.last_line = line.decode(errors="replace")
        self.closed = isinstance(event, self._table.closing)
        return event

    @property
    def pending(self) -> bool:
        """Tell whether the next event has been received already."""
        return self._line_end() >= 0

    def fileno(self) -> int:
        """Return the descriptor for select; see `pending`."""
        return self._socket.fileno()

    def events(self) -> Iterator[EventT]:
        """Yield every event up to and including the closing one, however long it takes."""
        while not self.closed:
            event = self.next_event()
            if event is not None:
                yield event

    def greet(self, within_s: float) -> None:
        """Wait for the greeting. Raises as the constructor does."""
        greeting = self.next_event(within_s)
        if greeting is None:
            raise UnreachableError(
                f"{self._table.server} does not answer within {within_s:.0f} s: "
                f"systemctl status {self._table.unit}"
            )
        check_greeting(self._table, greeting)

    def _send(self, request: RequestT) -> None:
        try:
            self._socket.sendall(self._table.encode_request(request))
        except BrokenPipeError:
            # A server that refuses the connection says why, whether it has read the request or not.
            pass
        except OSError as error:
            raise UnreachableError(self._table.not_running) from error

    def _line(self, timeout_s: float | None) -> bytes | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (end := self._line_end()) < 0:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(_CHUNK_BYTES)
            except TimeoutError:
                return None
            except OSError as error:
                raise UnreachableError(self._table.not_running) from error
            if not chunk:
                raise UnreachableError(self._table.not_running)
            self._buffer += chunk
            if len(self._buffer) > MAX_LINE_BYTES + _CHUNK_BYTES:
                raise UnreachableError(self._table.line_too_long)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched_bytes = 0
        return line

    def _line_end(self) -> int:
        """Return the position of the next line's end; -1: the line has not ended."""
        end = self._buffer.find(b"\n", self._searched_bytes)
        self._searched_bytes = len(self._buffer) if end < 0 else end
        return end


def ask(table: SocketTable[RequestT, EventT], path: str, request: RequestT) -> ResultEvent:
    """Return the result of a request that is answered by nothing else.

    Raises:
        RequestRefusedError: the request was refused.
        UnreachableError: as `Conversation`.
        PermissionDeniedError: as `Conversation`.
    """
    with Conversation(table, path, request) as conversation:
        for event in conversation.events():
            if isinstance(event, ErrorEvent):
                raise RequestRefusedError(event)
            if isinstance(event, ResultEvent):
                return event
    raise UnreachableError(table.not_our_protocol)


def check_greeting(table: SocketTable[Any, Any], event: Record) -> None:
    """Check that an event is the greeting. Raises `RequestRefusedError` or `UnreachableError`."""
    if isinstance(event, ErrorEvent):
        raise RequestRefusedError(event)
    if not isinstance(event, HelloEvent):
        raise UnreachableError(table.not_our_protocol)


def _connected(table: SocketTable[Any, Any], path: str) -> socket:
    connection = socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(GREETING_S)
    try:
        connection.connect(path)
    except PermissionError as error:
        connection.close()
        raise PermissionDeniedError(table.not_a_member) from error
    except OSError as error:
        connection.close()
        raise UnreachableError(table.not_running) from error
    return connection
