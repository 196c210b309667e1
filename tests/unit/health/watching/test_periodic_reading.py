"""Readings of sources that may fail."""

import asyncio
import logging

import pytest

from appliance.health.watching.periodic_reading import PeriodicReading
from appliance.model.errors import UnitError
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time


class Source:
    """Source that counts its readings and fails or hangs on request."""

    def __init__(self) -> None:
        self.readings = 0
        self.fault: Exception | None = None
        self.takes_s = 0.0

    async def read(self) -> int | None:
        """Return how often it was read."""
        await advance(self.takes_s)
        if self.fault is not None:
            raise self.fault
        self.readings += 1
        return self.readings


async def test_a_reading_serves_for_its_period() -> None:
    """A source is asked again when its period is over, a second early at most, or another one is asked for."""
    source = Source()
    reading = PeriodicReading("it", source.read, VirtualHealthClock(), every_s=30.0)
    assert await reading.latest() == 1
    await advance(28.9)
    assert await reading.latest() == 1
    assert await reading.latest(every_s=0.0) == 2
    await advance(29.1)
    assert await reading.latest() == 3


@pytest.mark.parametrize("fault", [UnitError("gone"), OSError("gone"), ValueError("gone")])
async def test_a_fault_is_none_and_told_once(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A failed reading gives nothing, and the log has its beginning and its end."""
    caplog.set_level(logging.INFO)
    source = Source()
    reading = PeriodicReading("the thing", source.read, VirtualHealthClock())
    source.fault = fault
    assert [await reading.latest(), await reading.latest()] == [None, None]
    source.fault = None
    assert await reading.latest() == 1
    assert [record.getMessage() for record in caplog.records] == [
        "the thing cannot be observed: gone",
        "the thing can be observed again",
    ]


async def test_a_source_that_hangs_is_left() -> None:
    """A reading takes three seconds at most, and its last result does not outlive it."""
    source = Source()
    reading = PeriodicReading("it", source.read, VirtualHealthClock())
    assert await reading.latest() == 1
    source.takes_s = 60.0
    began_s = asyncio.get_running_loop().time()
    assert await reading.latest() is None
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(3.0)
