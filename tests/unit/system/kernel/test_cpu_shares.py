"""Shares of CPU time, from the counters of recorded and of this machine's kernel."""

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.system.kernel.cpu_shares import (
    CpuCounters,
    CpuShares,
    cpu_shares,
    process_cpu_s,
    read_cpu_counters,
)
from appliance.system.kernel.processes import control_group

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
    group = control_group("self")
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
