"""Contract of the port `Units`, for the fake and, as a program in a booted box, for systemd.

It imports nothing of the tests: a box has the appliance only.
"""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

from appliance.domain.observed import Observed, ObservedUnit
from appliance.ports import Units

_WITHIN_S = 60.0


async def check_units(units: Units, one: str, rival: str) -> None:
    """Drive two profiles that exclude each other; both are down, and are down again afterwards."""
    names = (one, rival)
    first = await units.observe(names)
    assert set(first.units) == set(names), "every profile that is asked for is observed"
    assert all(unit.idle and unit.loaded for unit in first.units.values()), first
    assert not first.hold_active
    assert not first.going_down
    assert units.boot_id
    assert not await units.control_group(one), "what does not run has no control group"

    change = units.change()
    assert not change.has_happened()
    await units.start(one)
    assert await change.wait(_WITHIN_S), "a start is a change"
    unit = await _until(units, one, lambda seen: seen.unit(one).serving)
    assert unit.main_pid
    assert await units.control_group(one)
    await units.start(one)
    assert await _until(units, one, lambda seen: seen.unit(one).serving) == unit, "no second start"

    await units.start(rival)
    await _until(units, rival, lambda seen: seen.unit(rival).serving)
    assert (await units.observe(names)).unit(one).idle, "a start stops what it excludes"

    await units.start_hold()
    seen = await units.observe(names)
    assert seen.hold_active, "a hold is active when its start returns"
    await _until(units, rival, lambda seen: seen.unit(rival).idle)
    await units.stop_hold()
    await _until(units, rival, lambda seen: not seen.hold_active)

    await units.start(one)
    await units.stop(one)
    await units.stop(one)
    await _until(units, one, lambda seen: seen.unit(one).idle)


async def _until(units: Units, name: str, is_true: Callable[[Observed], bool]) -> ObservedUnit:
    async with asyncio.timeout(_WITHIN_S):
        while True:
            change = units.change()
            seen = await units.observe([name], full=True)
            if is_true(seen):
                return seen.unit(name)
            await change.wait(1.0)


async def _main(one: str, rival: str) -> None:
    from appliance.adapters.systemd.service_manager import SystemdUnits  # noqa: PLC0415
    from appliance.domain import paths  # noqa: PLC0415

    async with SystemdUnits(Path(paths.JOBS_SOCKET), Path("/etc/systemd/system")) as units:
        await check_units(units, one, rival)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
