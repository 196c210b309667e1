"""Chunks: sizes, extensions, ends and trailers."""

from tests.smuggling.cases import (
    BODY,
    CHUNKED_BODY,
    SMUGGLED,
    Case,
    chunked,
    refused,
    taken,
    unfinished,
)

_END = b"\r\n0\r\n\r\n"

# The line of the size of the one chunk, its end included.
_NO_SIZES = {
    "hexadecimal-prefix": b"0xd\r\n",
    "negative": b"-d\r\n",
    "plus": b"+d\r\n",
    "space-before": b" d\r\n",
    "space-between": b"0 d\r\n",
    "tab-before": b"\td\r\n",
    "empty": b"\r\n",
    "no-hex-digit": b"g\r\n",
    "letter-after": b"dg\r\n",
    "decimal-point": b"d.0\r\n",
    "underscore": b"0_d\r\n",
    "quoted": b'"d"\r\n',
    "nul": b"d\0\r\n",
    "nul-before": b"\0d\r\n",
    "high-byte": b"d\xff\r\n",
    "full-width": "ｄ\r\n".encode(),  # noqa: RUF001
    "wraps-at-64-bits": b"1000000000000000d\r\n",
    "seventeen-digits": b"fffffffffffffffff\r\n",
    "forty-digits": b"f" * 40 + b"\r\n",
    "bare-lf": b"d\n",
    "bare-cr": b"d\r",
    "two-carriage-returns": b"d\r\r\n",
    "lf-cr": b"d\n\r",
    "comma": b"d,d\r\n",
    "extension-with-bare-lf": b"d;a\nb\r\n",
    "extension-with-bare-cr": b"d;a\rb\r\n",
    "extension-with-nul": b"d;a=\0\r\n",
    "extension-quoted-line-end": b'd;a="\r\n"\r\n',
    "extension-quoted-bare-lf": b'd;a="\n"\r\n',
    "extension-never-ends": b"d;" + b"a" * (2 << 20) + b"\r\n",
}

_NO_ENDS = {
    "no-line-end": b"",
    "bare-lf": b"\n",
    "bare-cr": b"\r",
    "letters": b"XX",
    "letter-and-line-end": b"X\r\n",
    "two-carriage-returns": b"\r\r\n",
    "lf-cr": b"\n\r",
    "nul": b"\0\r\n",
}

_NO_LAST = {
    "minus-zero": b"-0\r\n\r\n",
    "hexadecimal-prefix": b"0x0\r\n\r\n",
    "bare-lf": b"0\n\n",
    "bare-lf-at-the-end": b"0\r\n\n",
    "bare-cr-at-the-end": b"0\r\n\rX",
    "letters-after": b"0\r\nXX",
    "space-before": b" 0\r\n\r\n",
}

_NO_TRAILERS = {
    "no-colon": b"X\r\n",
    "empty-name": b": x\r\n",
    "space-before-colon": b"X : y\r\n",
    "folded": b"X: y\r\n z\r\n",
    "space-in-front": b" X: y\r\n",
    "nul": b"X: \0\r\n",
    "bare-lf": b"X: y\n",
    "bare-cr": b"X: y\rZ: a\r\n",
    "never-end": b"X: " + b"y" * (2 << 20) + b"\r\n",
    "too-many": b"X: y\r\n" * 60_000,
}


def _last(trailers: bytes = b"") -> bytes:
    return b"d\r\n" + BODY + b"\r\n0\r\n" + trailers + b"\r\n"


CASES: tuple[Case, ...] = (
    *(
        refused(f"chunk-size-{name}", chunked(body=line + BODY + _END + SMUGGLED), 400, 413, 431)
        for name, line in _NO_SIZES.items()
    ),
    *(
        refused(f"chunk-end-{name}", chunked(body=b"d\r\n" + BODY + end + b"0\r\n\r\n" + SMUGGLED))
        for name, end in _NO_ENDS.items()
    ),
    *(
        refused(f"chunk-last-{name}", chunked(body=b"d\r\n" + BODY + b"\r\n" + last + SMUGGLED))
        for name, last in _NO_LAST.items()
    ),
    *(
        refused(f"trailer-{name}", chunked(body=_last(lines) + SMUGGLED), 400, 431)
        for name, lines in _NO_TRAILERS.items()
    ),
    refused("chunk-size-too-short", chunked(body=b"c\r\n" + BODY + _END)),
    refused("chunk-size-too-long", chunked(body=b"e\r\n" + BODY + _END)),
    # Honest sizes: only bytes that have come count towards the limit.
    unfinished("chunk-size-beyond-signed", chunked(body=b"8000000000000000\r\n" + BODY)),
    unfinished("chunk-size-above-the-limit", chunked(body=b"fffffff\r\n" + BODY)),
    refused(
        "chunks-above-the-limit", chunked(body=(b"4000\r\n" + b"x" * 16384 + b"\r\n") * 5), 413
    ),
    taken("chunk-size-capital", chunked(body=b"D\r\n" + BODY + _END)),
    taken("chunk-size-leading-zeros", chunked(body=b"0000d\r\n" + BODY + _END)),
    taken("chunk-extension", chunked(body=b"d;a=b\r\n" + BODY + _END)),
    taken("chunk-extension-without-value", chunked(body=b"d;a\r\n" + BODY + _END)),
    taken("chunk-extension-quoted", chunked(body=b'd;a="b;c"\r\n' + BODY + _END)),
    taken("chunk-last-with-extension", chunked(body=b"d\r\n" + BODY + b"\r\n0;a=b\r\n\r\n")),
    taken("chunk-last-zeros", chunked(body=b"d\r\n" + BODY + b"\r\n000\r\n\r\n")),
    taken(
        "chunks-of-a-byte", chunked(body=b"".join(b"1\r\n%c\r\n" % c for c in BODY) + b"0\r\n\r\n")
    ),
    taken(
        "chunks-of-two-sizes", chunked(body=b"5\r\n" + BODY[:5] + b"\r\n8\r\n" + BODY[5:] + _END)
    ),
    taken("trailer", chunked(body=_last(b"X-Sum: 1\r\n"))),
    taken("trailer-announced", chunked(b"Trailer: X-Sum", body=_last(b"X-Sum: 1\r\n"))),
    refused("trailer-length", chunked(body=_last(b"Content-Length: 5\r\n"))),
    refused("trailer-encoding", chunked(body=_last(b"Transfer-Encoding: chunked\r\n"))),
    taken("trailer-host", chunked(body=_last(b"Host: y\r\n"))),
    taken("trailer-key", chunked(body=_last(b"Authorization: Bearer x\r\n"))),
    unfinished("chunks-without-the-last", chunked(body=b"d\r\n" + BODY + b"\r\n")),
    unfinished("chunks-without-the-end", chunked(body=CHUNKED_BODY[:-2])),
    unfinished("chunk-cut-in-its-size", chunked(body=b"d")),
    unfinished("chunk-cut-in-its-data", chunked(body=b"d\r\n" + BODY[:6])),
    unfinished("chunk-cut-before-its-end", chunked(body=b"d\r\n" + BODY)),
    unfinished("trailer-cut", chunked(body=_last(b"X: y\r\n")[:-4])),
)
