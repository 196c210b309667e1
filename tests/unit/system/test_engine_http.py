"""The warm-up asks a real HTTP server, on a port and on a unix socket."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.errors import BackendError
from appliance.model.profile import Applied, Endpoint, WarmUp
from appliance.model.running_facts import SelfDescription, Topic
from appliance.system.engine_http import HttpBackend
from tests.fakes.engine_server import EngineServer, Script, Talk, answering, sized
from tests.fakes.profiles import applied
from tests.fakes.self_reports import Settings, llama_pages

Reply = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers every request with `reply`; keeps what it was asked."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self.answered = asyncio.Event()
        self.asked: list[tuple[str, dict[str, object]]] = []

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        self.asked.append((head.split()[1], json.loads(await reader.readexactly(length))))
        await self._reply(reader, writer)
        writer.close()
        await writer.wait_closed()
        self.answered.set()


def sends(status: str, body: object) -> Reply:
    async def reply(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raw = json.dumps(body).encode() if not isinstance(body, bytes) else body
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    return reply


async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def serving(
    reply: Reply, *, socket: Path | None = None
) -> AsyncIterator[tuple[Server, Applied]]:
    answering = Server(reply)
    if socket is None:
        server = await asyncio.start_server(answering.converse, "127.0.0.1", 0)
        endpoint = Endpoint(port=server.sockets[0].getsockname()[1])
    else:
        server = await asyncio.start_unix_server(answering.converse, socket)
        endpoint = Endpoint(socket=str(socket))
    async with server:
        yield answering, replace(applied("genesis", "gpu-all"), endpoint=endpoint)
        await answering.answered.wait()


@pytest.mark.parametrize(
    ("kind", "path", "answer", "key"),
    [
        (WarmUp.COMPLETION, "/v1/completions", {"choices": [{"text": "hi"}]}, "prompt"),
        (WarmUp.CHAT, "/v1/chat/completions", {"choices": [{"message": {}}]}, "messages"),
        (WarmUp.EMBEDDING, "/v1/embeddings", {"data": [{"embedding": [0.1]}]}, "input"),
    ],
)
async def test_each_kind_asks_its_own_path(
    kind: WarmUp, path: str, answer: object, key: str
) -> None:
    """A completion, a chat and an embedding each ask for what the model promises."""
    async with serving(sends("200 OK", answer)) as (server, profile):
        text = await HttpBackend().warm_up(
            replace(profile, warm_up=kind, served=("qwen-*", "qwen")), timeout_s=5
        )
    assert text.startswith("answered in ")
    ((asked, body),) = server.asked
    assert asked == path
    assert body["model"] == "qwen"
    assert key in body


async def test_unix_socket_is_asked_too(tmp_path: Path) -> None:
    """A backend on a unix socket is warmed up there."""
    reply = sends("200 OK", {"choices": [{}]})
    async with serving(reply, socket=tmp_path / "s") as (server, profile):
        await HttpBackend().warm_up(profile, timeout_s=5)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (sends("500 Oops", {"error": "secret prompt"}), "answered 500 Internal Server Error"),
        (sends("200 OK", {"choices": []}), "answered 200 without a result"),
        (sends("200 OK", b"<html>"), "invalid answer"),
        (sends("200 OK", ["choices"]), "answered 200 without a result"),
        (sends("200 OK", b"[" * 3_000_000), "invalid answer: "),
        (sends("200 OK", b"[" * 900_000), "invalid answer: nested too deeply"),
        (sends("200 OK", b'{"choices":' * 80_000), "invalid answer: nested too deeply"),
        (sends("200 OK", b"\xff\xfe{}"), "invalid answer: "),
        (sends("200 OK", b"9" * 5_000), "invalid answer: "),
        (sends(f"500 {'secret' * 9_000}", b""), r"answered 500 Internal Server Error\Z"),
        (sends("secret" * 9_000, b""), r"invalid answer: .{0,70}\Z"),
    ],
    ids=[
        *("500", "empty", "html", "list", "nested in a cut answer", "nested", "nested objects"),
        *("no UTF-8", "long number", "long reason", "long status line"),
    ],
)
async def test_wrong_answers_are_errors_without_their_text(reply: Reply, problem: str) -> None:
    """A wrong answer says what was wrong with it, never what was in it."""
    async with serving(reply) as (_server, profile):
        with pytest.raises(BackendError, match=problem) as caught:
            await HttpBackend().warm_up(profile, timeout_s=5)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("chunk", "problem"),
    [(b"fffffffff", "nested too deeply"), (b"-1", "it is not as HTTP says")],
)
async def test_a_body_without_an_end_is_read_within_the_bound(chunk: bytes, problem: str) -> None:
    """An engine that sends without an end is left after a mebibyte; a chunk of -1 bytes is no HTTP."""

    async def flood(talk: Talk) -> None:
        await talk.request()
        await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%b\r\n" % chunk)
        while True:
            await talk.say(b"[" * 65536)

    async with EngineServer(flood) as server:
        profile = replace(applied("genesis", "gpu-all"), endpoint=Endpoint(port=server.port))
        with pytest.raises(BackendError, match=f"invalid answer: {problem}"):
            await HttpBackend().warm_up(profile, timeout_s=5)


async def test_silence_ends_at_the_deadline() -> None:
    """A mute engine costs the deadline, and the thread that waits is let go at once."""
    async with serving(silent) as (_server, profile):
        began = time.monotonic()
        with pytest.raises(BackendError, match="no answer within 0 s"):
            await HttpBackend().warm_up(profile, timeout_s=0.2)
        await asyncio.to_thread(lambda: None)
        assert time.monotonic() - began < 5


async def test_nobody_there_is_an_error() -> None:
    """A refused connection is an error, not an exception of the HTTP library."""
    profile = replace(applied("genesis", "gpu-all"), endpoint=Endpoint(port=1))
    with pytest.raises(BackendError, match="invalid answer"):
        await HttpBackend().warm_up(profile, timeout_s=5)


async def described(script: Script, engine: str = "llama-server") -> SelfDescription:
    """Report of a scripted engine about itself."""
    async with EngineServer(script) as server:
        profile = replace(applied("genesis", "gpu-all"), endpoint=Endpoint(port=server.port))
        asked = replace(profile, engine=engine)
        return await HttpBackend().describe(asked)


async def test_an_engine_is_asked_for_its_pages() -> None:
    """Every page of the engine is read over a connection of its own."""

    async def script(talk: Talk) -> None:
        settings = Settings(model="/m.gguf", ctx=4096, slots=2)
        path = (await talk.request()).line.split()[1].decode()
        await talk.say(sized(llama_pages(settings)[path].encode()))

    told = await described(script)
    assert not told.faults
    assert {fact.topic for fact in told.facts} >= {Topic.CONTEXT, Topic.SLOTS, Topic.DRAFTS}


@pytest.mark.parametrize(
    ("script", "faults"),
    [
        (answering(sized(b"", b"404 Not Found")), "/props is not answered, /slots is not answered"),
        (
            answering(sized(b"<html>")),
            "/props is no JSON object, /slots is no list of slots",
        ),
        (
            answering(sized(b"[" * (2 << 20))),
            "/props is no JSON object, /slots is no list of slots",
        ),
        (answering(b"HTTP/1.1 nonsense\r\n\r\n"), "/props is not answered, /slots is not answered"),
    ],
    ids=["absent", "html", "nested", "no HTTP"],
)
async def test_pages_that_are_none_are_faults(script: Script, faults: str) -> None:
    """A page that is absent, broken or endless is told, and gives no fact."""
    told = await described(script)
    assert (told.facts, ", ".join(told.faults)) == ((), faults)


async def test_an_engine_without_pages_is_not_asked() -> None:
    """A command describes itself nowhere."""
    told = await described(answering(sized(b"{}")), engine="command")
    assert told == SelfDescription()


async def test_nothing_is_asked_where_nothing_is_promised() -> None:
    """``warm_up = "none"`` asks nothing."""
    profile = replace(applied("genesis", "gpu-all"), warm_up=WarmUp.NONE)
    assert await HttpBackend().warm_up(profile, timeout_s=5) == "not asked for"
