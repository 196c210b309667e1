"""Transfer-Encoding: said so that one side sees chunks and the other does not."""

from tests.smuggling.cases import (
    BODY,
    CHUNKED_BODY,
    SMUGGLED,
    Case,
    Taken,
    chunked,
    refused,
    request,
    taken,
)

# Header lines (without their CRLF) that some parser somewhere takes for chunks.
_OBFUSCATED = {
    "letter-before": b"Transfer-Encoding: xchunked",
    "letter-after": b"Transfer-Encoding: chunkedd",
    "cut": b"Transfer-Encoding: chunke",
    "half": b"Transfer-Encoding: chunk",
    "vertical-tab-before": b"Transfer-Encoding: \x0bchunked",
    "vertical-tab-after": b"Transfer-Encoding: chunked\x0b",
    "form-feed-before": b"Transfer-Encoding: \x0cchunked",
    "no-break-space": b"Transfer-Encoding: \xa0chunked",
    "utf8-no-break-space": b"Transfer-Encoding: \xc2\xa0chunked",
    "kelvin-sign": "Transfer-Encoding: chun\u212aed".encode(),
    "delete": b"Transfer-Encoding: chunked\x7f",
    "high-byte": b"Transfer-Encoding: chunked\xff",
    "parameter": b"Transfer-Encoding: chunked;q=1",
    "empty-parameter": b"Transfer-Encoding: chunked;",
    "quoted": b'Transfer-Encoding: "chunked"',
    "single-quoted": b"Transfer-Encoding: 'chunked'",
    "identity": b"Transfer-Encoding: identity",
    "identity-first": b"Transfer-Encoding: identity, chunked",
    "identity-last": b"Transfer-Encoding: chunked, identity",
    "gzip": b"Transfer-Encoding: gzip",
    "gzip-first": b"Transfer-Encoding: gzip, chunked",
    "gzip-last": b"Transfer-Encoding: chunked, gzip",
    "unknown-first": b"Transfer-Encoding: x, chunked",
    "unknown-first-without-space": b"Transfer-Encoding: x,chunked",
    "unknown-last": b"Transfer-Encoding: chunked, x",
    "unknown-before-by-space": b"Transfer-Encoding: x chunked",
    "twice-in-one": b"Transfer-Encoding: chunked, chunked",
    "comma-first": b"Transfer-Encoding: , chunked",
    "comma-last": b"Transfer-Encoding: chunked,",
    "colon": b"Transfer-Encoding:: chunked",
    "backslash": b"Transfer-Encoding: \\chunked",
    "empty": b"Transfer-Encoding:",
    "empty-then-chunked": b"Transfer-Encoding:\r\nTransfer-Encoding: chunked",
    "twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "twice-apart": b"Transfer-Encoding: chunked\r\nX: y\r\nTransfer-Encoding: chunked",
    "identity-then-chunked": b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "chunked-then-identity": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "cow-then-chunked": b"Transfer-Encoding: cow\r\nTransfer-Encoding: chunked",
    "chunked-then-cow": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: cow",
    "twice-other-case": b"transfer-encoding: chunked\r\nTRANSFER-ENCODING: x",
    "space-before-colon": b"Transfer-Encoding : chunked",
    "tab-before-colon": b"Transfer-Encoding\t: chunked",
    "line-end-before-colon": b"Transfer-Encoding\r\n : chunked",
    "space-in-front": b" Transfer-Encoding: chunked",
    "tab-in-front": b"\tTransfer-Encoding: chunked",
    "folded": b"Transfer-Encoding:\r\n chunked",
    "folded-by-tab": b"Transfer-Encoding:\r\n\tchunked",
    "folded-after": b"Transfer-Encoding: chunked\r\n ",
    "folded-list": b"Transfer-Encoding: x,\r\n chunked",
    "folded-by-bare-lf": b"Transfer-Encoding:\n chunked",
    "behind-bare-lf": b"X: y\nTransfer-Encoding: chunked",
    "behind-bare-cr": b"X: y\rTransfer-Encoding: chunked",
    "before-bare-lf": b"Transfer-Encoding: chunked\nX: y",
    "before-bare-cr": b"Transfer-Encoding: chunked\rX: y",
    "two-carriage-returns": b"Transfer-Encoding: chunked\r",
    "nul-before": b"Transfer-Encoding: \0chunked",
    "nul-after": b"Transfer-Encoding: chunked\0",
    "nul-inside": b"Transfer-Encoding: chu\0nked",
    "nul-in-name": b"Transfer-\0Encoding: chunked",
    "nul-in-front": b"\0Transfer-Encoding: chunked",
    "high-byte-in-name": b"Transfer\xadEncoding: chunked",
    "space-in-name": b"Transfer Encoding: chunked",
    "bracketed-name": b"(Transfer-Encoding): chunked",
    "escape-in-front": b"\x1bTransfer-Encoding: chunked",
}

CASES: tuple[Case, ...] = (
    # The receiver that sees chunks ends at the zero chunk, the other one takes the rest as well.
    *(
        refused(f"encoding-{name}", request(line, body=CHUNKED_BODY + SMUGGLED))
        for name, line in _OBFUSCATED.items()
    ),
    *(
        refused(
            f"encoding-{name}-after-length",
            request(
                b"Content-Length: %d" % len(CHUNKED_BODY + SMUGGLED),
                line,
                body=CHUNKED_BODY + SMUGGLED,
            ),
        )
        for name, line in _OBFUSCATED.items()
    ),
    *(
        refused(
            f"encoding-{name}-before-length",
            request(line, b"Content-Length: 3", body=CHUNKED_BODY + SMUGGLED),
        )
        for name, line in _OBFUSCATED.items()
    ),
    *(
        refused(
            f"encoding-{name}-again",
            request(b"Content-Length: 13", body=BODY)
            + request(b"Content-Length: 13", line, body=BODY + SMUGGLED),
            after=(Taken(),),
        )
        for name, line in _OBFUSCATED.items()
    ),
    refused("encoding-with-length", chunked(b"Content-Length: 4") + SMUGGLED),
    refused("encoding-with-right-length", chunked(b"Content-Length: %d" % len(CHUNKED_BODY))),
    refused("encoding-with-length-zero", chunked(b"Content-Length: 0") + SMUGGLED),
    refused(
        "encoding-before-length",
        request(b"Transfer-Encoding: chunked", b"Content-Length: 13", body=CHUNKED_BODY),
    ),
    refused("encoding-with-two-lengths", chunked(b"Content-Length: 4", b"Content-Length: 5")),
    refused(
        "encoding-at-http-1.0",
        request(
            b"Transfer-Encoding: chunked",
            start=b"POST /v1/chat/completions HTTP/1.0",
            body=CHUNKED_BODY,
        ),
    ),
    refused(
        "encoding-at-http-1.0-kept",
        request(
            b"Transfer-Encoding: chunked",
            b"Connection: keep-alive",
            start=b"POST /v1/chat/completions HTTP/1.0",
            body=CHUNKED_BODY + SMUGGLED,
        ),
    ),
    refused(
        "encoding-at-http-1.0-with-length",
        request(
            b"Transfer-Encoding: chunked",
            b"Content-Length: 13",
            start=b"POST /v1/chat/completions HTTP/1.0",
            body=BODY,
        ),
    ),
    taken("encoding-plain", chunked()),
    taken("encoding-no-space", request(b"Transfer-Encoding:chunked", body=CHUNKED_BODY)),
    taken("encoding-space-around", request(b"Transfer-Encoding:  chunked  ", body=CHUNKED_BODY)),
    refused("encoding-tab-around", request(b"Transfer-Encoding:\tchunked\t", body=CHUNKED_BODY)),
    taken("encoding-capitals", request(b"Transfer-Encoding: CHUNKED", body=CHUNKED_BODY)),
    taken("encoding-name-in-capitals", request(b"TRANSFER-ENCODING: chunked", body=CHUNKED_BODY)),
    taken(
        "encoding-underscore-is-another-header",
        request(b"Transfer_Encoding: chunked", b"Content-Length: 13", body=BODY),
    ),
    taken(
        "encoding-prefixed-is-another-header",
        request(b"X-Transfer-Encoding: chunked", b"Content-Length: 13", body=BODY),
    ),
)
