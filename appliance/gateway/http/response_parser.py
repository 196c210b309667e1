"""What httptools makes of an engine's answer."""

from typing import Final

import httptools

from appliance.gateway.http import response_head
from appliance.gateway.http.response_head import AnswerHead, Framing

_PART_BYTES: Final = 64 << 10
"""Of a chunk that is not complete: so much is passed on all the same."""
_DRY_BYTES: Final = 256 << 10
"""Of a head, or of anything else that is not body."""
_CONTINUE: Final = 100
_OK: Final = 200
_SWITCHING: Final = 101


class Reading:
    """One answer, as it comes."""

    __slots__ = (
        "_begun",
        "_counted",
        "_dry",
        "_headers",
        "_parser",
        "_part_bytes",
        "_pieces",
        "_reason",
        "_whole",
        "answer",
        "bad",
        "complete",
        "rest",
    )

    def __init__(self) -> None:
        self.answer: AnswerHead | None = None
        """The head; None: it is not there yet."""
        self.bad = False
        """It is no answer that can be passed on."""
        self.complete = False
        self.rest = b""
        """What follows a change of protocol."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._reason = b""
        self._pieces: list[bytes] = []
        self._whole = 0
        """How many of `_pieces` belong to chunks that are complete."""
        self._part_bytes = 0
        """In those behind them, up to the piece `_counted`: only counted when it is asked for."""
        self._counted = 0
        self._begun = 0
        """Answers that have begun, interim ones apart."""
        self._dry = 0
        """Bytes since there was a head or a piece of body."""

    def feed(self, data: bytes) -> None:
        """Read on."""
        self._dry += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self.rest = data[upgrade.args[0] :]
            self.bad |= self.answer is None or not self.answer.websocket
        except httptools.HttpParserError:
            # Nonsense that follows a whole answer spoils only the connection.
            self._begun += 1
            self.bad |= not self.complete
        if self._dry > _DRY_BYTES + len(data):
            self.bad = True

    def take(self) -> bytes:
        """The body's bytes that may be passed on: whole chunks, large parts of one, or all."""
        pieces = self._pieces
        count = len(pieces)
        if self._whole < count and not self.complete and self._waits():
            count = self._whole
        self._whole = 0
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
        """Whether what there is of a chunk waits for the rest of it."""
        if self.answer is None or self.answer.framing is not Framing.CHUNKED:
            return False
        if self._whole:
            self._counted, self._part_bytes = self._whole, 0
        # Each piece is counted once, however small they are.
        self._part_bytes += sum(map(len, self._pieces[self._counted :]))
        self._counted = len(self._pieces)
        return self._part_bytes < _PART_BYTES

    @property
    def ends_with_connection(self) -> bool:
        """Whether an end of the connection is the proper end of the answer."""
        return self.answer is not None and self.answer.framing is Framing.CLOSE

    @property
    def keeps(self) -> bool:
        """Whether the connection is good for another request after this answer."""
        return self.complete and self._begun == 1 and self.answer is not None and self.answer.keeps

    def on_message_begin(self) -> None:
        """The first byte of an answer."""
        self._begun += 1

    def on_status(self, reason: bytes) -> None:
        """The words beside the status."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which goes no further."""
        if self.answer is None:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The end of a head, also of an interim one.

        One that is bad stays it: the parser goes on, and a good one may follow at once.
        """
        if self.answer is not None or self.bad:
            return
        status = self._parser.get_status_code()
        if status < _CONTINUE:
            self.bad = True
        elif status < _OK and status != _SWITCHING:
            # Counted still: an engine that says nothing else would never come to an end.
            self._headers, self._reason = [], b""
        else:
            self._dry = 0
            new = self._parser.get_http_version() == "1.1"
            self.answer = response_head.read(status, self._reason, self._headers, new=new)
            self.bad = self.answer is None

    def on_body(self, data: bytes) -> None:
        """A piece of the body; not of one that nobody asked for, behind it. Interim answers have none."""
        if self.answer is None:
            self.bad = True
        elif not self.complete:
            self._dry = 0
            self._pieces.append(data)

    def on_chunk_complete(self) -> None:
        """The end of a chunk."""
        self._whole = len(self._pieces)

    def on_message_complete(self) -> None:
        """The end of an answer, also of an interim one."""
        if self.answer is None:
            self._begun = 0
        else:
            self.complete = True
