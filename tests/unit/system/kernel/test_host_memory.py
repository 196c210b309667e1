"""Readings of memory: pure types, and from the kernel the host's and a control group's."""

import sys
from pathlib import Path

import pytest

from appliance.model.errors import ApplianceError
from appliance.model.memory import DeviceMemory, Holder
from appliance.system.kernel.host_memory import group_memory, group_pids, read_host_memory
from tests.programs import control_group, inside, started


def device(*held: int | None, used: int = 10) -> DeviceMemory:
    holders = [Holder(pid=i, held_bytes=b, comm="", user="", unit="") for i, b in enumerate(held)]
    return DeviceMemory(
        index=0,
        uuid="GPU-0",
        name="x",
        total_bytes=100,
        free_bytes=90,
        used_bytes=used,
        holders=holders,
    )


@pytest.mark.parametrize(
    ("held", "rest"), [((), 10), ((4, 6), 0), ((3, 4), 3), ((30,), 0), ((3, None), None)]
)
def test_the_rest_is_what_nobody_accounts_for(held: tuple[int | None, ...], rest: int) -> None:
    """Used bytes without those of the listed processes; unknown when one of them is unknown."""
    assert device(*held).unattributed_bytes == rest


def test_this_machine_has_memory() -> None:
    """The kernel's figures are read in bytes."""
    memory = read_host_memory()
    assert 64 << 20 < memory.available_bytes <= memory.total_bytes


@pytest.mark.parametrize(
    "text", ["", "MemTotal: 5 kB\n", "MemTotal:\nMemAvailable: 1 kB\n", "MemTotal: x kB\n", "\xff"]
)
def test_what_the_kernel_would_never_say_is_an_error(tmp_path: Path, text: str) -> None:
    """A table without the two figures is our error, not a foreign one."""
    path = tmp_path / "proc" / "meminfo"
    path.parent.mkdir()
    path.write_text(text, "latin-1")
    with pytest.raises(ApplianceError, match="size of the memory"):
        read_host_memory(f"{tmp_path}/")


LOCKED = 4 << 20
# Tells whether it could lock, then stays.
LOCKING = f"""
import ctypes, mmap, time
area = mmap.mmap(-1, {LOCKED}, flags=mmap.MAP_PRIVATE)
address = ctypes.addressof(ctypes.c_char.from_buffer(area))
refused = ctypes.CDLL(None).mlock(ctypes.c_void_p(address), ctypes.c_size_t({LOCKED}))
print("no" if refused else "yes", flush=True)
time.sleep(60)
"""


def test_a_control_group_has_what_its_processes_have() -> None:
    """The memory of every process in a group and below it counts, locked memory apart."""
    with control_group("group-memory") as group:
        if group is None:
            pytest.skip("may not make control groups: a group's memory stays unproved")
        below = group / "below"
        below.mkdir()
        argv = [sys.executable, "-I", "-c", LOCKING]
        with started(inside(group, argv)) as first, started(inside(below, argv)) as second:
            for process in (first, second):
                assert process.stdout is not None
                if process.stdout.readline() != "yes\n":
                    pytest.skip("may not lock memory: VmLck stays unproved")
            tree = next(
                p for p in group.parents if p.parent == Path("/sys/fs") or p.name == "systemd"
            )
            name = f"/{group.relative_to(tree)}"
            memory = group_memory(name)
            assert sorted(memory.pids) == sorted([first.pid, second.pid])
            assert memory.locked_bytes == 2 * LOCKED
            assert 2 * LOCKED < memory.pinned_bytes <= memory.resident_bytes
        below.rmdir()
        assert group_memory(name).pids == ()


@pytest.mark.parametrize("name", ["", "/", "/system.slice/never-there.service"])
def test_a_group_that_is_no_units_is_empty(name: str) -> None:
    """Neither the whole machine nor a group that does not exist has processes for us."""
    assert group_pids(name) == ()
