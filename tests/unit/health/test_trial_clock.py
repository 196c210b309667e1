"""Clock of trials, on which times pass faster."""

import asyncio

import pytest

from appliance.health.clock import TrialClock
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time


async def test_all_its_times_pass_faster() -> None:
    """A second of the machine is ten of its own, from its making on."""
    machine = VirtualHealthClock()
    trial = TrialClock(machine, 10.0)
    before = (trial.unix_s(), trial.monotonic_s(), trial.boot_s())
    assert before == (machine.unix_s(), machine.monotonic_s(), machine.boot_s())
    await advance(3.0)
    after = (trial.unix_s(), trial.monotonic_s(), trial.boot_s())
    passed = [b - a for a, b in zip(before, after, strict=True)]
    assert passed == pytest.approx([30.0] * 3)
    assert trial.boot_id == machine.boot_id


async def test_its_waits_are_shorter() -> None:
    """Waiting for its own times takes a tenth of them."""
    machine = VirtualHealthClock()
    trial = TrialClock(machine, 10.0)
    began_s = machine.monotonic_s()
    await trial.sleep_until(trial.monotonic_s() + 50.0)
    assert machine.monotonic_s() - began_s == pytest.approx(5.0)
    assert not await trial.wait(asyncio.Event(), trial.monotonic_s() + 50.0)
    assert machine.monotonic_s() - began_s == pytest.approx(10.0)
    news = asyncio.Event()
    news.set()
    assert await trial.wait(news, None)
