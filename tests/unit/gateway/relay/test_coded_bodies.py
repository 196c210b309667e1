"""Coded bodies on their way to the engine, which gets them plain."""

import asyncio
import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from appliance.model.gateway import Limits
from tests.fakes.engine_server import answering, sized
from tests.fakes.zstd import zstd
from tests.unit.gateway.relay.rig import ASKED, QUICK, Caller, get, rigged
from tests.waiting import until

SHORT = json.dumps(ASKED).encode()
LONG = json.dumps({"model": "genesis", "messages": [f"{n} words" for n in range(100_000)]}).encode()
CODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZip": gzip.compress,
    "zstd": zstd.compress,
}


def coded(
    coding: str, body: bytes, *, path: str = "/v1/chat/completions", chunked: bool = False
) -> bytes:
    """Return a request whose body is coded already."""
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}"
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    head = f"POST {path} HTTP/1.1\r\nHost: box\r\nContent-Encoding: {coding}\r\n{length}\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/thing"])
@pytest.mark.parametrize("body", [SHORT, LONG, b"", b'[" no object, but for the last path"]'])
@pytest.mark.parametrize("coding", CODERS)
async def test_the_engine_gets_it_plain(
    coding: str, body: bytes, path: str, *, chunked: bool
) -> None:
    """The engine is told the plain length and no coding; errors have the client's own form."""
    async with rigged(answering(sized(b"{}"))) as rig:
        request = coded(coding, CODERS[coding](body), path=path, chunked=chunked)
        answer = await rig.ask(request)
        if body[:1] == b"[" and path != "/v1/thing":
            assert answer.status == 400
            assert "not a JSON object" in str(json.loads(answer.body)["error"]["message"])
            return
        assert answer.status == 200
        (heard,) = rig.engine.heard
        assert heard.body == body
        assert heard.header(b"content-length") == [b"%d" % len(body)]
        assert heard.header(b"content-encoding") == heard.header(b"transfer-encoding") == []
        assert rig.relay.buffered_bytes == 0


async def test_requests_behind_it_wait_for_their_turn() -> None:
    """Several coded requests on one connection are answered in their order."""
    async with rigged(answering(sized(b"{}"))) as rig:
        caller = await rig.connect()
        bodies = [b'{"model":"genesis","n":%d}' % number for number in range(4)]
        requests = [coded("zstd", zstd.compress(body)) for body in bodies]
        caller.writer.write(b"".join(requests) + get("/v1/models"))
        for _ in range(4):
            assert (await caller.answer()).body == b"{}"
        assert b"genesis" in (await caller.answer()).body
        assert [heard.body for heard in rig.engine.heard] == bodies


@pytest.mark.parametrize("coding", ["br", "deflate", "compress", "gzip, gzip", "zstd,gzip", "x"])
async def test_another_coding_is_refused_with_what_to_do(coding: str) -> None:
    """The text and the header say which codings are taken."""
    async with rigged(answering(sized(b"{}"))) as rig:
        answer = await rig.ask(coded(coding, SHORT))
        assert (answer.status, answer.error["code"]) == (415, "compressed_body")
        assert "Content-Encoding: gzip or zstd" in str(answer.error["message"])
        assert answer.headers["accept-encoding"] == "gzip, zstd"


async def test_the_plain_body_counts() -> None:
    """The limit of a body, and that of all bodies together, hold for what is decoded."""
    body = zstd.compress(LONG)
    tight = replace(QUICK, body_bytes=1 << 20)
    async with rigged(answering(sized(b"{}")), limits=tight) as rig:
        answer = await rig.ask(coded("zstd", body))
        assert (answer.status, answer.error["code"]) == (413, "body_too_large")
        assert rig.relay.buffered_bytes == 0
    crowded = replace(QUICK, buffered_bytes=1 << 20)
    async with rigged(answering(sized(b"{}")), limits=crowded) as rig:
        answer = await rig.ask(coded("zstd", body))
        assert (answer.status, answer.error["code"]) == (503, "busy")
        assert rig.relay.buffered_bytes == 0
        assert (await rig.ask(coded("zstd", zstd.compress(SHORT)))).status == 200


async def test_a_bomb_is_refused() -> None:
    """A short body that stands for a huge one is refused before it takes its memory."""
    async with rigged(answering(sized(b"{}")), limits=Limits()) as rig:
        answer = await rig.ask(coded("zstd", zstd.compress(b"0" * (64 << 20))))
        assert (answer.status, answer.error["code"]) == (413, "body_expands")
        assert rig.relay.buffered_bytes == 0


async def test_a_client_that_leaves_ends_the_decoding() -> None:
    """The gateway counts and sends nothing for a client that has gone while its body was decoded."""
    body = coded("gzip", gzip.compress(LONG * 20, 1))
    async with rigged(answering(sized(b"{}")), limits=Limits()) as rig:
        caller: Caller = await rig.connect()
        caller.writer.write(body)
        await until(lambda: rig.relay.scans.busy)
        await asyncio.sleep(0)
        await caller.close()
        await until(lambda: not rig.relay.scans.busy)
        assert rig.relay.buffered_bytes == 0
        assert rig.engine.heard == []
