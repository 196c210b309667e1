"""What h11, which shares no code with the gateway, makes of the same bytes."""

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
        """All values of a header."""
        return [value for found, value in self.headers if found == name]


class Reader:
    """Reads requests one after another, as a server does that answers each at once."""

    def __init__(self) -> None:
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)
        self._head: h11.Request | None = None
        self._body: list[bytes] = []
        self.error: str | None = None
        """Why nothing more is a request."""
        self.over = False
        """The last request was the last one: the connection is to be closed."""

    @property
    def between(self) -> bool:
        """It is not in the middle of a request."""
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
        self.over = self._connection.our_state is h11.MUST_CLOSE
        if not self.over:
            self._connection.start_next_cycle()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything that came on one connection."""

    requests: tuple[Read, ...]
    error: str | None
    """Why what follows them is no request."""
    clean: bool
    """Nothing follows them."""


def read(raw: bytes) -> Reading:
    """All requests in these bytes."""
    reader = Reader()
    requests = tuple(reader.feed(raw))
    clean = reader.error is None and (reader.over or reader.between)
    return Reading(requests=requests, error=reader.error, clean=clean)
