"""Leases of the box."""

import asyncio

import pytest

from appliance.health.answering.lease_desk import LeaseDesk
from appliance.model.errors import BusyError
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time


class Desk:
    """A desk, its lane, and what the monitors are told."""

    def __init__(self) -> None:
        self.lane = FakeProbeLane(lambda _request: LaneAnswer())
        self.desk = LeaseDesk(self.lane, VirtualHealthClock())
        self.told: list[bool] = []
        self.desk.on_change = lambda: self.told.append(self.desk.is_leased())

    async def hold(self, seconds: float) -> str:
        """Have the lease for a while; return its token."""
        async with self.desk.lease(["a"], exclusive=True, text="bench of ana") as lease:
            await advance(seconds)
            return lease.token


async def test_a_lease_is_taken_and_given_back() -> None:
    """Monitors know of it before the gateway does, and after it has ended."""
    desk = Desk()
    assert await desk.hold(5) == "token"
    assert desk.lane.leases == [(("a",), True)]
    assert desk.told == [True, False]


async def test_one_bench_has_the_box() -> None:
    """A second one is refused at once, with the text of the first, and may come after it."""
    desk = Desk()
    first = asyncio.create_task(desk.hold(5))
    await advance(1)
    with pytest.raises(BusyError, match=r"leased \(bench of ana\)"):
        await desk.hold(1)
    await first
    await desk.hold(1)


async def test_a_lane_that_is_busy_is_asked_for_a_while() -> None:
    """The lease begins when the lane is free within 20 s; else it is refused and nobody has it."""
    desk = Desk()
    async with desk.lane.lease(["b"], exclusive=False):
        with pytest.raises(BusyError, match="gives no lease: another lease has the lane"):
            await desk.hold(1)
        assert not desk.desk.is_leased()
        waiting = asyncio.create_task(desk.hold(1))
        await advance(10)
    assert await waiting == "token"


async def test_a_client_that_leaves_ends_its_lease() -> None:
    """A lease that is cancelled, waiting or held, is given back."""
    desk = Desk()
    for seconds in (0.0, 3.0):
        held = asyncio.create_task(desk.hold(3600))
        await advance(seconds)
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        assert not desk.desk.is_leased()
    assert desk.told[-1] is False
    await desk.hold(1)
