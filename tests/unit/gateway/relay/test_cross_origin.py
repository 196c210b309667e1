"""Web pages of other origins: who may read an answer, and what a browser is told before it sends one (CORS)."""

from dataclasses import dataclass, field

import pytest

from appliance.gateway.request_head import find_origin
from appliance.model.gateway import Limits, Standing
from appliance.routing.origin_policy import OriginPolicy
from tests.fakes.engine_server import Script, answering, sized
from tests.unit.gateway.relay.rig import QUICK, Answer, get, post, rigged

DECLARED = "https://chat.example.org"
POLICY = OriginPolicy.of(["box"], [DECLARED, "null"])
MAY_READ = (
    DECLARED,
    "HTTPS://Chat.Example.ORG",
    "http://localhost:3000",
    "http://[::1]:80",
    "null",
)
MAY_NOT = (
    "https://chat.example.org.evil.example",
    "https://chat.example.org:8443",
    "http://127.0.0.1.evil.example",
)
CODES = (
    b"Access-Control-Allow-Origin: *\r\naccess-control-allow-credentials: true\r\n"
    b"ACCESS-CONTROL-EXPOSE-HEADERS: x\r\nAccess-Control-Allow-Methods: GET\r\nVary: Accept\r\n"
)
"""Headers by which many engines let every page read."""
EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n%b\r\n"
    % CODES
)
CHUNK = b"9\r\ndata: x\n\n\r\n"
WEBSOCKET = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = "x-api-key: right\r\n"


def line(origin: str) -> str:
    return f"Origin: {origin}\r\n"


@dataclass(frozen=True, kw_only=True)
class Case:
    """Request, whose line for the origin is added, and the status of its answer."""

    status: int
    raw: bytes
    script: Script = field(default_factory=lambda: answering(sized(b"{}", headers=CODES)))
    standing: Standing = Standing.SERVING
    is_loopback: bool = True
    limits: Limits = QUICK

    def asking(self, origin: str) -> bytes:
        start, _, rest = self.raw.partition(b"\r\n")
        return start + b"\r\n" + line(origin).encode() + rest


def known(path: str = "/v1/thing", **more: str) -> bytes:
    """A request with a key, so that the origin decides about reading alone."""
    more["headers"] = more.get("headers", "") + KEY
    return get(path, **more)


ANSWERS = {
    "list": Case(status=200, raw=known("/v1/models")),
    "list by HEAD": Case(status=200, raw=known("/v1/models", method="HEAD")),
    "entry": Case(status=200, raw=known("/v1/models/genesis")),
    "no entry": Case(status=404, raw=known("/v1/models/no")),
    "whole": Case(status=200, raw=post(headers=KEY)),
    "error of the engine": Case(
        status=400, raw=post(headers=KEY), script=answering(sized(b"{}", b"400 Bad", headers=CODES))
    ),
    "stream": Case(
        status=200, raw=post(headers=KEY), script=answering(EVENTS, CHUNK, b"0\r\n\r\n")
    ),
    "broken stream": Case(status=200, raw=post(headers=KEY), script=answering(EVENTS, CHUNK, b"z")),
    "HEAD": Case(status=200, raw=known(method="HEAD")),
    "OPTIONS": Case(status=200, raw=known(method="OPTIONS")),
    "no key": Case(status=401, raw=post(), is_loopback=False),
    "wrong key": Case(status=401, raw=post(headers="x-api-key: wrong\r\n")),
    "strange host": Case(status=421, raw=post().replace(b"Host: box", b"Host: evil.example")),
    "admin path": Case(status=403, raw=post(path="/slots/0", headers=KEY)),
    "Ollama": Case(status=404, raw=known("/api/tags")),
    "unknown model": Case(status=404, raw=post({"model": "no"}, headers=KEY)),
    "not ready": Case(status=503, raw=known("/health"), standing=Standing.STARTING),
    "down": Case(status=503, raw=post(headers=KEY), standing=Standing.DOWN),
    "waited too long": Case(status=503, raw=post(headers=KEY), standing=Standing.STARTING),
    "no JSON": Case(status=400, raw=post(headers=KEY).replace(b'{"model', b'["model')),
    "no HTTP from the engine": Case(
        status=502, raw=post(headers=KEY), script=answering(b"what?\r\n\r\n")
    ),
    "no websocket": Case(status=426, raw=known(headers=WEBSOCKET)),
    "unknown upgrade": Case(status=426, raw=known(headers="Connection: upgrade\r\nUpgrade: x\r\n")),
    "malformed length": Case(status=400, raw=known(headers="Content-Length: x\r\n")),
    "charset": Case(status=415, raw=post(headers="").replace(b"json", b"json; charset=utf-7")),
    "expectation": Case(status=417, raw=post(headers="Expect: x\r\n")),
    "another host in the target": Case(status=421, raw=known("http://else/v1")),
    "unknown method": Case(status=501, raw=known(method="TRACE")),
    "too large a head": Case(
        status=431, raw=known(headers=f"X: {'x' * 3000}\r\n"), limits=Limits(head_bytes=2048)
    ),
    "too slow a head": Case(status=408, raw=known()[:-2]),
    "too slow a body": Case(status=408, raw=post(headers=KEY)[:-2]),
    "too large a body": Case(
        status=413, raw=post({"x": "x" * 3000}, headers=KEY), limits=Limits(body_bytes=2048)
    ),
}
"""Answers of all kinds, of the gateway itself and of an engine that says something else of CORS."""


async def answer_to(case: Case, origin: str) -> Answer:
    async with rigged(
        case.script, loopback=case.is_loopback, limits=case.limits, origin_policy=POLICY
    ) as rig:
        rig.tell(case.standing)
        return await rig.ask(case.asking(origin))


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("origin", MAY_READ[:1] + MAY_READ[2:3])
async def test_a_page_of_a_declared_origin_reads_every_answer(name: str, origin: str) -> None:
    """Each answer names the page's origin, once, and nothing that an engine says of CORS is left."""
    case = ANSWERS[name]
    async with rigged(
        case.script, loopback=case.is_loopback, limits=case.limits, origin_policy=POLICY
    ) as rig:
        rig.tell(case.standing)
        caller = await rig.connect()
        await caller.send(case.asking(origin))
        head = (await caller.begun()).partition(b"\r\n\r\n")[0].decode()
        assert head.startswith(f"HTTP/1.1 {case.status} ")
        lines = [one for one in head.splitlines() if one.lower().startswith("access-control-")]
        assert lines == [
            f"Access-Control-Allow-Origin: {origin}",
            "Access-Control-Expose-Headers: *",
        ]
        assert "Vary: Origin" in head
        assert ("Vary: Accept" in head) is (CODES in b"".join(rig_said(case)))


def rig_said(case: Case) -> list[bytes]:
    """Return what the engine says in a case where its response is passed on."""
    passed = {"whole", "error of the engine", "stream", "broken stream", "HEAD", "OPTIONS"}
    return [CODES] if case in [ANSWERS[name] for name in passed] else []


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("origin", MAY_NOT[:1])
async def test_a_page_of_another_origin_reads_none(name: str, origin: str) -> None:
    """Whether it has a key or not, and whatever the engine says of CORS."""
    case = ANSWERS[name]
    answer = await answer_to(case, origin)
    assert answer.status in {case.status, 403}
    assert not [one for one in answer.headers if one.startswith("access-control-")]


@pytest.mark.parametrize("origin", MAY_READ)
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/models", "/slots/0", "/api/chat", "*"]
)
@pytest.mark.parametrize("is_loopback", [True, False])
async def test_a_preflight_needs_no_key(origin: str, path: str, is_loopback: bool) -> None:  # noqa: FBT001
    """The gateway answers it, also while no model serves, and the connection stays."""
    async with rigged(answering(), loopback=is_loopback, origin_policy=POLICY) as rig:
        rig.tell(Standing.STARTING)
        caller = await rig.connect()
        for _ in range(2):
            await caller.send(preflight(origin, path=path))
            answer = await caller.answer()
            assert (answer.status, answer.body, answer.whole) == (204, b"", True)
            assert answer.headers == {
                "access-control-allow-origin": origin,
                "access-control-expose-headers": "*",
                "vary": "Origin",
                "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
                "access-control-allow-headers": "authorization,content-type",
                "access-control-max-age": "600",
            }
        assert rig.engine.heard == []


@pytest.mark.parametrize("origin", MAY_NOT)
@pytest.mark.parametrize("is_loopback", [True, False])
async def test_a_preflight_of_another_origin_is_refused(origin: str, is_loopback: bool) -> None:  # noqa: FBT001
    """Without any header of CORS, so that its page sends nothing."""
    async with rigged(answering(), loopback=is_loopback, origin_policy=POLICY) as rig:
        answer = await rig.ask(preflight(origin))
        assert (answer.status, answer.error["code"]) == (403, "origin_refused")
        assert not [one for one in answer.headers if one.startswith("access-control-")]
        assert rig.engine.heard == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", {"access-control-allow-headers": "authorization,content-type"}),
        (
            "Access-Control-Request-Private-Network: true\r\n",
            {"access-control-allow-private-network": "true"},
        ),
        ("Access-Control-Request-Private-Network: no\r\n", {}),
    ],
)
async def test_what_a_preflight_asks_for(more: str, told: dict[str, str]) -> None:
    """Headers that the page sets are allowed, and a private network if it is asked for."""
    async with rigged(answering(), origin_policy=POLICY) as rig:
        answer = await rig.ask(preflight(DECLARED, more=more))
        assert told.items() <= answer.headers.items()
        assert ("access-control-allow-private-network" in answer.headers) is ("true" in more)


@pytest.mark.parametrize("headers", ["x(y)", "x" * 1000 + "\x80", ""])
async def test_no_other_text_is_repeated(headers: str) -> None:
    """A list of headers that is none is left out of the answer."""
    async with rigged(answering(), origin_policy=POLICY) as rig:
        raw = preflight(DECLARED).replace(b"authorization,content-type", headers.encode("latin-1"))
        answer = await rig.ask(raw)
        assert answer.status == 204
        assert "access-control-allow-headers" not in answer.headers


async def test_options_that_are_no_preflight_go_on() -> None:
    """OPTIONS without the browser's question are a request for the engine."""
    async with rigged(answering(sized(b"{}")), origin_policy=POLICY) as rig:
        assert (
            await rig.ask(get("/v1/thing", method="OPTIONS", headers=line(DECLARED)))
        ).status == 200
        assert rig.engine.heard[0].header(b"origin") == [DECLARED.encode()]


def test_origin_of_a_refused_head() -> None:
    """A header counts only if it is there once; a search in a head of any form takes linear time."""
    assert find_origin(b"GET / HTTP/1.1\r\nORIGIN:  a://b \r\n") == b"a://b"
    assert find_origin(b"GET / HTTP/1.1\r\nOrigin: a://b\r\nX: y\r\nOrigin: a://c\r\n") is None
    assert find_origin(b"GET / HTTP/1.1\r\nX-Origin: a://b\r\nOrigin: a://b") is None
    assert find_origin(b"\r\norigin:" * 100_000 + b" " * 100_000) is None


def preflight(origin: str, *, path: str = "/v1/chat/completions", more: str = "") -> bytes:
    """The question of a browser before a page sends JSON with a key."""
    headers = (
        f"{line(origin)}Access-Control-Request-Method: POST\r\n{more}"
        "Access-Control-Request-Headers: authorization,content-type\r\nSec-Fetch-Site: cross-site\r\n"
    )
    return get(path, headers=headers, method="OPTIONS")
