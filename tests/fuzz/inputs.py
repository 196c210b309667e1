"""Inputs of the fuzzer: the first bytes choose the case, the rest is what a peer sends.

byte 0       who speaks: a client (even) or an engine (odd)
byte 1       how; of a client's, the upper half chooses the size to which a body is padded, 0: none
byte 2, 3    where the bytes are cut
the rest     the bytes
"""

import gzip
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from appliance.routing.json_body import LONG_BYTES
from appliance.routing.json_scanner import _SHORT_BYTES
from tests.fakes.zstd import zstd
from tests.smuggling.corpus import REQUESTS
from tests.smuggling.responses import ANSWERS

HEAD = 4
MOST_BYTES = 4096
"""Longest seed in bytes; longer ones show nothing that shorter ones do not."""
PADDED = (0, *(most + more for most in (_SHORT_BYTES, LONG_BYTES) for more in (-1, 0, 1)))
"""Sizes of bodies at the thresholds of the request's path, in bytes; 0: the bytes are all that is sent."""
_PADDING = b'{"p":"",'
_BODIES = (
    *(b'{"model":"m"}', b'{"model":"m","stream":true}', b'{"messages":[]}', b"[]", b""),
    *(b'{"model":"m","t":%b}' % word for word in (b"NaN", b"Infinity", b"-Infinity", b"1e999")),
    *(b'{"model":"m","t":[%b]}' % word for word in (b"NaN", b'"\\ud800"', b'"\xff"', b"[" * 99)),
    *(b'{"model":"m","model":"m"}', b'{"\\u006dodel":"m"}', b"\xef\xbb\xbf{}", b'{"model":"m"'),
)
"""Bodies to begin with, at each of these sizes."""
_CODERS: Mapping[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
_SIZES = (1, 1, 2, 3, 5, 8, 13, 40, 100, 300, 1000, 5000)


@dataclass(frozen=True, slots=True)
class Input:
    """An input, read."""

    engine: bool
    """Whether the engine sends the bytes."""
    how: int
    cuts: int
    raw: bytes

    @property
    def padded(self) -> int:
        """Size to which the bytes are padded as a body; 0: they are the whole request."""
        return 0 if self.engine else PADDED[(self.how >> 4) % len(PADDED)]

    def sent(self) -> bytes:
        """Return all bytes of the peer: for a body, with a head before it and the padding inside."""
        if not self.padded:
            return self.raw
        more = self.padded - len(self.raw)
        body = self.raw + b" " * more
        if self.raw[:1] == b"{" and more >= len(_PADDING):
            body = b'{"p":"%b",' % (b"x" * (more - len(_PADDING))) + self.raw[1:]
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        return head % len(body) + body

    def pieces(self) -> Iterator[bytes]:
        """The bytes as they arrive; those of `cuts` 0 all at once."""
        raw = self.sent()
        if not self.cuts:
            if raw:
                yield raw
            return
        chance = random.Random(self.cuts)  # noqa: S311
        at = 0
        while at < len(raw):
            size = chance.choice(_SIZES)
            yield raw[at : at + size]
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
    for number, body in enumerate(_BODIES):
        for size in range(1, len(PADDED)):
            yield f"body-{number}-{size}", bytes((0, size << 4, 0, number & 1)) + body
    for coding, code in _CODERS.items():
        for number, body in enumerate(_BODIES):
            yield f"{coding}-{number}", bytes((0, 0, 0, number & 1)) + _coded(coding, code(body))
    for cuts in (0, 1):
        for name, who, how, raw in (*requests, *answers):
            if len(raw) <= MOST_BYTES:
                yield f"{name}-{cuts}", bytes((who, how, 0, cuts)) + raw


def _coded(coding: str, body: bytes) -> bytes:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Encoding: {coding}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


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
        b"Content-Encoding: zstd\r\n",
        b"data: {}\n\n",
    )
    yield from (
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"\\u006d",
        b"\\ud800",
        b'"stream":true',
    )
    yield from (b"Content-Type: multipart/form-data; boundary=x\r\n", b"--x\r\n", b"--x--\r\n")
