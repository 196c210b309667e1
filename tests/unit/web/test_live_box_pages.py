"""Engines' pages as the web process reads them from the supervisor's socket: bounded, and whole or not at all."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from appliance.supervisor.access_policy import read_from_watcher
from appliance.web.box_documents import EnginePages
from appliance.web.live_box import MOST_PAGES_CHARACTERS, LiveBox
from appliance.wire.conversation import ResultEvent
from appliance.wire.server import FEW, Peer, serve_conversations
from appliance.wire.status_socket import (
    PAGE_CHARACTERS,
    STATUS,
    CountersRequest,
    EnginePageEvent,
    StatusSocketEvent,
    StatusSocketRequest,
)


@asynccontextmanager
async def supervised(directory: Path, parts: Mapping[str, int]) -> AsyncIterator[LiveBox]:
    """A box whose engines have pages of so many parts."""
    part = "x 1\n" * (PAGE_CHARACTERS // 4)

    async def answer(
        request: StatusSocketRequest, _peer: Peer
    ) -> AsyncGenerator[StatusSocketEvent, None]:
        if isinstance(request, CountersRequest):
            yield ResultEvent(details={"gateway": None})
            return
        for name, count in parts.items():
            for _ in range(count):
                yield EnginePageEvent(profile=name, text=part)
        yield ResultEvent(details={"profiles": dict.fromkeys(parts, "complete")})

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "status"))
        listener.listen()
        listener.settimeout(0)
        server = asyncio.create_task(
            serve_conversations(STATUS, listener, read_from_watcher, answer, bounds=FEW)
        )
        try:
            yield LiveBox(directory / "status", directory / "view")
        finally:
            server.cancel()
            await asyncio.wait({server})


async def test_pages_come_whole(tmp_path: Path) -> None:
    """Parts of a page are put together; pages are told apart."""
    async with supervised(tmp_path, {"aeon": 2, "mini": 1, "mute": 0}) as box:
        pages = await box.engine_pages()
        assert pages is not None
        assert pages.states == dict.fromkeys(("aeon", "mini", "mute"), "complete")
        sizes = {name: len(text) for name, text in pages.texts.items()}
        assert sizes == {"aeon": 2 * PAGE_CHARACTERS, "mini": PAGE_CHARACTERS}


async def test_pages_without_room_are_left_out_whole(tmp_path: Path) -> None:
    """A page that is cut within a histogram would mislead; the process may not grow either."""
    most = MOST_PAGES_CHARACTERS // PAGE_CHARACTERS
    async with supervised(tmp_path, {"aeon": most - 1, "genesis": 3, "mini": 1}) as box:
        pages = await box.engine_pages()
        assert pages is not None
        assert pages.states == {"aeon": "complete", "genesis": "left-out", "mini": "left-out"}
        assert set(pages.texts) == {"aeon"}
        assert sum(map(len, pages.texts.values())) <= MOST_PAGES_CHARACTERS


async def test_a_supervisor_that_is_away_has_neither_pages_nor_counters(tmp_path: Path) -> None:
    """Unknown pages and counters are None, not empty ones."""
    async with supervised(tmp_path, {}) as box:
        assert await box.counters() == {"gateway": None}
        assert await box.engine_pages() == EnginePages(states={}, texts={})
    away = LiveBox(tmp_path / "nothing", tmp_path / "view")
    assert await away.counters() is None
    assert await away.engine_pages() is None
