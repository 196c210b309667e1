"""Client of the gateway's front: bytes with their times, and how a response ended."""

import asyncio
import json

import pytest

from appliance.system.front_client import FrontClient, ResponseEnd
from tests.fakes.engine_server import EVENTS, LAST, EngineServer, Talk, answering, chunk, sized

PATH = "/v1/chat/completions"
REFUSED = json.dumps({"error": {"code": "model_not_active", "message": "secret"}}).encode()


async def posted(
    server: EngineServer, *, timeout_s: float = 20.0
) -> tuple[ResponseEnd, list[tuple[bytes, float]]]:
    pieces: list[tuple[bytes, float]] = []
    client = FrontClient("127.0.0.1", server.port, key="k")
    end = await client.post(
        PATH,
        {"model": "a"},
        lambda piece, at_s: pieces.append((piece, at_s)),
        timeout_s=timeout_s,
        headers={"X-Own": "1"},
    )
    return end, pieces


async def test_body_arrives_in_pieces_with_their_times() -> None:
    """Times are those of the loop's clock, between sending and the end."""
    async with EngineServer(answering(EVENTS, chunk(b"one"), chunk(b"two"), LAST)) as server:
        end, pieces = await posted(server)
    assert b"".join(piece for piece, _ in pieces) == b"onetwo"
    times = [end.sent_s, *(at_s for _, at_s in pieces), end.ended_s]
    assert times == sorted(times)
    assert (end.status, end.fault) == (200, "")


async def test_request_is_whole() -> None:
    """Path, JSON, key and further headers are sent; the connection is for this request alone."""
    async with EngineServer(answering(sized(b"{}"))) as server:
        await posted(server)
        (heard,) = server.heard
    assert heard.line == b"POST /v1/chat/completions HTTP/1.1"
    assert json.loads(heard.body) == {"model": "a"}
    assert heard.header(b"authorization") == [b"Bearer k"]
    assert heard.header(b"x-own") == [b"1"]
    assert heard.header(b"connection") == [b"close"]


@pytest.mark.parametrize(
    ("answer", "status", "fault"),
    [
        (sized(REFUSED, b"503 Busy"), 503, "503 model_not_active"),
        (sized(b'{"error": {"code": 3, "type": "bad_one"}}', b"400 X"), 400, "400 bad_one"),
        (sized(b'{"error": {"code": "has secret words"}}', b"400 X"), 400, "400"),
        (sized(b'{"error": "secret"}', b"500 X"), 500, "500"),
        (sized(b"[" * 100_000, b"500 X"), 500, "500"),
        (b"SSH-2.0-other\r\n\r\n", None, "invalid HTTP"),
    ],
)
async def test_refusal_is_told_by_status_and_code(
    answer: bytes, status: int | None, fault: str
) -> None:
    """No text of an answer is repeated, and no body of an error is passed on."""
    async with EngineServer(answering(answer)) as server:
        end, pieces = await posted(server)
    assert (end.status, end.fault) == (status, fault)
    assert not pieces


@pytest.mark.parametrize(
    ("said", "fault"), [([EVENTS, chunk(b"one")], "broke off"), ([], "no response")]
)
async def test_broken_connection_is_a_fault(said: list[bytes], fault: str) -> None:
    """A response without its end is not taken for a whole one."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(*said)

    async with EngineServer(script) as server:
        end, _ = await posted(server)
    assert end.fault == fault


async def test_endless_response_is_given_up() -> None:
    """After its time the connection is closed, whatever has come until then."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, chunk(b"one"))
        await talk.reader.read()

    async with EngineServer(script) as server:
        end, _ = await posted(server, timeout_s=0.5)
    assert end.fault == "no end within 0.5 s"
    assert end.ended_s - end.sent_s >= 0.5


async def test_nobody_listens() -> None:
    """A request that reaches nobody has failed like any other."""
    async with EngineServer(answering()) as server:
        pass
    end, pieces = await posted(server)
    assert (end.status, end.fault, pieces) == (None, "no connection", [])


async def test_leaving_closes_the_connection() -> None:
    """A cancelled request is dropped at the gateway."""
    gone = asyncio.Event()

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS)
        await talk.reader.read()
        gone.set()

    async with EngineServer(script) as server:
        task = asyncio.ensure_future(posted(server))
        while not server.heard:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(20.0):
            await gone.wait()
