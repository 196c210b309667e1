"""Heads of requests and responses: refusals, relayed heads, cached heads."""

import pytest

from appliance.gateway import request_head, response
from appliance.gateway.request_head import CachedHead, RequestHead
from appliance.gateway.response import Framing, ResponseHead
from appliance.model.gateway import Api, Refusal

START = "GET / HTTP/1.1\r\nHost: a\r\n"


def read(text: str | bytes) -> RequestHead | Refusal:
    raw = text.encode("latin-1") if isinstance(text, str) else text
    return request_head.parse_request_head(raw + b"\r\n", 100)


def good(text: str) -> RequestHead:
    head = read(text)
    assert isinstance(head, RequestHead), head
    return head


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET / HTTP/1.1\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n", 400),
        ("GET / HTTP/1.1\r\nHost:\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a@b\r\n", 400),
        ("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n", 400),
        (START + "Transfer-Encoding: x, chunked\r\n", 400),
        (START + "Transfer-Encoding: chunked, chunked\r\n", 400),
        (START + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        (START + "Transfer-Encoding: identity\r\n", 400),
        (START + "Transfer-Encoding: \x0bchunked\r\n", 400),
        (START + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", 400),
        (START + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", 400),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400),
        (START + "Content-Length: 3\r\nContent-Length: 3\r\n", 400),
        (START + "Content-Length: 3\r\nContent-Length: 4\r\n", 400),
        (START + "Content-Length: 3, 3\r\n", 400),
        (START + "Content-Length: +3\r\n", 400),
        (START + "Content-Length: -3\r\n", 400),
        (START + "Content-Length: 0x3\r\n", 400),
        (START + "Content-Length: 3 3\r\n", 400),
        (START + "Content-Length:\r\n", 400),
        (START + "Content-Length: 99999999999999999999999\r\n", 400),
        (START + "X : y\r\n", 400),
        (START + " X: y\r\n", 400),
        (START + "X: a\r\n b\r\n", 400),
        (START + "X: a\r\n\tb\r\n", 400),
        (START + "X: a\0b\r\n", 400),
        (START + "X: a\rb\r\n", 400),
        (START + "X: a\nY: b\r\n", 400),
        (START + "X: a\x01\r\n", 400),
        (START + "X\x7f: a\r\n", 400),
        (START + "X(y): a\r\n", 400),
        (START + ": a\r\n", 400),
        (START + "nothing\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET /  HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET / HTTP/1.2\r\nHost: a\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n", 400),
        ("GET / HTTP/1.10\r\nHost: a\r\n", 400),
        ("GET / http/1.1\r\nHost: a\r\n", 400),
        ("GET /\r\n", 400),
        ("get / HTTP/1.1\r\nHost: a\r\n", 400),
        ("PRI * HTTP/2.0\r\n", 400),
        ("GET x HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET /a\\b HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET /\xe4 HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET /%2 HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET http://b/x HTTP/1.1\r\nHost: a\r\n", 421),
        ("GET http://a@b/x HTTP/1.1\r\nHost: b\r\n", 400),
        ("GET ftp://a/x HTTP/1.1\r\nHost: a\r\n", 400),
        ("GET a:80 HTTP/1.1\r\nHost: a:80\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n", 501),
        ("TRACE / HTTP/1.1\r\nHost: a\r\n", 501),
        ("PURGE / HTTP/1.1\r\nHost: a\r\n", 501),
        ("BREW / HTTP/1.1\r\nHost: a\r\n", 400),
        (START + "Expect: 200-ok\r\n", 417),
        (START + "Expect: 100-continue\r\nExpect: 100-continue\r\n", 400),
        (START + "Content-Encoding: br\r\n", 415),
        (START + "Content-Encoding: gzip, zstd\r\n", 415),
        (START + "Content-Encoding: gzip\r\nContent-Encoding: zstd\r\n", 400),
        (START + "Content-Type: a\r\nContent-Type: b\r\n", 400),
        (START + "Authorization: a\r\nAuthorization: b\r\n", 400),
        (START + "x-api-key: a\r\nX-API-Key: b\r\n", 400),
        (START + "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n", 400),
        (START + "X: y\r\n" * 100, 431),
    ],
)
def test_malformed_heads(head: str, status: int) -> None:
    """A head that two parsers could take differently, or that no engine understands, is refused."""
    refused = read(head)
    assert isinstance(refused, Refusal)
    assert refused.status == status


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_a_second_look(raw: bytes) -> None:
    """A head that httptools should have refused is refused also when it was not."""
    refused = request_head.check_request_head(b"GET", b"/", [(b"Host", b"a")], raw)
    assert isinstance(refused, Refusal)
    assert refused.status == 400


@pytest.mark.parametrize(
    ("head", "target"),
    [
        ("GET / HTTP/1.1\r\nHost: a\r\n", b"/"),
        ("GET //x?y=z&q={} HTTP/1.1\r\nHost: a:80\r\n", b"//x?y=z&q={}"),
        ("GET /? HTTP/1.1\r\nHost: [::1]:8010\r\n", b"/?"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n", b"*"),
        ("GET http://A:80/x?y HTTP/1.1\r\nHost: a:80\r\n", b"/x?y"),
        ("GET http://a?y HTTP/1.1\r\nHost: a\r\n", b"/?y"),
        ("GET http://a HTTP/1.1\r\nHost: a\r\n", b"/"),
        ("GET http://a/x HTTP/1.0\r\n", b"/x"),
        ("GET /x HTTP/1.0\r\n", b"/x"),
    ],
)
def test_targets(head: str, target: bytes) -> None:
    """However a target is written, the engine gets path and query."""
    assert good(head).target == target


def test_what_a_head_says() -> None:
    """A checked head has every fact that the routing of the request depends on."""
    head = good(
        "POST /v1/messages?beta HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        "Content-Length:  12 \r\nExpect: 100-Continue\r\nAuthorization: Bearer x\r\n"
        "X-Api-Key: y\r\nConnection: Close\r\n"
    )
    assert (head.method, head.path, head.path_class.api) == (b"POST", "/v1/messages", Api.ANTHROPIC)
    assert (head.length, head.expects, head.close, head.old) == (12, True, True, False)
    assert (head.authorization, head.api_key) == (b"Bearer x", b"y")
    assert head.lines == b"Content-Type: application/json\r\n"


def test_a_body_in_chunks() -> None:
    """A body in chunks has no length yet."""
    assert good(START + "Transfer-Encoding: Chunked\r\n").length == -1


def test_http_1_0() -> None:
    """HTTP/1.0 closes after the response, expects no 100 Continue, and becomes no websocket."""
    head = good(
        "GET / HTTP/1.0\r\nConnection: keep-alive, upgrade\r\nUpgrade: websocket\r\nExpect: x\r\n"
    )
    assert (head.old, head.close, head.expects, head.websocket) == (True, True, False, False)


@pytest.mark.parametrize(
    ("upgrade", "websocket"),
    [
        ("Connection: Upgrade\r\nUpgrade: WebSocket\r\n", True),
        ("Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n", True),
        ("Upgrade: websocket\r\n", False),
        ("Connection: upgrade\r\n", False),
        ("Connection: upgrade\r\nUpgrade: h2c\r\n", False),
        ("Connection: upgrade\r\nUpgrade: TLS/1.2, HTTP/2.0\r\n", False),
    ],
)
def test_upgrades(upgrade: str, websocket: bool) -> None:  # noqa: FBT001
    """Only a websocket changes the protocol; offers of the same in another form are ignored."""
    head = good(START + upgrade)
    assert head.websocket is websocket
    sent = request_head.build_engine_head(head, 0, b"Host: e\r\n")
    assert (b"Upgrade: websocket\r\n" in sent) is websocket
    assert b"h2c" not in sent


def test_what_goes_on() -> None:
    """Hop-by-hop headers, keys, and headers that `Connection` names do not go to the engine."""
    head = good(
        START + "Accept: */*\r\nX-Trace: 1\r\nConnection: x-secret, content-type, close\r\n"
        "X-Secret: 2\r\nKeep-Alive: 5\r\nTE: trailers\r\nTrailer: x\r\nProxy-Connection: a\r\n"
        "Proxy-Authorization: b\r\nAuthorization: c\r\nx-api-key: d\r\nHTTP2-Settings: e\r\n"
        "Content-Type: f\r\nX-Empty:\r\nAccept-Encoding: gzip\r\n"
    )
    assert request_head.build_engine_head(head, 0, b"Host: e\r\nAuthorization: Bearer k\r\n") == (
        b"GET / HTTP/1.1\r\nHost: e\r\nAuthorization: Bearer k\r\nAccept: */*\r\nX-Trace: 1\r\n"
        b"Content-Type: f\r\nX-Empty: \r\nAccept-Encoding: gzip\r\n\r\n"
    )
    assert b"gzip" not in request_head.build_engine_head(head, 0, b"Host: e\r\n", plain=True)


def test_lengths_that_go_on() -> None:
    """The engine gets the length of the body that it gets, whatever the client sent."""
    chunked = good("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n")
    sent = request_head.build_engine_head(chunked, 3, b"")
    assert sent == b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\n"
    assert b"Content-Length: 0\r\n" in request_head.build_engine_head(chunked, 0, b"")


@pytest.mark.parametrize(
    ("status", "headers", "framing"),
    [
        (200, [(b"Content-Length", b"3")], Framing.LENGTH),
        (200, [(b"Transfer-Encoding", b"Chunked")], Framing.CHUNKED),
        (200, [], Framing.CLOSE),
        (204, [(b"Content-Length", b"3")], Framing.NONE),
        (304, [], Framing.NONE),
        (200, [(b"Transfer-Encoding", b"gzip, chunked")], None),
        (200, [(b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"chunked")], None),
    ],
)
def test_how_answers_end(
    status: int, headers: list[tuple[bytes, bytes]], framing: Framing | None
) -> None:
    """The framing of a body is read from the head; a head without a clear framing is refused."""
    answer = response.check_response_head(status, b"OK", headers, new=True)
    assert (None if answer is None else answer.framing) is framing


def answer_of(*headers: tuple[bytes, bytes], status: int = 200) -> ResponseHead:
    answer = response.check_response_head(status, b"Fine", headers, new=True)
    assert answer is not None
    return answer


@pytest.mark.parametrize(
    ("answer", "chunks", "close", "head"),
    [
        (answer_of((b"Content-Length", b"3")), True, False, b"Content-Length: 3\r\n\r\n"),
        (
            answer_of((b"Content-Length", b"3"), (b"Connection", b"close")),
            True,
            True,
            b"Content-Length: 3\r\nConnection: close\r\n\r\n",
        ),
        (answer_of((b"Keep-Alive", b"5")), True, False, b"Transfer-Encoding: chunked\r\n\r\n"),
        (answer_of(), False, True, b"Connection: close\r\n\r\n"),
        (answer_of((b"Content-Length", b"3"), status=204), True, False, b"\r\n"),
        (
            answer_of((b"Content-Length", b"3"), status=304),
            True,
            False,
            b"Content-Length: 3\r\n\r\n",
        ),
        (answer_of((b"X", b"y"), (b"Trailer", b"z")), False, False, b"X: y\r\n\r\n"),
    ],
)
def test_answers_that_go_on(
    answer: ResponseHead, *, chunks: bool, close: bool, head: bytes
) -> None:
    """Only the headers of the engine's own connection change in its head."""
    status = b"HTTP/1.1 %d Fine\r\n" % answer.status
    assert (
        response.build_relayed_head(answer, headers=b"", chunked=chunks, close=close)
        == status + head
    )


@pytest.mark.parametrize("version", [True, False])
def test_kept_connections(version: bool) -> None:  # noqa: FBT001
    """A connection to an engine is kept if both sides know where the response ends."""
    sized = response.check_response_head(200, b"", [(b"Content-Length", b"1")], new=version)
    closing = response.check_response_head(
        200, b"", [(b"Content-Length", b"1"), (b"Connection", b"Close")], new=version
    )
    assert sized is not None
    assert closing is not None
    assert (sized.keeps, closing.keeps) == (version, False)


RAW = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nX: y\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "fits"),
    [
        (RAW, (12, len(RAW))),
        (RAW + b"body", (12, len(RAW))),
        (RAW.replace(b"12", b"7"), (7, len(RAW) - 1)),
        (RAW.replace(b"12", b"123456789012345"), (123456789012345, len(RAW) + 13)),
        (RAW.replace(b"12", b"1234567890123456"), None),
        (RAW.replace(b"12", b""), None),
        (RAW.replace(b"12", b"-1"), None),
        (RAW.replace(b"12", b"1 2"), None),
        (RAW.replace(b"12", b"\xb2"), None),
        (RAW.replace(b"X: y", b"X: z"), None),
        (RAW.replace(b"/x", b"/y"), None),
        (RAW[:-1], None),
        (RAW[:20], None),
        (b"", None),
    ],
)
def test_heads_that_are_known(data: bytes, fits: tuple[int, int] | None) -> None:
    """A cached head matches if only the digits of the length differ."""
    known = CachedHead.of(RAW)
    assert known is not None
    assert known.match(data) == fits


@pytest.mark.parametrize(
    "raw",
    [
        RAW.replace(b"Content-Length: 12", b"Content-Length:  12"),
        RAW.replace(b"Content-Length: 12", b"CONTENT-LENGTH: 12"),
        RAW.replace(b"X: y", b"X: content-length"),
    ],
)
def test_heads_that_are_not_remembered(raw: bytes) -> None:
    """A head whose length is not where it is looked for is not cached."""
    assert CachedHead.of(raw) is None


def test_heads_without_length() -> None:
    """A cached head without a length matches by all of its bytes."""
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    known = CachedHead.of(raw)
    assert known is not None
    assert known.match(raw + b"GET") == (0, len(raw))
    assert known.match(raw[:-2] + b"X: y\r\n\r\n") is None


@pytest.mark.parametrize(
    ("raw", "may"),
    [
        (b"G", True),
        (b"GET / HTTP/1.1\r\nHo", True),
        (b"GET / HTTP/1.1\r", True),
        (b"get /", False),
        (b"\x16\x03\x01", False),
        (b"GET / HTTP/1.1\nHost", False),
        (b"GET /\0", False),
    ],
)
def test_beginnings_of_heads(raw: bytes, may: bool) -> None:  # noqa: FBT001
    """Bytes that can never become a head are refused before its end has come."""
    assert request_head.may_begin_head(raw) is may
