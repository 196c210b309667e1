"""Queue of long bodies that are being scanned."""

import asyncio
import gc
import weakref
from collections.abc import Generator
from functools import partial

from appliance.gateway.relay.scan_queue import ScanQueue
from appliance.model.gateway import Refusal
from appliance.routing.json_scanner import BodyError


class Large:
    """Stand-in for a body."""


def steps(
    count: int, log: list[str], name: str, fails: Large | None = None
) -> Generator[None, None, None]:
    """Return a scan of so many steps, which fails when it holds an error."""
    body = fails
    for _ in range(count):
        log.append(name)
        yield
    if body is not None:
        raise BodyError(name)
    return None


def note(ended: list[str], name: str, _: Refusal | None) -> None:
    """Record the end of a scan."""
    ended.append(name)


async def turns(queue: ScanQueue) -> None:
    """Run the queue to its end."""
    while queue.busy:
        await asyncio.sleep(0)


async def test_owners_take_turns() -> None:
    """An owner of many bodies does not come before an owner of one."""
    queue, log, ended = ScanQueue(), list[str](), list[str]()
    for name in ("a1", "a2", "a3"):
        queue.add("a", steps(2, log, name), partial(note, ended, name))
    queue.add("b", steps(2, log, "b1"), lambda _: ended.append("b1"))
    await turns(queue)
    assert log == ["a1", "b1", "a1", "b1", "a2", "a2", "a3", "a3"]
    assert ended == ["a1", "b1", "a2", "a3"]


async def test_cancelled_bodies_are_not_read_on() -> None:
    """A cancelled scan calls nothing, and the others go on."""
    queue, log, ended = ScanQueue(), list[str](), list[str]()
    first = queue.add("a", steps(5, log, "a1"), lambda _: ended.append("a1"))
    queue.add("a", steps(1, log, "a2"), lambda _: ended.append("a2"))
    await asyncio.sleep(0)
    first.cancel()
    await turns(queue)
    assert log == ["a1", "a2"]
    assert ended == ["a2"]


async def test_refused_bodies_are_let_go_at_once() -> None:
    """The refusal holds no reference to the body."""
    queue, told = ScanQueue(), list[str]()
    body = Large()
    alive = weakref.ref(body)
    gc.disable()
    try:
        scan = steps(1, [], "refused", body)
        queue.add("a", scan, lambda found: told.append(getattr(found, "message", "")))
        del scan, body
        await turns(queue)
        assert told == ["refused"]
        assert alive() is None
    finally:
        gc.enable()
