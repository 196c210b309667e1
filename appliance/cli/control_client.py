"""The control protocol, client side: one connection, one request, events until a closing one."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Final, Self

from appliance import __version__
from appliance.cli.failures import CliError, NotAMemberError, UnreachableError
from appliance.protocol.control import MAX_LINE_BYTES, PROTOCOL_MAX, PROTOCOL_MIN, Exit, Verb
from appliance.protocol.json_fields import Json, text_in

GREETING_S: Final = 5.0
"""systemd keeps the socket open while the supervisor is dead, so connecting proves nothing."""
CLOSING: Final = frozenset({"result", "error"})
_CHUNK: Final = 65_536


class Conversation:
    """One request to the supervisor and the events that answer it.

    Raises:
        UnreachableError: nobody listens, or nobody greets within `greeting_s`.
        NotAMemberError: the socket is not for this user.
        CliError: the supervisor speaks another version of the protocol.
    """

    def __init__(
        self,
        path: str,
        verb: Verb,
        arguments: Mapping[str, object],
        *,
        greeting_s: float = GREETING_S,
    ) -> None:
        self.closed = False
        """A closing event was read."""
        self.last_line = ""
        """The last event exactly as it came, without the line's end."""
        self._buffer = b""
        self._socket = _connected(path)
        try:
            self._ask(verb, arguments, greeting_s)
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
        """Leave; an operation that was begun goes on."""
        self._socket.close()

    def next_event(self, timeout_s: float | None = None) -> Json | None:
        """The next event; None when there was none within `timeout_s`.

        Raises:
            UnreachableError: the supervisor went away before its closing event.
        """
        line = self._line(timeout_s)
        if line is None:
            return None
        event = _decoded(line)
        self.last_line = line.decode(errors="replace")
        self.closed = text_in(event, "event") in CLOSING
        return event

    @property
    def pending(self) -> bool:
        """Whether the next event has been received already."""
        return b"\n" in self._buffer

    def fileno(self) -> int:
        """For select; see `pending`."""
        return self._socket.fileno()

    def events(self) -> Iterator[Json]:
        """Every event up to and including the closing one, waiting as long as it takes."""
        while not self.closed:
            event = self.next_event()
            if event is not None:
                yield event

    def _ask(self, verb: Verb, arguments: Mapping[str, object], greeting_s: float) -> None:
        request = {
            "protocol": {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX},
            "version": __version__,
            "verb": verb.value,
            "args": dict(arguments),
        }
        try:
            # Who is sent away hears why, whether the request was taken or not.
            with contextlib.suppress(BrokenPipeError):
                self._socket.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise UnreachableError from error
        greeting = self.next_event(greeting_s)
        if greeting is None:
            raise UnreachableError(
                f"supervisor does not answer within {greeting_s:.0f} s: "
                "systemctl status appliance-supervisor"
            )
        if self.closed:
            message = text_in(greeting, "message") or "the supervisor refused to talk"
            raise CliError(message, closing_status(greeting))

    def _line(self, timeout_s: float | None) -> bytes | None:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = None if deadline is None else max(0.001, deadline - time.monotonic())
            self._socket.settimeout(left)
            try:
                chunk = self._socket.recv(_CHUNK)
            except TimeoutError:
                return None
            except OSError as error:
                raise UnreachableError from error
            if not chunk:
                raise UnreachableError
            self._buffer += chunk
            if len(self._buffer) > MAX_LINE_BYTES + _CHUNK:
                raise UnreachableError("the control socket sent a line without an end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


def ask(path: str, verb: Verb, arguments: Mapping[str, object] | None = None) -> Json:
    """The closing event of a request whose other events do not matter.

    Raises:
        CliError: as `Conversation`, or the closing event is an error.
    """
    with Conversation(path, verb, arguments or {}) as conversation:
        *_, closing = conversation.events()
    if text_in(closing, "event") == "error":
        raise CliError(text_in(closing, "message"), closing_status(closing))
    return closing


def closing_status(event: Json) -> int:
    """The exit status that a closing event asks for."""
    status = event.get("exit")
    return status if isinstance(status, int) and 0 <= status < 256 else Exit.FAILED  # noqa: PLR2004 - a wait status


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(GREETING_S)
    try:
        connection.connect(path)
    except PermissionError as error:
        connection.close()
        raise NotAMemberError from error
    except OSError as error:
        connection.close()
        raise UnreachableError from error
    return connection


def _decoded(line: bytes) -> Json:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise UnreachableError("the control socket does not speak our protocol") from error
    return event if isinstance(event, dict) else {}
