"""The event loop with virtual time: what tests rest on must be true first."""

import asyncio
import os
import time

import pytest

from tests.fakes.virtual_time import VirtualTimeLoop, advance
from tests.waiting import until

pytestmark = pytest.mark.virtual_time


async def test_a_day_costs_no_time() -> None:
    """The clock jumps to the next timer when nothing is ready."""
    used_s, began_s = time.process_time(), asyncio.get_running_loop().time()
    await advance(86_400)
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(86_400)
    assert time.process_time() - used_s < 1


async def test_timers_are_due_in_their_order() -> None:
    """Timers fire in the order of their due times, and may set further timers."""
    happened: list[str] = []

    async def every(seconds: float, name: str) -> None:
        while True:
            await advance(seconds)
            happened.append(name)

    tasks = [asyncio.create_task(every(2.0, "two")), asyncio.create_task(every(3.0, "three"))]
    await advance(6.5)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert happened[:3] == ["two", "three", "two"]
    assert sorted(happened[3:]) == ["three", "two"]


async def test_the_clock_stands_while_a_task_is_ready() -> None:
    """Tasks that go on without a timer take no time, however often."""
    began_s = asyncio.get_running_loop().time()
    passes = iter(range(1000))
    await until(lambda: next(passes) == 999)
    assert asyncio.get_running_loop().time() == began_s


async def test_a_timeout_ends_what_waits_for_ever() -> None:
    """Deadlines are in virtual time too."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await asyncio.Event().wait()


async def test_descriptors_are_refused() -> None:
    """Virtual time would pass while bytes are on their way, so no socket or pipe is waited for."""
    ours, theirs = os.pipe()
    try:
        with pytest.raises(RuntimeError, match="does not wait for descriptor"):
            asyncio.get_running_loop().add_reader(ours, print)
    finally:
        os.close(ours)
        os.close(theirs)


async def test_threads_are_refused() -> None:
    """Virtual time would pass while a thread works."""
    with pytest.raises(RuntimeError, match="does not wait for a thread"):
        await asyncio.to_thread(print)


def test_a_wait_without_an_end_is_told() -> None:
    """A test that no timer and no task can continue fails at once."""
    with (
        pytest.raises(RuntimeError, match="no timer and no task"),
        asyncio.Runner(loop_factory=VirtualTimeLoop) as runner,
    ):
        runner.run(asyncio.Event().wait())
