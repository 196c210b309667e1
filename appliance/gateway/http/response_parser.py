"""Parser of one HTTP/1.1 response of an engine."""

from typing import Final

import httptools

from appliance.gateway.http.response_head import Framing, ResponseHead, check_response_head

_PART_BYTES: Final = 64 << 10
"""Size from which a chunk is relayed before its end has been received."""
_BETWEEN_BYTES: Final = 256 << 10
"""Limit of a head, and of all bytes between pieces of body."""
_CONTINUE: Final = 100
_OK: Final = 200
_SWITCHING: Final = 101


class ResponseParser:
    """Parser fed with bytes as they are received."""

    __slots__ = (
        "_begun",
        "_complete_pieces",
        "_counted",
        "_headers",
        "_parser",
        "_part_bytes",
        "_pieces",
        "_reason",
        "_since_body",
        "bad",
        "complete",
        "head",
        "rest",
    )

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        """Response head; None: not complete yet."""
        self.bad = False
        """Whether the bytes are no response that can be relayed."""
        self.complete = False
        self.rest = b""
        """Bytes that follow a change of protocol."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._pieces: list[bytes] = []
        self._complete_pieces = 0
        """Number of `_pieces` that belong to complete chunks."""
        self._part_bytes = 0
        """Bytes of the pieces after them, up to `_counted`: counted only when needed."""
        self._counted = 0
        self._begun = 0
        """Responses that have begun, interim ones apart."""
        self._since_body = 0
        """Bytes since the head or the last piece of body."""

    def feed(self, data: bytes) -> None:
        self._since_body += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
            self.bad |= self.head is None or not self.head.websocket
        except httptools.HttpParserError:
            # Invalid bytes after a complete response make only the connection unusable.
            self._begun += 1
            self.bad |= not self.complete
        if self._since_body > _BETWEEN_BYTES + len(data):
            self.bad = True

    def take_body(self) -> bytes:
        """Take the bytes that may be relayed: complete chunks, large parts of one, or all."""
        pieces = self._pieces
        count = len(pieces)
        if self._complete_pieces < count and not self.complete and self._waits():
            count = self._complete_pieces
        self._complete_pieces = 0
        if count == len(pieces):
            self._pieces = []
            if self._counted:
                self._counted = self._part_bytes = 0
            return pieces[0] if count == 1 else b"".join(pieces)
        payload = b"".join(pieces[:count])
        del pieces[:count]
        self._counted -= count
        return payload

    def _waits(self) -> bool:
        """Tell whether an incomplete chunk waits for its rest."""
        if self.head is None or self.head.framing is not Framing.CHUNKED:
            return False
        if self._complete_pieces:
            self._counted, self._part_bytes = self._complete_pieces, 0
        # Each piece is counted once, however many there are.
        self._part_bytes += sum(map(len, self._pieces[self._counted :]))
        self._counted = len(self._pieces)
        return self._part_bytes < _PART_BYTES

    @property
    def ends_with_connection(self) -> bool:
        """Tell whether the end of the connection is the proper end of the response."""
        return self.head is not None and self.head.framing is Framing.CLOSE

    @property
    def keeps(self) -> bool:
        """Tell whether the connection is good for another request."""
        return self.complete and self._begun == 1 and self.head is not None and self.head.keeps

    def on_message_begin(self) -> None:
        self._begun += 1

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; drop a trailer."""
        if self.head is None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Handle the end of a head, also of an interim one.

        A bad response stays bad: httptools goes on, and a good one may follow at once.
        """
        if self.head is not None or self.bad:
            return
        status = self._parser.get_status_code()
        if status < _CONTINUE:
            self.bad = True
        elif status < _OK and status != _SWITCHING:
            # `_since_body` goes on: a response of interim heads alone would otherwise never end.
            self._headers, self._reason = [], b""
        else:
            self._since_body = 0
            new = self._parser.get_http_version() == "1.1"
            self.head = check_response_head(status, self._reason, self._headers, new=new)
            self.bad = self.head is None

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body; drop that of a further response. Interim ones have none."""
        if self.head is None:
            self.bad = True
        elif not self.complete:
            self._since_body = 0
            self._pieces.append(data)

    def on_chunk_complete(self) -> None:
        self._complete_pieces = len(self._pieces)

    def on_message_complete(self) -> None:
        """Handle the end of a response, also of an interim one."""
        if self.head is None:
            self._begun = 0
        else:
            self.complete = True
