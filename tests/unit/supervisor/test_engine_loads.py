"""Load of engines, asked over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from appliance.model.gateway import EngineLoad, EngineMetrics
from appliance.model.profile import Applied, Endpoint
from appliance.system.engine_http import HttpBackend
from tests.fakes.profiles import applied

METRICS = b"llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n"
SLOTS = json.dumps([{"n_ctx": 100, "is_processing": True, "n_past": 50}]).encode()


@asynccontextmanager
async def engine(pages: Mapping[str, bytes], kind: str = "llama-server") -> AsyncIterator[Applied]:
    """An engine with these pages; a page that is empty never comes."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split()[1].decode()
                page = pages.get(path)
                if page == b"":
                    await reader.read()
                status, body = ("404 Not Found", b"no") if page is None else ("200 OK", page)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield replace(applied("aeon", "gpu-all"), engine=kind, endpoint=Endpoint(port=port))


@pytest.mark.parametrize(
    ("pages", "kind", "load"),
    [
        ({"/metrics": METRICS}, "llama-server", EngineLoad(running=2, queued=1)),
        (
            {"/metrics": METRICS, "/slots": SLOTS},
            "llama-server",
            EngineLoad(running=2, queued=1, kv_cache=0.5),
        ),
        ({"/metrics": METRICS, "/slots": SLOTS}, "vllm", EngineLoad(running=2, queued=1)),
        (
            {"/metrics": METRICS + b"#" * (2 << 20), "/slots": SLOTS},
            "llama-server",
            EngineLoad(running=2, queued=1, kv_cache=0.5),
        ),
        ({"/metrics": b"up 1\n"}, "vllm", None),
        ({}, "command", None),
    ],
    ids=["llama", "slots", "no slots", "endless", "other names", "no page"],
)
async def test_an_engine_is_asked_in_its_own_words(
    pages: Mapping[str, bytes], kind: str, load: EngineLoad | None
) -> None:
    """An engine's page of metrics is read, and llama-server's slots where that lacks the cache."""
    async with engine(pages, kind) as profile:
        assert await HttpBackend().load(profile) == load


async def test_a_page_of_metrics_is_passed_on_up_to_a_mebibyte() -> None:
    """A longer page ends with a whole line; an engine without a page, or without an answer, has none."""
    async with engine({"/metrics": METRICS}, "vllm") as profile:
        assert await HttpBackend().metrics(profile) == EngineMetrics(text=METRICS.decode())
    async with engine({"/metrics": METRICS * 40_000}, "command") as profile:
        page = await HttpBackend().metrics(profile)
    assert page is not None
    assert page.truncated
    assert page.text.endswith("2\n") or page.text.endswith("1\n")
    assert (1 << 20) - len(METRICS) < len(page.text) <= 1 << 20
    async with engine({}) as profile:
        assert await HttpBackend().metrics(profile) is None
    assert await HttpBackend().metrics(profile) is None


async def test_an_engine_that_is_away_or_busy_says_nothing() -> None:
    """A look at an engine that is away or busy takes at most two seconds."""
    async with engine({"/metrics": b""}) as profile:
        async with asyncio.timeout(20):
            assert await HttpBackend().load(profile) is None
    assert await HttpBackend().load(profile) is None
