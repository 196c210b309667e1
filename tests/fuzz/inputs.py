"""Inputs of the fuzzer: the first bytes choose the case, the rest is what a peer sends.

byte 0       who speaks: a client (even) or an engine (odd)
byte 1       how
byte 2, 3    where the bytes are cut
the rest     the bytes
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from tests.smuggling.corpus import REQUESTS
from tests.smuggling.responses import ANSWERS

HEAD = 4
MOST_BYTES = 4096
"""Longest seed in bytes; longer ones show nothing that shorter ones do not."""
_SIZES = (1, 1, 2, 3, 5, 8, 13, 40, 100, 300, 1000, 5000)


@dataclass(frozen=True, slots=True)
class Input:
    """An input, read."""

    engine: bool
    """Whether the engine sends the bytes."""
    how: int
    cuts: int
    raw: bytes

    def pieces(self) -> Iterator[bytes]:
        """The bytes as they arrive; those of `cuts` 0 all at once."""
        if not self.cuts:
            if self.raw:
                yield self.raw
            return
        chance = random.Random(self.cuts)  # noqa: S311
        at = 0
        while at < len(self.raw):
            size = chance.choice(_SIZES)
            yield self.raw[at : at + size]
            at += size


def read(data: bytes) -> Input:
    """An input."""
    head = data[:HEAD].ljust(HEAD, b"\0")
    return Input(bool(head[0] & 1), head[1], int.from_bytes(head[2:], "big"), data[HEAD:])


def seeds() -> Iterator[tuple[str, bytes]]:
    """Inputs to begin with, with their names: the whole corpus, each at once and in pieces."""
    requests = [
        (f"request-{case.name}", 0, number % 16, case.raw) for number, case in enumerate(REQUESTS)
    ]
    answers = [
        (f"answer-{case.name}", 1, number % 256, case.raw) for number, case in enumerate(ANSWERS)
    ]
    for cuts in (0, 1):
        for name, who, how, raw in (*requests, *answers):
            if len(raw) <= MOST_BYTES:
                yield f"{name}-{cuts}", bytes((who, how, 0, cuts)) + raw


def words() -> Iterator[bytes]:
    """Return words of HTTP for the fuzzer to combine."""
    yield from (b"GET ", b"POST ", b"HEAD ", b"OPTIONS ", b"CONNECT ", b"PRI * HTTP/2.0")
    yield from (b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 \r\n")
    yield from (b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b": ", b";", b",")
    yield from (b"Host: x\r\n", b"Content-Length: ", b"Content-Length: 13\r\n", b"Connection: ")
    yield from (b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: ", b"chunked", b"close")
    yield from (
        b"0\r\n\r\n",
        b"d\r\n",
        b'{"model":"m"}',
        b'{"model":"m"}\r\n0\r\n\r\n',
        b"ffffffff",
    )
    yield from (b"Upgrade: websocket\r\n", b"Connection: Upgrade\r\n", b"Expect: 100-continue\r\n")
    yield from (b"/v1/chat/completions", b"/metrics", b"%2e%2e", b"%2f", b"http://x/", b"?", b"#")
    yield from (
        b"Content-Type: text/event-stream\r\n",
        b"Content-Encoding: gzip\r\n",
        b"data: {}\n\n",
    )
    yield from (b"Content-Type: multipart/form-data; boundary=x\r\n", b"--x\r\n", b"--x--\r\n")
