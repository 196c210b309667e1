"""Bodies of declared length: the length as no two programs read it."""

from tests.smuggling.cases import (
    BODY,
    SMUGGLED,
    Case,
    Taken,
    get,
    got,
    post,
    refused,
    request,
    taken,
    unfinished,
)

# Values that some parser somewhere takes for 13, or for anything at all.
_NO_LENGTHS = {
    "negative": b"-13",
    "minus-zero": b"-0",
    "plus": b"+13",
    "two-in-one": b"13, 13",
    "two-without-space": b"13,13",
    "two-unequal-in-one": b"13, 14",
    "two-by-space": b"13 13",
    "zero-and-thirteen": b"0, 13",
    "hexadecimal": b"0x0d",
    "exponent": b"13e0",
    "decimal-point": b"13.0",
    "comma-at-the-end": b"13,",
    "comma-first": b",13",
    "semicolon": b"13;",
    "underscore": b"1_3",
    "vertical-tab-before": b"\x0b13",
    "vertical-tab-after": b"13\x0b",
    "form-feed": b"13\x0c",
    "no-break-space": b"13\xa0",
    "full-width-digits": "１３".encode(),  # noqa: RUF001
    "arabic-digits": "\u0661\u0663".encode(),
    "letters": b"abc",
    "letters-after": b"13abc",
    "quoted": b'"13"',
    "empty": b"",
    "only-space": b"  ",
    "wraps-at-32-bits": b"4294967309",
    "wraps-at-64-bits": b"18446744073709551629",
    "twenty-nines": b"99999999999999999999",
    "a-thousand-digits": b"1" * 1000,
    "beyond-signed": b"9223372036854775808",
    "chunked": b"chunked",
}
# Too large is an honest length too.
_STATUSES = {
    "wraps-at-32-bits": (413,),
    "beyond-signed": (400, 413),
    "a-thousand-digits": (400, 413),
}

CASES: tuple[Case, ...] = (
    *(
        refused(
            f"length-{name}",
            request(b"Content-Length: " + value, body=BODY + SMUGGLED),
            *_STATUSES.get(name, (400,)),
        )
        for name, value in _NO_LENGTHS.items()
    ),
    # On a connection whose last request had a good head, and this one has nearly the same.
    *(
        refused(
            f"length-again-{name}",
            request(b"Content-Length: 13", body=BODY)
            + request(b"Content-Length: " + value, body=BODY + SMUGGLED),
            *_STATUSES.get(name, (400,)),
            after=(Taken(),),
        )
        for name, value in _NO_LENGTHS.items()
    ),
    taken("length-again-same", post() + post(), Taken(), Taken()),
    taken(
        "length-again-other",
        post() + post(body=b'{"model":"m","n":1}') + post(body=b"{}"),
        Taken(),
        Taken(body=b'{"model":"m","n":1}'),
        Taken(body=b"{}"),
    ),
    taken(
        "length-again-leading-zeros",
        post() + request(b"Content-Length: 0000000013", body=BODY) + post(),
        Taken(),
        Taken(),
        Taken(),
    ),
    taken("length-plain", post()),
    taken("length-no-space", request(b"Content-Length:13", body=BODY)),
    taken("length-spaces-around", request(b"Content-Length:   13  ", body=BODY)),
    taken("length-tabs-around", request(b"Content-Length:\t13\t", body=BODY)),
    taken("length-leading-zeros", request(b"Content-Length: 0013", body=BODY)),
    taken("length-other-case", request(b"cOnTeNt-LeNgTh: 13", body=BODY)),
    taken(
        "length-after-others",
        request(*[b"X-%d: y" % n for n in range(40)], b"Content-Length: 13", body=BODY),
    ),
    refused("length-twice-equal", post(b"Content-Length: 13", body=BODY)),
    refused("length-twice-unequal", post(b"Content-Length: 14", body=BODY) + b"x"),
    refused("length-twice-first-zero", post(b"Content-Length: 0", body=BODY) + SMUGGLED),
    refused(
        "length-twice-last-zero", request(b"Content-Length: 13", b"Content-Length: 0", body=BODY)
    ),
    refused("length-twice-other-case", post(b"CONTENT-LENGTH: 5")),
    refused("length-thrice", post(b"Content-Length: 13", b"Content-Length: 13")),
    refused(
        "length-twice-apart",
        request(b"Content-Length: 13", b"X: y", b"Content-Length: 13", body=BODY),
    ),
    refused("length-space-before-colon", request(b"Content-Length : 13", body=BODY + SMUGGLED)),
    refused("length-tab-before-colon", request(b"Content-Length\t: 13", body=BODY + SMUGGLED)),
    refused("length-vertical-tab-before-colon", request(b"Content-Length\x0b: 13", body=BODY)),
    refused("length-space-in-front", request(b" Content-Length: 13", body=BODY)),
    refused("length-nul-in-name", request(b"Content-\0Length: 13", body=BODY)),
    refused("length-nul-after", request(b"Content-Length: 13\0", body=BODY)),
    refused("length-folded", request(b"Content-Length:\r\n 13", body=BODY)),
    refused(
        "length-second-folded-in",
        request(b"X: y\r\n Content-Length: 5", b"Content-Length: 13", body=BODY),
    ),
    refused("length-behind-bare-lf", request(b"X: y\nContent-Length: 13", body=BODY)),
    refused(
        "length-behind-bare-cr",
        request(b"X: y\rContent-Length: 5", b"Content-Length: 13", body=BODY),
    ),
    refused("length-without-colon", request(b"Content-Length 13", body=BODY)),
    taken("length-underscore-is-another-header", post(b"Content_Length: 5")),
    taken("length-prefixed-is-another-header", post(b"X-Content-Length: 5")),
    taken("length-zero", request(b"Content-Length: 0"), Taken(body=b"")),
    taken("length-none", request(), Taken(body=b"")),
    refused(
        "length-zero-and-a-body", get(b"/v1/thing", b"Content-Length: 0") + BODY, after=(got(),)
    ),
    refused(
        "length-too-short",
        get(b"/v1/thing", b"Content-Length: 12") + b"x" * 13 + SMUGGLED,
        after=(Taken(method=b"GET", target=b"/v1/thing", body=b"x" * 12),),
    ),
    unfinished("length-too-long", request(b"Content-Length: 14", body=BODY)),
    refused("length-above-the-limit", request(b"Content-Length: 70000", body=BODY), 413),
    refused(
        "length-far-above-the-limit", request(b"Content-Length: 9000000000000", body=BODY), 413
    ),
    taken("length-at-get", get(b"/v1/thing", b"Content-Length: 0"), got()),
    taken(
        "length-at-get-with-a-body",
        get(b"/v1/thing", b"Content-Length: 13") + BODY,
        Taken(method=b"GET", target=b"/v1/thing"),
    ),
    taken(
        "length-at-get-whose-body-is-a-request",
        get(b"/v1/thing", b"Content-Length: %d" % len(SMUGGLED)) + SMUGGLED,
        Taken(method=b"GET", target=b"/v1/thing", body=SMUGGLED),
    ),
    taken(
        "length-at-delete",
        request(b"Content-Length: 0", start=b"DELETE /v1/files/1 HTTP/1.1"),
        Taken(method=b"DELETE", target=b"/v1/files/1", body=b""),
    ),
)
