"""Reference reading of the same bytes by h11, which shares no code with the gateway."""

from collections.abc import Sequence
from dataclasses import dataclass

import h11

# Larger than anything that the gateway takes, so that h11 never stops earlier for that.
_HEAD_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A request as a whole."""

    method: bytes
    target: bytes
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    """Names in lower case."""

    def values(self, name: bytes) -> Sequence[bytes]:
        """Return all values of a header."""
        return [value for found, value in self.headers if found == name]


class Reader:
    """Reads requests one after another, as a server does that answers each at once."""

    def __init__(self, *, most: int | None = None) -> None:
        self._left = most
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._head: h11.Request | None = None
        self._body: list[bytes] = []
        self.error: str | None = None
        """Reason why nothing more is a request."""
        self.over = False
        """The last request was the last one that is read."""
        self.closing = False
        """And it says so itself: the connection is to be closed."""

    @property
    def rest(self) -> bytes:
        """Return the bytes that are not read."""
        return self._connection.trailing_data[0]

    @property
    def between(self) -> bool:
        """Tell whether the parser is not in the middle of a request."""
        return self._connection.their_state is h11.IDLE and not self._connection.trailing_data[0]

    def feed(self, data: bytes) -> Sequence[Read]:
        """The requests that these bytes complete."""
        done: list[Read] = []
        if self.error is None and not self.over and data:
            self._connection.receive_data(data)
            try:
                more = True
                while more:
                    more = self._step(done) and not self.over
            except h11.RemoteProtocolError as error:
                self.error = str(error)
        return done

    def _step(self, done: list[Read]) -> bool:
        event = self._connection.next_event()
        if isinstance(event, h11.Request):
            self._head, self._body = event, []
        elif isinstance(event, h11.Data):
            self._body.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            done.append(self._whole())
            self._answer()
        else:
            return False
        return True

    def _whole(self) -> Read:
        assert self._head is not None
        return Read(
            method=self._head.method,
            target=self._head.target,
            body=b"".join(self._body),
            headers=tuple((bytes(name), bytes(value)) for name, value in self._head.headers),
        )

    def _answer(self) -> None:
        # No agreement to anything: after that there would be no further request.
        self._connection.send(h11.Response(status_code=400, headers=[(b"content-length", b"0")]))
        self._connection.send(h11.EndOfMessage())
        self.closing = self._connection.our_state is h11.MUST_CLOSE
        if self._left is not None:
            self._left -= 1
        self.over = self.closing or self._left == 0
        if not self.over:
            self._connection.start_next_cycle()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Reading of everything that came on one connection."""

    requests: tuple[Read, ...]
    error: str | None
    """Reason why the bytes after the requests are no request."""
    clean: bool
    """Whether no bytes follow the requests."""


def read(raw: bytes) -> Reading:
    """Return all requests in these bytes, as an engine reads them."""
    reader = Reader()
    requests = tuple(reader.feed(raw))
    clean = reader.error is None and (reader.over or reader.between)
    return Reading(requests=requests, error=reader.error, clean=clean)


def read_leniently(raw: bytes) -> Reading:
    """The same, but for an empty line before a request, which RFC 9112 (2.2) has overlooked."""
    requests: list[Read] = []
    while True:
        raw = raw.removeprefix(b"\r\n")
        reader = Reader(most=1)
        requests += reader.feed(raw)
        if reader.error is not None or not reader.over or reader.closing:
            clean = reader.error is None and (reader.over or reader.between)
            return Reading(requests=tuple(requests), error=reader.error, clean=clean)
        raw = reader.rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An answer, as a client sees it."""

    status: int | None
    """None: its head is not there, or none."""
    body: bytes
    whole: bool
    """Whether the request has its proper end."""
    ended: bool = False
    """Whether the body has ended; a trailer, which h11 refuses, goes no further than the
    gateway."""


def read_answer(raw: bytes, *, head_only: bool, closed: bool) -> Seen:
    """The first final answer in what an engine says.

    Args:
        raw: All that it says.
        head_only: It answers HEAD.
        closed: It hangs up behind that.
    """
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
    method = "HEAD" if head_only else "GET"
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    connection.send(h11.EndOfMessage())
    if raw:
        connection.receive_data(raw)
    if closed:
        connection.receive_data(b"")
    status: int | None = None
    body = b""
    reader: object = None
    try:
        while True:
            reader = connection._reader
            event = connection.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return Seen(status=status, body=body, whole=True)
            elif not isinstance(event, h11.InformationalResponse):
                return Seen(status=status, body=body, whole=False)
    except h11.RemoteProtocolError:
        ended = getattr(reader, "_reading_trailer", False)
        return Seen(status=status, body=body, whole=False, ended=ended)
