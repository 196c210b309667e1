"""Clocks of the health agent, the real ones and those of tests."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.health.clock import HealthClock, SystemHealthClock, message_clock
from tests.fakes.health_clock import VirtualHealthClock

NOW = 1_763_356_200.0  # Mon 17 Nov 2025 05:10 UTC
CLOCKS = pytest.mark.parametrize(
    "make",
    [
        pytest.param(VirtualHealthClock, marks=pytest.mark.virtual_time, id="virtual"),
        pytest.param(SystemHealthClock, id="system"),
    ],
)


@CLOCKS
async def test_a_time_that_has_passed_is_not_awaited(make: Callable[[], HealthClock]) -> None:
    """Waiting for the past ends at once, and waiting for the future after it has come."""
    clock = make()
    await clock.sleep_until(clock.monotonic_s() - 3600)
    until_s = clock.monotonic_s() + 0.01
    await clock.sleep_until(until_s)
    assert clock.monotonic_s() >= until_s


@CLOCKS
async def test_an_event_ends_a_wait(make: Callable[[], HealthClock]) -> None:
    """A wait says whether the event came, or the time; without a time it is for the event."""
    clock, news = make(), asyncio.Event()
    assert not await clock.wait(news, clock.monotonic_s() + 0.01)
    assert not await clock.wait(news, clock.monotonic_s() - 1)
    asyncio.get_running_loop().call_soon(news.set)
    assert await clock.wait(news, clock.monotonic_s() + 3600)
    assert await clock.wait(news, None)


def test_the_clocks_of_this_machine_are_the_kernels() -> None:
    """Suspended time counts by one of them alone, and the boot has the kernel's name."""
    clock = SystemHealthClock()
    assert abs(clock.unix_s() - time.time()) < 60
    awake_s = clock.monotonic_s()
    assert clock.boot_s() >= awake_s
    assert clock.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()


def test_times_are_those_of_the_zone() -> None:
    """A moment of the last hours has no day; an older one has."""
    clock = message_clock("Europe/Rome", lambda: NOW)
    assert clock(NOW - 3600) == "05:10"
    assert clock(NOW - 86_400) == "Sun 16 Nov 06:10"
    assert message_clock("UTC", lambda: NOW)(NOW) == "05:10"


def test_the_zone_of_the_box_is_the_default() -> None:
    """Without a zone the local time of this machine is told."""
    assert len(message_clock()(NOW)) > 5
