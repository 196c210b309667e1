"""Answers of an engine that is broken or hostile, and what a client has to be told."""

from dataclasses import dataclass
from enum import Enum

POISON = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"


class Fate(Enum):
    """Fate of an answer."""

    WHOLE = 1
    """The client gets it, with its proper end."""
    REFUSED = 2
    """The client is told by the gateway that the engine's answer is none."""
    BROKEN = 3
    """The client has a part of it, and the connection breaks: no end is made up."""
    EXPLAINED = 4
    """The client has a part of a stream, then an error event, then the proper end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Bytes of an engine, and what becomes of them."""

    name: str
    raw: bytes
    fates: frozenset[Fate]
    status: int = 200
    """Status of a whole response."""
    body: bytes = b"hello"
    """Body of a whole response, or the part before an error event."""
    hangs_up: bool = False
    """The engine closes the connection behind it."""
    method: bytes = b"POST"


def answer(*lines: bytes, body: bytes = b"", status: bytes = b"HTTP/1.1 200 OK") -> bytes:
    """A head of these lines, and whatever comes behind it."""
    return status + b"\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def _whole(name: str, raw: bytes, **more: object) -> Answer:
    return Answer(name=name, raw=raw, fates=frozenset({Fate.WHOLE}), **more)  # type: ignore[arg-type]


def _refused(name: str, raw: bytes, *, hangs_up: bool = False) -> Answer:
    return Answer(name=name, raw=raw, fates=frozenset({Fate.REFUSED}), hangs_up=hangs_up)


def _broken(name: str, raw: bytes, *, hangs_up: bool = False) -> Answer:
    """Return a response that cannot be whole; whether a part of it goes out is a matter of time."""
    fates = frozenset({Fate.BROKEN, Fate.REFUSED})
    return Answer(name=name, raw=raw, fates=fates, hangs_up=hangs_up)


def _explained(name: str, body: bytes, *, hangs_up: bool = False) -> Answer:
    """Where the fault comes with the first event, the answer can still be refused as a whole."""
    raw = answer(b"Content-Type: text/event-stream", _CHUNKED, body=_EVENT_CHUNK + body)
    fates = frozenset({Fate.EXPLAINED, Fate.REFUSED})
    return Answer(name=name, raw=raw, fates=fates, body=_EVENT, hangs_up=hangs_up)


_LENGTH = b"Content-Length: 5"
_CHUNKED = b"Transfer-Encoding: chunked"
_HELLO = b"5\r\nhello\r\n0\r\n\r\n"
_EVENT = b'data: {"n":1}\n\n'
_EVENT_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)

_NO_HEADS = {
    "nothing-like-it": b"nonsense\r\n\r\n",
    "zeros": bytes(100),
    "a-request": b"GET /v1/thing HTTP/1.1\r\nHost: x\r\n\r\n",
    "no-version": b"200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "version-2": answer(_LENGTH, body=b"hello", status=b"HTTP/2 200 OK"),
    "version-7": answer(_LENGTH, body=b"hello", status=b"HTTP/7.7 200 OK"),
    "lower-case": answer(_LENGTH, body=b"hello", status=b"http/1.1 200 OK"),
    "status-letters": answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 abc OK"),
    "status-two-digits": answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 20 OK"),
    "status-four-digits": answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 2000 OK"),
    "status-none": answer(_LENGTH, body=b"hello", status=b"HTTP/1.1"),
    "status-minus": answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 -20 OK"),
    "status-of-another-protocol": answer(status=b"HTTP/1.1 101 Switching Protocols"),
    "field-without-colon": answer(b"X", _LENGTH, body=b"hello"),
    "field-space-before-colon": answer(b"Content-Length : 5", body=b"hello"),
    "field-space-in-name": answer(b"X Y: z", _LENGTH, body=b"hello"),
    "field-nul": answer(b"X: \0", _LENGTH, body=b"hello"),
    "field-bare-cr": answer(b"X: y\rSet-Cookie: z", _LENGTH, body=b"hello"),
    "field-folded-length": answer(b"Content-Length:\r\n 5", body=b"hello"),
    "length-letters": answer(b"Content-Length: x", body=b"hello"),
    "length-negative": answer(b"Content-Length: -5", body=b"hello"),
    "length-plus": answer(b"Content-Length: +5", body=b"hello"),
    "length-hexadecimal": answer(b"Content-Length: 0x5", body=b"hello"),
    "length-two-in-one": answer(b"Content-Length: 5, 6", body=b"hello"),
    "length-twice-unequal": answer(_LENGTH, b"Content-Length: 6", body=b"hello!"),
    "length-wraps": answer(b"Content-Length: 18446744073709551621", body=b"hello"),
    "length-empty": answer(b"Content-Length:", body=b"hello"),
    "encoding-unknown": answer(b"Transfer-Encoding: x", body=b"hello"),
    "encoding-unknown-first": answer(b"Transfer-Encoding: x, chunked", body=_HELLO),
    "encoding-gzip-first": answer(b"Transfer-Encoding: gzip, chunked", body=_HELLO),
    "encoding-unknown-last": answer(b"Transfer-Encoding: chunked, x", body=_HELLO),
    "encoding-twice": answer(_CHUNKED, _CHUNKED, body=_HELLO),
    "encoding-and-length": answer(_CHUNKED, _LENGTH, body=_HELLO),
    "length-and-encoding": answer(_LENGTH, _CHUNKED, body=_HELLO),
    "encoding-nul": answer(b"Transfer-Encoding: chunked\0", body=_HELLO),
    "encoding-space-before-colon": answer(b"Transfer-Encoding : chunked", body=_HELLO),
    "huge-field": answer(b"X: " + b"y" * (1 << 20), _LENGTH, body=b"hello"),
    "huge-status-line": answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 200 " + b"x" * (1 << 20)),
    "endless-fields": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200_000,
    "endless-interim": answer(status=b"HTTP/1.1 100 Continue") * 60_000,
}

_NO_CHUNKS = {
    "size-letters": b"g\r\nhello\r\n0\r\n\r\n",
    "size-negative": b"-5\r\nhello\r\n0\r\n\r\n",
    "size-hexadecimal-prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "size-wraps": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "size-space-before": b" 5\r\nhello\r\n0\r\n\r\n",
    "size-empty": b"\r\nhello\r\n0\r\n\r\n",
    "size-bare-lf": b"5\nhello\r\n0\r\n\r\n",
    "size-extension-never-ends": b"5;" + b"a" * (1 << 20) + b"\r\nhello\r\n0\r\n\r\n",
    "end-missing": b"5\r\nhello0\r\n\r\n",
    "end-letters": b"5\r\nhelloXX0\r\n\r\n",
    "end-bare-lf": b"5\r\nhello\n0\r\n\r\n",
    "trailers-never-end": b"5\r\nhello\r\n0\r\n" + b"X: y\r\n" * 100_000,
}

ANSWERS: tuple[Answer, ...] = (
    _whole("length", answer(_LENGTH, body=b"hello")),
    _whole("length-zero", answer(b"Content-Length: 0"), body=b""),
    _whole("chunks", answer(_CHUNKED, body=_HELLO)),
    _whole("chunks-with-trailers", answer(_CHUNKED, body=_HELLO[:-2] + b"X: y\r\n\r\n")),
    _broken(
        "chunks-with-a-length-as-trailer",
        answer(_CHUNKED, body=_HELLO[:-2] + b"Content-Length: 9\r\n\r\n"),
    ),
    # The body is over by then, and no trailer goes further.
    _whole(
        "chunks-with-a-coding-as-trailer",
        answer(_CHUNKED, body=_HELLO[:-2] + b"Transfer-Encoding: ch1unked\r\n\r\n"),
    ),
    _whole("chunks-with-extensions", answer(_CHUNKED, body=b"5;x=y\r\nhello\r\n0;z\r\n\r\n")),
    _whole("until-closed", answer(body=b"hello"), hangs_up=True),
    _whole("until-closed-old", answer(body=b"hello", status=b"HTTP/1.0 200 OK"), hangs_up=True),
    _whole("length-old", answer(_LENGTH, body=b"hello", status=b"HTTP/1.0 200 OK"), hangs_up=True),
    _whole("close", answer(_LENGTH, b"Connection: close", body=b"hello"), hangs_up=True),
    _whole("close-and-stay", answer(_LENGTH, b"Connection: close", body=b"hello")),
    _whole(
        "a-status-of-none-behind-it",
        answer(_LENGTH, body=b"hello") + answer(_LENGTH, body=b"other", status=b"HTTP/1.1 020 OK"),
    ),
    _whole("hang-up-behind-it", answer(_LENGTH, body=b"hello"), hangs_up=True),
    _whole("no-reason", answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 200 ")),
    _whole("no-reason-no-space", answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 200")),
    _whole("odd-status", answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 299 Odd"), status=299),
    _whole("engine-error", answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 500 Bad"), status=500),
    _whole("no-content", answer(status=b"HTTP/1.1 204 No Content"), status=204, body=b""),
    _whole(
        "not-modified-with-length",
        answer(_LENGTH, status=b"HTTP/1.1 304 Not Modified"),
        status=304,
        body=b"",
    ),
    _whole("head-with-length", answer(_LENGTH), body=b"", method=b"HEAD"),
    _whole("head-with-chunks", answer(_CHUNKED), body=b"", method=b"HEAD"),
    _whole("interim", answer(status=b"HTTP/1.1 100 Continue") + answer(_LENGTH, body=b"hello")),
    _whole(
        "hints",
        answer(b"Link: </x>", status=b"HTTP/1.1 103 Early Hints") + answer(_LENGTH, body=b"hello"),
    ),
    _whole(
        "interim-thrice",
        answer(status=b"HTTP/1.1 102 Processing") * 3 + answer(_LENGTH, body=b"hello"),
    ),
    # More than was asked for: the next client must never get it.
    _whole("more-behind-length", answer(_LENGTH, body=b"hello" + POISON)),
    _whole("more-behind-chunks", answer(_CHUNKED, body=_HELLO + POISON)),
    _whole("more-behind-zero", answer(b"Content-Length: 0", body=POISON), body=b""),
    _whole(
        "more-behind-no-content",
        answer(status=b"HTTP/1.1 204 No Content") + POISON,
        status=204,
        body=b"",
    ),
    _whole(
        "more-behind-not-modified",
        answer(_LENGTH, status=b"HTTP/1.1 304 Not Modified") + b"hello",
        status=304,
        body=b"",
    ),
    _whole("more-behind-head", answer(_LENGTH, body=b"hello"), body=b"", method=b"HEAD"),
    _whole("more-behind-head-in-chunks", answer(_CHUNKED, body=_HELLO), body=b"", method=b"HEAD"),
    _whole("more-than-length", answer(_LENGTH, body=b"hello and much more")),
    _whole("nonsense-behind-length", answer(_LENGTH, body=b"hello\0\xff\r\n\r\n")),
    *(_refused(f"head-{name}", raw) for name, raw in _NO_HEADS.items()),
    _refused("nothing", b"", hangs_up=True),
    _refused("half-a-status-line", b"HTTP/1.", hangs_up=True),
    _refused("half-a-head", b"HTTP/1.1 200 OK\r\nContent-Le", hangs_up=True),
    _refused("interim-alone", answer(status=b"HTTP/1.1 100 Continue"), hangs_up=True),
    # What is good behind a bad head does not make it any better.
    _refused(
        "an-odd-coding-then-a-good-answer",
        answer(b"Transfer-Encoding: 00", _CHUNKED, body=_HELLO) + answer(_LENGTH, body=b"other"),
    ),
    _refused(
        "an-odd-coding-then-an-interim-and-a-good-answer",
        answer(b"Transfer-Encoding: 00", _CHUNKED, body=_HELLO)
        + answer(status=b"HTTP/1.1 100 Continue")
        + answer(_LENGTH, body=b"other"),
    ),
    _refused(
        "a-status-of-none-with-a-body-then-a-good-answer",
        answer(_LENGTH, body=b"hello", status=b"HTTP/1.1 020 OK") + answer(_LENGTH, body=b"other"),
    ),
    _broken("length-but-less", answer(b"Content-Length: 50", body=b"hello"), hangs_up=True),
    _broken("length-but-nothing", answer(b"Content-Length: 50"), hangs_up=True),
    _broken("chunks-without-the-last", answer(_CHUNKED, body=b"5\r\nhello\r\n"), hangs_up=True),
    _broken("chunks-without-the-end", answer(_CHUNKED, body=_HELLO[:-2]), hangs_up=True),
    _broken("chunk-but-less", answer(_CHUNKED, body=b"50\r\nhello"), hangs_up=True),
    _broken("chunks-but-nothing", answer(_CHUNKED), hangs_up=True),
    *(_broken(f"chunk-{name}", answer(_CHUNKED, body=body)) for name, body in _NO_CHUNKS.items()),
    _explained("stream-cut", b"", hangs_up=True),
    _explained("stream-cut-in-a-size", b"1", hangs_up=True),
    *(
        _explained(f"stream-{name}", body)
        for name, body in _NO_CHUNKS.items()
        if name.startswith("size-") and name != "size-extension-never-ends"
    ),
)
