"""Prediction of what the gate will find once the leaving profiles have ended."""

from collections.abc import Mapping, Sequence

import pytest

from appliance.model.memory import DeviceMemory, GroupMemory, Holder, Quality
from appliance.model.names import unit_of
from appliance.model.profile import Applied
from appliance.switch.memory_findings import Leaving, prediction_of
from appliance.switch.preflight_facts import BoxFacts
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.profiles import applied

GIB = 1 << 30
OLD = applied("old", "gpu-all")
MINI = applied("mini", "cpu")


def held(gib: float | None, unit: str = "", pid: int = 1) -> Holder:
    size = None if gib is None else int(gib * GIB)
    return Holder(pid=pid, held_bytes=size, comm="x", user="x", unit=unit)


def old(gib: float | None) -> Holder:
    return held(gib, unit_of("old"), 2)


def group(gib: float) -> GroupMemory:
    size = int(gib * GIB)
    return GroupMemory(resident_bytes=size * 2, locked_bytes=0, pinned_bytes=size, pids=(1,))


@pytest.mark.parametrize(
    ("device", "running", "free", "stay"),
    [
        # Nothing leaves: the reading itself.
        (card(0, [held(4)], nobodys_bytes=GIB), False, 11, 1),
        (card(0, [held(None)], used_bytes=3 * GIB, free_bytes=13 * GIB), False, 13, 1),
        (card(0, None, used_bytes=3 * GIB, free_bytes=13 * GIB), False, 13, 0),
        # What leaves comes back, with up to 1 GiB that nobody holds.
        (card(0, [held(4), old(8)]), True, 12, 1),
        (card(0, [held(4), old(8)], nobodys_bytes=GIB), True, 12, 1),
        (card(0, [held(4), old(8)], nobodys_bytes=2 * GIB), True, 10, 1),
        (card(0, [old(8)], nobodys_bytes=GIB), False, 16, 0),
        # Of unknown size, or unlisted: all that nobody else is known to hold.
        (card(0, [held(4), old(None)], used_bytes=12 * GIB, free_bytes=4 * GIB), True, 12, 1),
        (card(0, [held(None), old(8)], used_bytes=12 * GIB, free_bytes=4 * GIB), True, 12, 1),
        (card(0, None, used_bytes=12 * GIB, free_bytes=4 * GIB), True, 16, 0),
        (card(0, [held(4)], nobodys_bytes=8 * GIB), True, 12, 1),
        # Never more than a process could have.
        (card(0, [old(16)], reserved_bytes=GIB, free_bytes=0), True, 15, 0),
        (card(0, [old(4)], used_bytes=2 * GIB, free_bytes=14 * GIB), True, 16, 0),
    ],
)
def test_what_a_gpu_gets_back(
    device: DeviceMemory,
    running: bool,  # noqa: FBT001 - a column
    free: int,
    stay: int,
) -> None:
    """By process where sizes are known, the larger guess where they are not."""
    box = BoxFacts(ram_total_bytes=GIB, devices=by_index(device))
    leaving = Leaving(names={"old"}, running=(OLD,) if running else ())
    (after,) = prediction_of(box, leaving).devices
    assert after.free_bytes == free * GIB
    assert after.free_bytes + after.used_bytes + after.reserved_bytes <= after.total_bytes
    assert len(after.holders or ()) == stay


def test_a_list_of_another_gpu_shows_what_a_profile_holds() -> None:
    """A profile listed on one GPU is taken as listed wherever it holds memory."""
    one, other = card(0, [old(8)]), card(1, [], nobodys_bytes=4 * GIB)
    box = BoxFacts(ram_total_bytes=GIB, devices=by_index(one, other))
    leaving = Leaving(names={"old"}, running=(OLD, applied("far", "gpu-7")))
    after = prediction_of(box, leaving).devices
    assert [d.free_bytes for d in after] == [16 * GIB, 12 * GIB]


@pytest.mark.parametrize(
    ("available", "running", "groups", "expected"),
    [
        (None, (), {}, 32),
        (8, (), {}, 8),
        (8, (MINI,), {"mini": group(10)}, 19),
        (8, (MINI,), {"mini": group(30)}, 32),
        (8, (MINI,), {}, 32),
        (8, (MINI, OLD), {"mini": group(10)}, 32),
    ],
)
def test_what_main_memory_gets_back(
    available: int | None,
    running: Sequence[Applied],
    groups: Mapping[str, GroupMemory],
    expected: int,
) -> None:
    """Main memory gets back what cannot be dropped and 1 GiB; all of it where that is not known."""
    box = BoxFacts(
        ram_total_bytes=32 * GIB,
        ram_available_bytes=None if available is None else available * GIB,
        devices=by_index(
            card(
                0,
                [],
                quality=Quality.UNIFIED,
                total_bytes=32 * GIB,
                free_bytes=(available or 32) * GIB,
                used_bytes=(32 - (available or 32)) * GIB,
            )
        ),
    )
    after = prediction_of(box, Leaving(names={"mini"}, running=running, groups=groups))
    assert after.host.available_bytes == expected * GIB
    assert after.devices[0].free_bytes == expected * GIB


def test_units_of_what_stays() -> None:
    """As the gate asks for them, by process."""
    box = BoxFacts(
        ram_total_bytes=GIB, devices=by_index(card(0, [held(1, "x.scope")]), card(1, None))
    )
    after = prediction_of(box, Leaving())
    assert (after.unit_of(1), after.unit_of(5)) == ("x.scope", "")
