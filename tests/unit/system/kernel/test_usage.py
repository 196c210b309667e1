"""Use of memory and CPU time: of this machine's kernel, and of recorded counters of both versions of control groups."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.errors import ApplianceError
from appliance.model.memory import DeviceMemory, Holder
from appliance.system.kernel import processes
from appliance.system.kernel.usage import (
    CpuCounters,
    CpuShares,
    cpu_shares,
    group_memory,
    group_pids,
    process_cpu_s,
    read_cpu_counters,
    read_host_memory,
)
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


UNIT = "appliance.slice/appliance-backend-a.service"
GROUP = f"/{UNIT}"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
STAT = "cpu  600 100 200 4000 100 10 20 70 500 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
UNIFIED = {
    f"sys/fs/cgroup/{UNIT}/cpu.stat": "usage_usec 7500000\nnr_periods 9\nthrottled_usec 1500000\n",
    "sys/fs/cgroup/appliance.slice/cpu.stat": "usage_usec 9500000\n",
}
LEGACY = {
    f"sys/fs/cgroup/cpuacct/{UNIT}/cpuacct.usage": "7500000000\n",
    f"sys/fs/cgroup/cpu/{UNIT}/cpu.stat": "nr_periods 9\nnr_throttled 3\nthrottled_time 1000000000\n",
    "sys/fs/cgroup/cpu/appliance.slice/cpu.stat": "nr_periods 9\nthrottled_time 500000000\n",
    f"sys/fs/cgroup/unified/{UNIT}/cgroup.procs": "",
}
BEFORE = CpuCounters(all_s=100.0, busy_s=20.0, unit_s=5.0, throttled_s=1.0)


def box(root: Path, files: Mapping[str, str]) -> str:
    """Write the files of a machine; return the directory above its /proc and /sys."""
    for name, text in {"proc/stat": STAT, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "ascii")
    return str(root)


@pytest.mark.parametrize("files", [UNIFIED, LEGACY])
def test_both_versions_of_control_groups_are_read(tmp_path: Path, files: Mapping[str, str]) -> None:
    """A unit's time and the quotas of it and of its slice count in either form."""
    counters = read_cpu_counters(GROUP, box(tmp_path, files))
    assert counters.all_s == pytest.approx(5100 * TICK_S)
    assert counters.busy_s == pytest.approx(1000 * TICK_S)
    assert (counters.unit_s, counters.throttled_s, counters.cpus) == (7.5, 1.5, 1)


@pytest.mark.parametrize("group", ["", "/", "/appliance.slice/appliance-backend-gone.service"])
def test_a_unit_without_processes_has_no_counters(tmp_path: Path, group: str) -> None:
    """The time of a group that does not exist, or of the whole tree, is not known."""
    counters = read_cpu_counters(group, box(tmp_path, {}))
    assert (counters.unit_s, counters.throttled_s) == (None, None)
    assert cpu_shares(counters, replace(counters, all_s=1e6)) == CpuShares()


@pytest.mark.parametrize("text", ["", "cpu\n", "cpu x y\n", "\x00\xff"])
def test_a_damaged_table_counts_nothing(tmp_path: Path, text: str) -> None:
    """No text of the kernel is an error."""
    root = box(tmp_path, {})
    (tmp_path / "proc/stat").write_text(text, "latin-1")
    assert read_cpu_counters(GROUP, root) == CpuCounters(all_s=0.0, busy_s=0.0)


def test_others_are_who_is_busy_beside_the_unit() -> None:
    """The share of others is of all CPUs; a quota's is of the time that the unit could have run."""
    after = CpuCounters(all_s=110.0, busy_s=26.0, unit_s=8.0, throttled_s=2.0)
    found = cpu_shares(BEFORE, after)
    assert found.others == pytest.approx(0.3)
    assert found.throttled == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("after", "shares"),
    [
        (CpuCounters(all_s=110.0, busy_s=26.0, unit_s=1.0, throttled_s=0.0), CpuShares()),
        (CpuCounters(all_s=100.1, busy_s=20.1, unit_s=5.1), CpuShares()),
        (replace(BEFORE, all_s=110.0), CpuShares(others=0.0)),
        (
            CpuCounters(all_s=110.0, busy_s=20.5, unit_s=6.0, throttled_s=1.0),
            CpuShares(others=0.0, throttled=0.0),
        ),
    ],
)
def test_counters_that_say_nothing_are_no_shares(after: CpuCounters, shares: CpuShares) -> None:
    """A unit that was restarted, a moment too short, and an idle unit have no share; none is negative."""
    assert cpu_shares(BEFORE, after) == shares


def test_the_time_of_a_process_is_read_after_any_name(tmp_path: Path) -> None:
    """A name with brackets and blanks shifts nothing; a process that is hidden has no time."""
    fields = " ".join(["S", *map(str, range(4, 14)), "150", "50", "0"])
    root = box(tmp_path, {"proc/41/stat": f"41 (a) b (c) {fields}\n"})
    assert process_cpu_s(41, root) == 200 * TICK_S
    assert process_cpu_s(42, root) is None
    own_s = process_cpu_s(os.getpid())
    assert own_s is not None
    assert own_s == pytest.approx(time.process_time(), abs=1.0)


def test_the_counters_of_this_machine_grow() -> None:
    """A process that computes is seen in the box's counters, and in its own group's if it has one."""
    group = processes.control_group("self")
    before, began = read_cpu_counters(group), time.process_time()
    while time.process_time() - began < 0.2:
        sum(range(1000))
    after = read_cpu_counters(group)
    assert after.busy_s - before.busy_s >= 0.1
    idle_s = (after.all_s - after.busy_s) - (before.all_s - before.busy_s)
    assert idle_s >= 0 or idle_s == pytest.approx(0.0, abs=0.02)
    if before.unit_s is None or after.unit_s is None:
        pytest.skip(f"no control group of our own ({group!r}) on {sys.platform}")
    assert after.unit_s - before.unit_s >= 0.1
