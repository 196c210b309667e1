"""Memory of the units: nothing that was signalled is missing from a status."""

import asyncio
import contextlib

import pytest

from appliance.supervisor.unit_memory import StatusReader, UnitMemory
from tests.fakes.profiles import applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.waiting import settle

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))


def quiet() -> tuple[FakePorts, UnitMemory]:
    """A box on which aeon serves, and whose units signal every change."""
    fakes = FakePorts(BOX)
    fakes.serve("aeon")
    fakes.units.is_quiet = True
    return fakes, UnitMemory(fakes.units, fakes.clock)


async def test_a_status_looks_only_after_a_signal() -> None:
    """The last look is shown again until a signal comes, and then the present state at once."""
    fakes, memory = quiet()
    for _ in range(2):
        assert (await memory.latest(BOX)).serving() == ("aeon",)
    assert fakes.units.looks == 1
    fakes.processes.crash("aeon", status=3)
    fakes.units.version += 1
    assert (await memory.latest(BOX)).serving() == ()
    assert fakes.units.looks == 2


async def test_what_is_signalled_during_a_look_makes_another_one_due() -> None:
    """The look may have come too early to see it."""
    fakes, memory = quiet()
    looking = asyncio.create_task(memory.latest(BOX))
    await asyncio.sleep(0)
    fakes.units.version += 1
    await looking
    await memory.latest(BOX)
    assert fakes.units.looks == 2


async def test_what_no_signal_tells_is_seen_within_seconds() -> None:
    """A look is not shown for longer than twice the pause between two looks."""
    fakes, memory = quiet()
    await memory.latest(BOX)
    fakes.processes.crash("aeon", status=3)
    fakes.systemd.now_s += 10.0
    assert (await memory.latest(BOX)).serving() == ("aeon",)
    fakes.systemd.now_s += 0.5
    assert (await memory.latest(BOX)).serving() == ()


async def test_a_process_that_watches_causes_few_looks() -> None:
    """While the glances are the same, it causes a look in five minutes; after signals, one a minute."""
    fakes, memory = quiet()
    glance = fakes.systemd.observed(BOX)
    running = asyncio.create_task(memory.run(lambda: BOX, lambda: False))
    for _ in range(240):
        await memory.latest(BOX, StatusReader.WATCHER, glance=glance)
        await settle()
        fakes.systemd.now_s += 2.0
    assert fakes.units.looks == 2
    fakes.units.looks = 0
    for _ in range(90):
        fakes.units.version += 1
        await memory.latest(BOX, StatusReader.WATCHER, glance=glance)
        fakes.systemd.now_s += 2.0
    assert fakes.units.looks == 3
    # Another glance is news at once, and so is the same one after a person's look.
    fakes.processes.crash("aeon", status=3)
    assert (
        await memory.latest(BOX, StatusReader.WATCHER, glance=fakes.systemd.observed(BOX))
    ).serving() == ()
    fakes.units.version += 1
    await memory.latest(BOX)
    await memory.latest(BOX, StatusReader.WATCHER, glance=fakes.systemd.observed(BOX))
    assert fakes.units.looks == 6
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_scraper_causes_no_looks_but_its_own() -> None:
    """Each scrape has what was signalled, and what no signal tells to ten seconds; nobody looks in between."""
    fakes, memory = quiet()
    running = asyncio.create_task(memory.run(lambda: BOX, lambda: False))
    for _ in range(8):
        await memory.latest(BOX, StatusReader.SCRAPER)
        for _ in range(3):
            fakes.systemd.now_s += 5.0
            await settle()
    assert fakes.units.looks == 8
    fakes.processes.crash("aeon", status=3)
    fakes.units.version += 1
    assert (await memory.latest(BOX, StatusReader.SCRAPER)).serving() == ()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_profiles_that_were_just_applied_are_looked_at() -> None:
    """The memory holds for the profiles that were looked at, and no others."""
    _fakes, memory = quiet()
    assert set((await memory.latest({"aeon": BOX["aeon"]})).units) == {"aeon"}
    assert set((await memory.latest(BOX)).units) == {"aeon", "genesis"}


@pytest.mark.parametrize(
    ("operating", "ago_s", "looks"), [(False, 59.0, 2), (True, 59.0, 1), (False, 60.0, 1)]
)
async def test_the_loop_looks_while_somebody_watches(
    operating: bool,  # noqa: FBT001
    ago_s: float,
    looks: int,
) -> None:
    """The loop asks systemd for nothing without readers; an operation does its own looking."""
    fakes, memory = quiet()
    await memory.latest(BOX)
    fakes.systemd.now_s += ago_s
    loop = asyncio.create_task(memory.run(lambda: BOX, lambda: operating))
    await settle()
    loop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loop
    assert fakes.units.looks == looks
    await memory.latest(BOX)
    assert fakes.units.looks == 2
