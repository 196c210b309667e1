"""Feed of the status document: at once after a change, seldom otherwise, and cheap."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from time import thread_time

import pytest

from appliance.model.errors import UnitError
from appliance.model.status import StatusDocument
from appliance.supervisor.status_feed import PERSON_EVERY_S, PERSON_TIMES, StatusFeed
from appliance.wire.status_socket import WATCH_EVERY_S
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time


class Box:
    """A box whose document is the number of its changes and of its documents."""

    def __init__(self) -> None:
        self.changes = 0
        self.documents = 0
        self.questions = 0
        self.lost = False
        self.takes_s = 0.01
        self.feed = StatusFeed(self.document, self.state)

    def state(self) -> int:
        self.questions += 1
        return self.changes

    async def document(self) -> StatusDocument:
        if self.lost:
            raise UnitError("the bus is away")
        self.documents += 1
        changes = self.changes
        await advance(self.takes_s)
        return StatusDocument(version=str(self.documents), host=str(changes))

    def change(self) -> None:
        """Change, and look."""
        self.changes += 1
        self.feed.notice()


class Watcher:
    """One that watches, and when it was told what."""

    def __init__(self, feed: StatusFeed) -> None:
        self.told: list[tuple[float, int]] = []
        """Seconds since it began, and the changes that the document knew."""
        self._documents = feed.documents()
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async for document in self._documents:
            self.told.append((round(loop.time() - began_s, 2), int(document.host)))

    async def leave(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        await self._documents.aclose()


async def watched(box: Box, *steps: float) -> Sequence[tuple[float, int]]:
    """Watch, and return what is told, while the box changes after each of these pauses."""
    watcher = Watcher(box.feed)
    for seconds in steps[:-1]:
        await advance(seconds)
        box.change()
    await advance(steps[-1])
    await watcher.leave()
    return watcher.told


async def test_a_change_is_told_at_once() -> None:
    """The first document comes at once, the next one with the change."""
    assert await watched(Box(), 2.0, 1.0) == [(0.01, 0), (2.01, 1)]


async def test_many_changes_are_told_together() -> None:
    """At most two documents a second, and the last one knows the last change."""
    told = await watched(Box(), *[0.1] * 20, 1.0)
    assert told[-1][1] == 20
    assert len(told) <= 6


async def test_without_a_change_a_document_comes_every_ten_seconds() -> None:
    """Ages and figures are renewed, though nothing else is new; looks alone cause nothing."""
    box = Box()
    watcher = Watcher(box.feed)
    for _ in range(20):
        await advance(2.0)
        box.feed.notice()
    await watcher.leave()
    assert [seconds for seconds, _ in watcher.told] == [0.01, 10.01, 20.01, 30.01]


async def test_people_get_a_document_every_two_seconds() -> None:
    """A feed for people renews figures as often as the gateway is asked for them."""
    box = Box()
    feed = StatusFeed(box.document, box.state, every_s=PERSON_EVERY_S, times=PERSON_TIMES)
    watcher = Watcher(feed)
    await advance(5.0)
    await watcher.leave()
    assert [seconds for seconds, _ in watcher.told] == [0.01, 2.01, 4.01]


async def test_a_change_during_a_document_is_told_by_the_next() -> None:
    """The document may have been read before the change."""
    assert await watched(Box(), 0.005, 2.0) == [(0.01, 0), (0.51, 1)]


async def test_watchers_share_documents() -> None:
    """Ten watchers cost hardly more than one."""
    box = Box()
    watchers = [Watcher(box.feed) for _ in range(10)]
    await advance(1.0)
    box.change()
    await advance(1.0)
    for watcher in watchers:
        await watcher.leave()
        assert watcher.told == [(0.01, 0), (1.01, 1)]
    assert box.documents == 2


async def test_nobody_costs_nothing() -> None:
    """While nobody watches, a look asks for nothing and no document is built."""
    box = Box()
    watcher = Watcher(box.feed)
    await advance(1.0)
    await watcher.leave()
    box.questions = box.documents = 0
    box.change()
    await advance(100.0)
    assert (box.questions, box.documents) == (0, 0)


async def test_what_changed_while_nobody_watched_is_no_change() -> None:
    """A new watcher is told the present state once, not twice."""
    box = Box()
    assert await watched(box, 1.0) == [(0.01, 0)]
    box.change()
    box.change()
    assert await watched(box, 3.0) == [(0.01, 2)]


async def test_a_document_that_took_long_is_not_told_to_who_comes_later() -> None:
    """One who asks while it is built gets the next one, which knows the present."""
    box = Box()
    box.takes_s = 2.0
    first = Watcher(box.feed)
    await advance(1.0)
    box.change()
    second = Watcher(box.feed)
    await advance(4.0)
    assert (first.told[0][1], second.told[0][1]) == (0, 1)
    await first.leave()
    await second.leave()


@pytest.mark.parametrize("looked", [False, True])
async def test_a_change_is_told_at_once_to_who_asks_then(*, looked: bool) -> None:
    """Another watcher's last document is not the answer, before the next look at the box and after."""
    box = Box()
    first = Watcher(box.feed)
    await advance(0.1)
    box.changes += 1
    if looked:
        box.feed.notice()
    second = Watcher(box.feed)
    await advance(0.1)
    assert second.told == [(0.01, 1)]
    await first.leave()
    await second.leave()


async def test_a_slow_watcher_gets_the_present_document() -> None:
    """One that takes its time is not told the past, and makes nobody wait."""
    box = Box()
    quick = Watcher(box.feed)
    slow = box.feed.documents()
    assert (await anext(slow)).host == "0"
    for _ in range(3):
        await advance(1.0)
        box.change()
    await advance(1.0)
    assert (await anext(slow)).host == "3"
    assert len(quick.told) == 4
    await slow.aclose()
    await quick.leave()


async def test_a_box_that_cannot_be_read_ends_the_watch() -> None:
    """The watcher hears why, and may come back."""
    box = Box()
    documents = box.feed.documents()
    await anext(documents)
    box.lost = True
    with pytest.raises(UnitError, match="the bus is away"):
        await anext(documents)
    box.lost = False
    assert await watched(box, 1.0) == [(0.01, 0)]


async def test_dear_documents_come_less_often() -> None:
    """A document that takes a CPU 30 ms comes every 15 s, so that watching costs 0.2 % of a core."""
    box = Box()
    cheap = await watched(box, 40.0)
    assert cheap[1][0] == pytest.approx(WATCH_EVERY_S, abs=0.02)

    async def dear() -> StatusDocument:
        end_s = thread_time() + 0.03
        while thread_time() < end_s:
            pass
        return StatusDocument(host="0")

    watcher = Watcher(StatusFeed(dear, box.state))
    await advance(60.0)
    await watcher.leave()
    seconds = [at for at, _ in watcher.told]
    assert min(b - a for a, b in pairwise(seconds)) >= 14.9
    assert len(seconds) >= 3
