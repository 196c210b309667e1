"""Contract of the port `Units` and of systemd behind it, for the fake and, in a booted box, for systemd.

The box runs this file as a program, so it imports nothing of the tests. Two profiles are installed
that exclude each other; each case begins and ends with both down.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

from appliance.model.errors import UnitError
from appliance.model.names import unit_of
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.system.ports import Units

ONE: Final = "a"
RIVAL: Final = "b"
_NAMES: Final = (ONE, RIVAL)
_WITHIN_S: Final = 60.0
_BURST: Final = 5
"""StartLimitBurst= of the units."""


class Hands(Protocol):
    """Acts of people and accidents on a unit."""

    async def kill(self, name: str, number: int) -> None:
        """Send a signal to the main process."""
        ...

    async def start_alone(self, name: str) -> None:
        """``systemctl start --no-block --job-mode=ignore-dependencies``."""
        ...


class Case:
    """Units under a contract, with the words that cases are written in."""

    def __init__(self, units: Units, hands: Hands) -> None:
        self.units = units
        self.hands = hands

    async def look(self) -> Observed:
        """Observe both profiles with all details."""
        return await self.units.observe(_NAMES, full=True)

    async def until(self, name: str, is_true: Callable[[ObservedUnit], bool]) -> ObservedUnit:
        """Wait until something is true of a unit."""
        return (await self.until_seen(name, is_true)).unit(name)

    async def until_seen(self, name: str, is_true: Callable[[ObservedUnit], bool]) -> Observed:
        """Wait until something is true of a unit; returns all that was observed with it."""
        seen = Observed(units={})
        try:
            async with asyncio.timeout(_WITHIN_S):
                while True:
                    change = self.units.change()
                    seen = await self.look()
                    if is_true(seen.unit(name)):
                        return seen
                    await change.wait(1.0)
        except TimeoutError as error:
            raise AssertionError(f"{name} stays {seen.unit(name)}") from error

    async def serve(self, name: str) -> ObservedUnit:
        """Start a profile and wait until it serves."""
        await self.units.start(name)
        # The unit is active a moment before its job is removed.
        return await self.until(name, lambda unit: unit.serving and not unit.has_job)

    async def crash(self, name: str, number: int = signal.SIGKILL) -> ObservedUnit:
        """End the engine with a signal and wait until systemd is about to start it again."""
        await self.hands.kill(name, number)
        return await self.until(name, lambda unit: unit.waits_to_restart)

    async def clean_up(self) -> None:
        """Stop both profiles."""
        for name in _NAMES:
            await self.units.stop(name)
            await self.until(name, lambda unit: unit.idle)


async def starts_and_stops(case: Case) -> None:
    """A start runs a profile and ends what it excludes; to repeat either job changes nothing."""
    units = case.units
    first = await case.look()
    assert set(first.units) == set(_NAMES), "every profile that is asked for is observed"
    assert all(unit.idle and unit.loaded for unit in first.units.values()), first
    assert not first.hold_active
    assert not first.going_down
    assert units.boot_id
    assert not await units.control_group(ONE), "what does not run has no control group"

    change = units.change()
    assert not change.has_happened()
    await units.start(ONE)
    assert await change.wait(_WITHIN_S), "a start is a change"
    unit = await case.until(ONE, lambda unit: unit.serving and not unit.has_job)
    assert unit.main_pid
    assert unit.since_s
    assert await units.control_group(ONE)
    again = await case.serve(ONE)
    assert (again.main_pid, again.since_s) == (unit.main_pid, unit.since_s), "no second start"

    await case.serve(RIVAL)
    ended = (await case.look()).unit(ONE)
    assert (ended.idle, ended.result) == (True, "success"), "a start stops what it excludes"
    assert ended.since_s == unit.since_s, "the time of the last start stays"
    assert ended.since_s <= ended.stopped_s <= ended.changed_s
    await units.stop(RIVAL)
    await units.stop(RIVAL)


async def observes_briefly(case: Case) -> None:
    """A look without details tells the state only, of a unit that has not failed."""
    unit = await case.serve(ONE)
    brief = (await case.units.observe(_NAMES)).unit(ONE)
    assert brief == ObservedUnit(active=unit.active, sub=unit.sub)
    await case.crash(ONE)
    brief = (await case.units.observe(_NAMES)).unit(ONE)
    assert (brief.waits_to_restart, brief.result, brief.exit_status) == (True, "signal", 9)


async def restarts_after_a_crash(case: Case) -> None:
    """A killed engine is started again after a pause, which a start does not cut short."""
    await case.serve(ONE)
    unit = await case.crash(ONE)
    assert (unit.result, unit.exit_status, unit.main_pid) == ("signal", 9, 0)
    assert not unit.has_job
    await case.units.start(ONE)
    unit = (await case.look()).unit(ONE)
    assert (unit.waits_to_restart, unit.has_job) == (True, True), "a start waits for the restart"
    assert (unit.result, unit.exit_status) == ("success", 9), "a start resets the failure first"
    unit = await case.until(ONE, lambda unit: unit.serving)
    assert (unit.result, unit.exit_status) == ("success", 0)


async def stays_down_after_a_stop_in_the_pause(case: Case) -> None:
    """A stop ends the pause before a restart, and leaves the result of the crash."""
    await case.serve(ONE)
    await case.crash(ONE)
    await case.units.stop(ONE)
    unit = await case.until(ONE, lambda unit: unit.idle)
    assert (unit.active, unit.result, unit.exit_status) == (ActiveState.INACTIVE, "signal", 9)


async def restarts_after_a_clean_end(case: Case) -> None:
    """An engine that ends cleanly by itself is started again, unless a rival is started first."""
    await case.serve(ONE)
    unit = await case.crash(ONE, signal.SIGTERM)
    assert (unit.result, unit.exit_status, unit.ended_cleanly) == ("success", 0, True)
    await case.serve(RIVAL)
    assert (await case.look()).unit(ONE).idle


async def refuses_beside_a_rival(case: Case) -> None:
    """The gate skips a start without dependencies beside a rival; nothing is restarted."""
    await case.serve(RIVAL)
    await case.hands.start_alone(ONE)
    unit = await case.until(ONE, lambda unit: unit.result == "exec-condition")
    assert (unit.active, unit.exit_status, unit.idle) == (ActiveState.INACTIVE, 0, True)
    assert (await case.look()).unit(RIVAL).serving


async def evicts_when_it_restarts(case: Case) -> None:
    """A restart comes with all dependencies, also of a unit that was last started without them."""
    await case.serve(RIVAL)
    await case.crash(RIVAL)
    await case.hands.start_alone(ONE)
    await case.hands.start_alone(RIVAL)
    await case.until(RIVAL, lambda unit: unit.serving)
    assert (await case.look()).unit(ONE).idle


async def gives_up(case: Case) -> None:
    """At the start limit a unit fails; only a start of the supervisor's begins anew."""
    unit = await case.serve(RIVAL)
    for _ in range(_BURST):
        await case.hands.kill(RIVAL, signal.SIGKILL)
        await case.until(RIVAL, lambda unit: not unit.serving)
        unit = await case.until(RIVAL, lambda unit: unit.serving or unit.idle)
    given_up = ("start-limit-hit", 9, ActiveState.FAILED)
    assert (unit.result, unit.exit_status, unit.active) == given_up, unit
    assert not unit.was_stopped, unit
    await case.units.stop(RIVAL)
    await case.units.start_hold()
    await case.units.stop_hold()
    unit = (await case.look()).unit(RIVAL)
    assert (unit.result, unit.exit_status, unit.active) == given_up, unit
    await case.hands.start_alone(RIVAL)
    await case.until(RIVAL, lambda unit: not unit.has_job)
    unit = (await case.look()).unit(RIVAL)
    assert (unit.result, unit.exit_status, unit.active) == given_up, unit
    unit = await case.serve(RIVAL)
    assert (unit.result, unit.exit_status) == ("success", 0)


async def holds_once_all_have_stopped(case: Case) -> None:
    """The start of a hold returns when every backend has stopped, and a start ends the hold."""
    await case.serve(ONE)
    hold = asyncio.create_task(case.units.start_hold())
    seen = await case.until_seen(ONE, lambda unit: unit.active is ActiveState.DEACTIVATING)
    assert seen.unit(ONE).has_job
    assert not seen.hold_active, "the hold waits for the stop"
    await hold
    seen = await case.look()
    assert seen.hold_active
    assert seen.unit(ONE).idle
    await case.serve(RIVAL)
    assert not (await case.look()).hold_active
    await case.units.start_hold()
    await case.units.stop_hold()
    assert not (await case.look()).hold_active


async def cancels_a_hold_that_waits(case: Case) -> None:
    """A start while the hold waits cancels the hold; the unit stops, and then starts again."""
    first = await case.serve(ONE)
    hold = asyncio.create_task(case.units.start_hold())
    await case.until(ONE, lambda unit: unit.active is ActiveState.DEACTIVATING)
    await case.units.start(ONE)
    with contextlib.suppress(UnitError):
        await hold
        raise AssertionError("the hold was not cancelled")
    unit = await case.until(ONE, lambda unit: unit.serving)
    assert unit.main_pid != first.main_pid
    assert not (await case.look()).hold_active


async def starts_in_the_order_of_requests(case: Case) -> None:
    """A start waits for a stop; the start of a rival cancels it, and waits for the same stop."""
    await case.serve(RIVAL)
    await case.units.stop(RIVAL)
    # A stop that systemd has not begun is cancelled by the start that follows.
    await case.until(RIVAL, lambda unit: unit.active is ActiveState.DEACTIVATING)
    await case.units.start(RIVAL)
    await case.units.start(ONE)
    seen = await case.look()
    assert seen.unit(RIVAL).active is ActiveState.DEACTIVATING
    waiting = seen.unit(ONE)
    assert (waiting.active, waiting.has_job, waiting.main_pid) == (ActiveState.INACTIVE, True, 0)
    await case.until(ONE, lambda unit: unit.serving)
    assert (await case.look()).unit(RIVAL).idle
    await case.units.stop(ONE)
    await case.units.start(ONE)
    await case.until(ONE, lambda unit: unit.serving)


async def ends_a_hold_that_it_ignored(case: Case) -> None:
    """A start without dependencies leaves a hold; a proper start of the same unit ends it."""
    await case.units.start_hold()
    await case.hands.start_alone(ONE)
    await case.until(ONE, lambda unit: unit.serving)
    assert (await case.look()).hold_active
    await case.units.start(ONE)
    await case.until(ONE, lambda unit: unit.serving and not unit.has_job)
    assert not (await case.look()).hold_active


async def stops_what_starts(case: Case) -> None:
    """A stop while the gate waits fails the unit, because SIGTERM ends it; later it leaves no failure."""
    await case.units.start(ONE)
    await case.until(ONE, lambda unit: unit.sub == "condition")
    await case.units.stop(ONE)
    unit = await case.until(ONE, lambda unit: unit.idle)
    failed = (ActiveState.FAILED, "signal", 0, True)
    assert (unit.active, unit.result, unit.exit_status, unit.was_stopped) == failed, unit
    await case.units.start(ONE)
    await case.until(ONE, lambda unit: unit.sub == "start")
    await case.units.stop(ONE)
    unit = await case.until(ONE, lambda unit: unit.idle)
    assert (unit.active, unit.result) == (ActiveState.INACTIVE, "success"), unit


CASES: Final[tuple[Callable[[Case], Awaitable[None]], ...]] = (
    starts_and_stops,
    observes_briefly,
    restarts_after_a_crash,
    stays_down_after_a_stop_in_the_pause,
    restarts_after_a_clean_end,
    refuses_beside_a_rival,
    evicts_when_it_restarts,
    gives_up,
    holds_once_all_have_stopped,
    cancels_a_hold_that_waits,
    starts_in_the_order_of_requests,
    ends_a_hold_that_it_ignored,
    stops_what_starts,
)


class SystemdHands:
    """`Hands` of root on a booted box."""

    def __init__(self, units: Units) -> None:
        self._units = units

    async def kill(self, name: str, number: int) -> None:
        os.kill((await self._units.observe([name], full=True)).unit(name).main_pid, number)

    async def start_alone(self, name: str) -> None:
        argv = ("systemctl", "start", "--no-block", "--job-mode=ignore-dependencies", unit_of(name))
        subprocess.run(argv, check=True)  # noqa: ASYNC221 - nothing else runs


async def _main() -> int:
    from appliance.model import paths  # noqa: PLC0415
    from appliance.system.systemd.service_manager import SystemdUnits  # noqa: PLC0415

    kept = 0
    async with SystemdUnits(Path(paths.JOBS_SOCKET), Path("/etc/systemd/system")) as units:
        case = Case(units, SystemdHands(units))
        for check in CASES:
            try:
                await check(case)
            except AssertionError as error:
                print(check.__name__, file=sys.stderr)  # noqa: T201
                traceback.print_exception(error)
            else:
                kept += 1
            await case.clean_up()
    return len(CASES) - kept


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
