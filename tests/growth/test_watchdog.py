"""Growth of the watchdog's findings with what a look shows."""

from collections.abc import Callable

import pytest

from appliance.alerts.rules import findings
from appliance.alerts.snapshot import BoxLook, GpuError, GpuHolder
from appliance.alerts.watchdog_memory import WatchdogMemory
from appliance.model.names import unit_of
from appliance.model.observed import ActiveState
from appliance.wire.helpers import Listener
from tests.fakes.looks import NOW, box_look, gpu_look, later, profile_look, unit_look
from tests.growth.cost import Call, excess_steps


def again(look: BoxLook) -> Call:
    """Return the judgement of a look after an equal one."""
    _, memory = findings(look, WatchdogMemory())
    second = later(look, 10)
    return lambda: findings(second, memory)


def many_profiles(size: int) -> Call:
    """Return a look at profiles that all load again after a crash, and listen to everybody."""
    names = [f"p{number}" for number in range(size)]
    units = [unit_look(unit_of(name), active=ActiveState.ACTIVATING, restarts=4) for name in names]
    listeners = tuple(
        Listener(address="::", port=9000, pid=7, process="vllm", unit=unit_of(name))
        for name in names
    )
    profiles = [profile_look(name, unit=unit) for name, unit in zip(names, units, strict=True)]
    return again(box_look(*profiles, listeners=listeners))


def many_holders(size: int) -> Call:
    """Return a look at a GPU with many errors, whose memory many processes hold."""
    holders = tuple(
        GpuHolder(pid=pid, name="python3", user="ana", held_bytes=1 << 30) for pid in range(size)
    )
    errors = tuple(GpuError(xid=31, unix_s=NOW - number) for number in range(size))
    return again(box_look(gpus=(gpu_look(holders=holders, errors=errors),)))


def long_texts(size: int) -> Call:
    """Return a look with long notes and lines."""
    unit = unit_look(unit_of("genesis"), active=ActiveState.FAILED)
    lines = ("+Nice=" + "x" * size,) * 3
    return again(box_look(profile_look(unit=unit, note="x" * size, drift=lines)))


@pytest.mark.parametrize("make", [many_profiles, many_holders, long_texts])
def test_findings_are_linear(make: Callable[[int], Call]) -> None:
    """Twice as much to see takes twice the steps."""
    assert excess_steps(make, 100) is None
