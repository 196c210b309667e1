"""Use of main memory and CPU time by the box and by the processes of a unit, from the kernel's counters.

Main memory is that of /proc/meminfo and of the processes in a control group. CPU time:

=================  ====================================  ==========================================
figure             control groups of version 2           of version 1
=================  ====================================  ==========================================
time of a unit     ``usage_usec`` in ``cpu.stat``        ``cpuacct.usage``; without accounting the
                                                         sum over its processes in /proc
time kept from it  ``throttled_usec`` in ``cpu.stat``    ``throttled_time`` in ``cpu.stat``
=================  ====================================  ==========================================

A quota may be the unit's own or that of a slice above. Every file is readable for everybody
(cgroup-v2.rst, sched-bwc.rst, cpuacct.rst and proc_stat(5)).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.model.memory import GroupMemory, HostMemory
from appliance.system.kernel.processes import members, processes_of
from appliance.system.kernel.text_files import (
    PROC,
    is_number,
    kib_table,
    meminfo,
    number_of,
    read,
    text_of,
)


def read_host_memory(root: str = "/") -> HostMemory:
    """Return main memory now.

    Args:
        root: Directory that has ``proc/meminfo``.

    Raises:
        ApplianceError: the kernel does not say.
    """
    total, available = meminfo(root)
    if not (total and available):
        raise ApplianceError(f"cannot read the size of the memory from {root}proc/meminfo")
    return HostMemory(total_bytes=total, available_bytes=available)


def group_memory(control_group: str) -> GroupMemory:
    """Return the main memory of the processes in a unit's control group and below it.

    Args:
        control_group: Its path, systemd's property ControlGroup, ``/system.slice/x.service``.
    """
    pids, resident, locked, pinned = [], 0, 0, 0
    for pid in group_pids(control_group):
        values = kib_table(read(f"{PROC}/{pid}/status"))
        if "VmRSS" not in values:  # The process has ended meanwhile, or is a zombie.
            continue
        pids.append(pid)
        resident += values["VmRSS"]
        locked += values.get("VmLck", 0)
        # Locked memory may be anonymous too and is then counted twice, hence the bound.
        kept = sum(values.get(name, 0) for name in ("RssAnon", "RssShmem", "VmLck"))
        pinned += min(kept, values["VmRSS"])
    return GroupMemory(
        resident_bytes=resident, locked_bytes=locked, pinned_bytes=pinned, pids=tuple(pids)
    )


def group_pids(control_group: str) -> tuple[int, ...]:
    """Return the processes in a control group and below it, zombies included; none of the whole tree."""
    group = control_group.rstrip("/")
    if not group:
        return ()
    # Within a container a tree may show other paths than the processes do.
    return tuple(processes_of(group) or sorted(members(group)))


# --- CPU time ------------------------------------------------------------------------

_UNIFIED: Final = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
_USAGE: Final = ("sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct")
_QUOTAS: Final = ("sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpu")
"""Mounts of control groups below the root, of version 2 and of version 1."""
_MOST_LEVELS: Final = 8
_BOX_COLUMNS: Final = 8
"""Columns of /proc/stat that add up to all time: those of guests are part of the first two."""
_IDLE: Final = frozenset({3, 4})
_FEWEST_S: Final = 0.2
"""Time of all CPUs below which the box's counters, in steps of 10 ms, say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCounters:
    """Counters at one instant, in seconds over all CPUs; None: not counted."""

    all_s: float
    busy_s: float
    cpus: int = 1
    """Number of the CPUs of the box."""
    unit_s: float | None = None
    throttled_s: float | None = None
    """Time in which processes of the unit were ready and a quota kept them from running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuShares:
    """Shares of CPU time between two instants, 0 to 1; None: not known."""

    others: float | None = None
    """Share of the box's time that others than the unit used."""
    throttled: float | None = None
    """Share of the unit's possible time that a quota kept from it."""


def read_cpu_counters(group: str, root: str = "/") -> CpuCounters:
    """Read the counters of the box and of a unit.

    Args:
        group: Control group of the unit, ``/appliance.slice/x.service``.
        root: Above /proc and /sys; another directory in tests.
    """
    lines = read(os.path.join(root, "proc/stat")).splitlines()
    words = lines[0].split()[1:] if lines else []
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    times = [int(word) * tick_s for word in words[:_BOX_COLUMNS] if is_number(word)]
    return CpuCounters(
        all_s=sum(times),
        busy_s=sum(time for column, time in enumerate(times) if column not in _IDLE),
        cpus=max(1, sum(line.startswith("cpu") for line in lines[1:])),
        unit_s=_unit_s(group, root),
        throttled_s=_throttled_s(group, root),
    )


def cpu_shares(before: CpuCounters, after: CpuCounters) -> CpuShares:
    """Return the shares between two readings; none of a unit that was restarted meanwhile."""
    unit_s = _growth(before.unit_s, after.unit_s)
    throttled_s = _growth(before.throttled_s, after.throttled_s)
    all_s = after.all_s - before.all_s
    others = throttled = None
    if unit_s is not None and all_s >= _FEWEST_S:
        others = _share(after.busy_s - before.busy_s - unit_s, all_s)
    if unit_s is not None and throttled_s is not None and unit_s + throttled_s > 0:
        throttled = _share(throttled_s, unit_s + throttled_s)
    return CpuShares(others=others, throttled=throttled)


def _growth(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None or after < before else after - before


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole))


def _unit_s(group: str, root: str) -> float | None:
    own = group.strip("/")
    for mount in _UNIFIED if own else ():
        used = _table(root, mount, own).get("usage_usec")
        if used is not None:
            return used / 1e6
    for mount in _USAGE if own else ():
        used = number_of(root, mount, own, "cpuacct.usage")
        if used is not None:
            return used / 1e9
    found = [process_cpu_s(pid, root) for pid in processes_of(group)] if own else []
    times = [time for time in found if time is not None]
    return sum(times) if times else None


def process_cpu_s(pid: int, root: str = "/") -> float | None:
    """Return the CPU time of a process, proc_pid_stat(5); None: it has ended, or is hidden."""
    # The name before the last bracket may hold any character.
    words = text_of(root, "proc", str(pid), "stat").rpartition(")")[2].split()
    ticks = [int(word) for word in words[11:13] if is_number(word)]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def _throttled_s(group: str, root: str) -> float | None:
    """Return the time that the quotas of the unit and of the slices above kept from it."""
    found = [kept for place in _levels(group) for kept in _kept_at(place, root)]
    return sum(found) if found else None


def _levels(group: str) -> Iterator[str]:
    place = group.strip("/")
    for _ in range(_MOST_LEVELS):
        if not place:
            return
        yield place
        place = place.rpartition("/")[0]


def _kept_at(place: str, root: str) -> Iterator[float]:
    for mount in _UNIFIED:
        kept = _table(root, mount, place).get("throttled_usec")
        if kept is not None:
            yield kept / 1e6
    for mount in _QUOTAS:
        kept = _table(root, mount, place).get("throttled_time")
        if kept is not None:
            yield kept / 1e9
            return  # the names are links to one mount


def _table(root: str, mount: str, place: str) -> dict[str, int]:
    pairs = (line.partition(" ") for line in text_of(root, mount, place, "cpu.stat").splitlines())
    return {name: int(value) for name, _, value in pairs if is_number(value)}
