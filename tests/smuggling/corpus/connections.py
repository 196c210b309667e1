"""Several requests on a connection, ends in the middle, upgrades, and headers about the hop."""

from tests.smuggling.cases import (
    BODY,
    CHUNKED_BODY,
    SMUGGLED,
    Case,
    Taken,
    answered,
    chunked,
    droppable,
    get,
    got,
    post,
    refused,
    request,
    taken,
    unfinished,
)

_OLD = b"POST /v1/chat/completions HTTP/1.0"
_WEBSOCKET = (
    b"Connection: Upgrade",
    b"Upgrade: websocket",
    b"Sec-WebSocket-Version: 13",
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


def _cuts(name: str, raw: bytes) -> tuple[Case, ...]:
    """The request, ended after each line of its head and in the middle of each."""
    marks = {at for n, at in enumerate(range(1, len(raw), 11)) if n < 24}
    return tuple(unfinished(f"cut-{name}-at-{at}", raw[:at]) for at in sorted(marks))


CASES: tuple[Case, ...] = (
    taken("many-two-gets", get(b"/v1/a") + get(b"/v1/b"), got(b"/v1/a"), got(b"/v1/b")),
    taken(
        "many-ten-gets",
        b"".join(get(b"/v1/%d" % n) for n in range(10)),
        *[got(b"/v1/%d" % n) for n in range(10)],
    ),
    taken("many-post-and-get", post() + get(), Taken(), got()),
    taken("many-two-posts", post() + post(), Taken(), Taken()),
    droppable("many-chunked-and-get", chunked() + get(), Taken(), got()),
    droppable("many-two-chunked", chunked() + chunked(), Taken(), Taken()),
    taken(
        "many-head-and-get",
        request(start=b"HEAD /v1/a HTTP/1.1") + get(),
        Taken(method=b"HEAD", target=b"/v1/a", body=b""),
        got(),
    ),
    refused("many-post-and-nonsense", post() + b"nonsense\r\n\r\n", after=(Taken(),)),
    refused("many-post-and-two-lengths", post() + post(b"Content-Length: 13"), after=(Taken(),)),
    refused(
        "many-get-and-encoding-x",
        get() + request(b"Transfer-Encoding: x, chunked", body=CHUNKED_BODY),
        after=(got(),),
    ),
    droppable("many-chunked-and-more", chunked() + b"X" + SMUGGLED, Taken()),
    unfinished("many-post-and-half", post() + post()[:40], Taken()),
    unfinished("many-get-and-half-a-body", get() + post()[:-5], got()),
    taken(
        "many-close-and-get", get(b"/v1/thing", b"Connection: close") + SMUGGLED, got(), closes=True
    ),
    taken(
        "many-old-and-get",
        request(b"Content-Length: 13", start=_OLD, body=BODY) + SMUGGLED,
        Taken(),
        closes=True,
    ),
    taken("old-plain", request(b"Content-Length: 13", start=_OLD, body=BODY), Taken(), closes=True),
    taken(
        "old-close",
        request(b"Content-Length: 13", b"Connection: close", start=_OLD, body=BODY),
        Taken(),
        closes=True,
    ),
    taken("old-get", request(start=b"GET /v1/thing HTTP/1.0"), got(), closes=True),
    taken("close", post(b"Connection: close"), closes=True),
    taken("close-capitals", post(b"Connection: CLOSE"), closes=True),
    taken("close-in-a-list", post(b"Connection: x, close"), closes=True),
    taken("close-twice", post(b"Connection: x", b"Connection: close"), closes=True),
    # A header that Connection names is for this hop alone; framing and hosts cannot be so.
    taken("hop-names-length", post(b"Connection: Content-Length")),
    taken("hop-names-length-and-close", post(b"Connection: close, Content-Length"), closes=True),
    taken("hop-names-encoding", chunked(b"Connection: Transfer-Encoding")),
    taken("hop-names-host", post(b"Connection: Host")),
    taken("hop-names-type", post(b"Connection: keep-alive, X-Thing", b"X-Thing: y")),
    taken("hop-keep-alive", post(b"Connection: keep-alive", b"Keep-Alive: timeout=5, max=1000")),
    taken("hop-proxy-connection", post(b"Proxy-Connection: close")),
    taken("hop-te", post(b"TE: trailers", b"Connection: TE")),
    taken("hop-trailer-length", post(b"Trailer: Content-Length")),
    taken("hop-proxy-authorization", post(b"Proxy-Authorization: Basic eDp5")),
    taken("expect-continue", post(b"Expect: 100-continue")),
    taken("expect-continue-capitals", post(b"Expect: 100-Continue")),
    taken("expect-continue-chunked", chunked(b"Expect: 100-continue")),
    taken("expect-continue-without-a-body", get(b"/v1/thing", b"Expect: 100-continue"), got()),
    taken(
        "expect-continue-old",
        request(b"Content-Length: 13", b"Expect: 100-continue", start=_OLD, body=BODY),
        closes=True,
    ),
    refused("expect-something-else", post(b"Expect: 200-ok") + SMUGGLED, 417),
    refused(
        "expect-continue-and-two-lengths", post(b"Expect: 100-continue", b"Content-Length: 13")
    ),
    # Only a websocket is let through, and only once the engine has agreed: this one does not.
    refused("upgrade-unknown", post(b"Connection: Upgrade", b"Upgrade: x"), 426),
    taken(
        "upgrade-http2",
        get(
            b"/v1/thing",
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABkAAQAAP__",
        ),
        got(),
    ),
    taken(
        "upgrade-http2-with-a-body",
        post(
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABkAAQAAP__",
        ),
    ),
    taken(
        "upgrade-http2-and-more",
        get(b"/v1/thing", b"Connection: Upgrade", b"Upgrade: h2c") + get(b"/v1/b"),
        got(),
        got(b"/v1/b"),
    ),
    taken("upgrade-without-connection", get(b"/v1/thing", b"Upgrade: websocket"), got()),
    taken("upgrade-connection-alone", get(b"/v1/thing", b"Connection: upgrade"), got()),
    taken("upgrade-tls", get(b"/v1/thing", b"Connection: Upgrade", b"Upgrade: TLS/1.0"), got()),
    taken("upgrade-websocket-declined", get(b"/v1/thing", *_WEBSOCKET), got(status=426)),
    taken(
        "upgrade-websocket-declined-and-more",
        get(b"/v1/thing", *_WEBSOCKET) + get(b"/v1/b"),
        got(status=426),
        got(b"/v1/b"),
    ),
    refused(
        "upgrade-websocket-among-others",
        get(b"/v1/thing", b"Connection: Upgrade", b"Upgrade: h2c, websocket"),
        426,
    ),
    refused(
        "upgrade-websocket-with-two-lengths",
        get(b"/v1/thing", *_WEBSOCKET, b"Content-Length: 0", b"Content-Length: 5"),
    ),
    refused(
        "upgrade-websocket-with-encoding-x", get(b"/v1/thing", *_WEBSOCKET, b"Transfer-Encoding: x")
    ),
    # RFC 9112, 2.2: one empty line before a request is to be overlooked.
    taken("lines-before", b"\r\n" + get(), got()),
    refused("lines-two-before", b"\r\n\r\n" + get()),
    refused("lines-before-bare-lf", b"\n" + get()),
    refused("lines-many-before", b"\r\n" * 1000 + get()),
    taken("lines-between", post() + b"\r\n" + get(), Taken(), got()),
    taken(
        "lines-between-many",
        post() + b"\r\n" + post() + b"\r\n" + post() + b"\r\n" + post(),
        *[Taken()] * 4,
    ),
    refused("space-between", post() + b" " + get(), after=(Taken(),)),
    refused("nul-between", post() + b"\0" + get(), after=(Taken(),)),
    answered("body-no-json", post(body=b"model=m"), 400),
    answered("body-two-models", post(body=b'{"model":"m","model":"n"}'), 400),
    answered("body-list", post(body=b'["model"]'), 400),
    answered("body-cut-json", post(body=b'{"model":"m"'), 400),
    answered("body-no-utf8", post(body=b'{"model":"\xff"}'), 400),
    answered("body-unknown-model", post(body=b'{"model":"nobody"}'), 404),
    answered("body-utf16", post(body='{"model":"m"}'.encode("utf-16")), 400),
    answered("body-deep", post(body=b"[" * 20000), 400),
    unfinished("cut-nothing", b""),
    *_cuts("get", get(b"/v1/thing", b"X-One: 1", b"X-Two: 2")),
    *_cuts("post", post(b"Accept: */*")),
    *_cuts("chunked", chunked(b"Accept: */*")),
)
