"""Main memory: the host's from /proc/meminfo, a control group's from its processes."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from appliance.adapters.kernel import processes
from appliance.adapters.kernel.text_files import kib_table
from appliance.domain.errors import ApplianceError
from appliance.domain.memory import GroupMemory, HostMemory

_MEMINFO: Final = Path("/proc/meminfo")
_KIB: Final = 1024
_TREES: Final = (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup"))
"""systemd's own hierarchy of a hybrid machine, and the unified one."""


def read_host_memory(meminfo: Path = _MEMINFO) -> HostMemory:
    """Main memory now. Raises `ApplianceError` when the kernel does not say."""
    try:
        values = _values(meminfo.read_text("ascii"))
        return HostMemory(
            total_bytes=values["MemTotal"] * _KIB, available_bytes=values["MemAvailable"] * _KIB
        )
    except (OSError, KeyError, ValueError, IndexError) as error:
        raise ApplianceError(f"cannot read the size of the memory from {meminfo}") from error


def _values(text: str) -> dict[str, int]:
    lines = (line.partition(":") for line in text.splitlines())
    return {name: int(rest.split()[0]) for name, _, rest in lines if name.startswith("Mem")}


def group_memory(control_group: str) -> GroupMemory:
    """What the processes in a unit's control group and below it have of main memory.

    Args:
        control_group: Its path as systemd tells it (ControlGroup), ``/system.slice/x.service``.
    """
    pids, resident, locked, pinned = [], 0, 0, 0
    for pid in group_pids(control_group):
        values = kib_table(processes.read(f"{processes.PROC}/{pid}/status"))
        if "VmRSS" not in values:  # it has ended meanwhile, or is a zombie
            continue
        pids.append(pid)
        resident += values["VmRSS"]
        locked += values.get("VmLck", 0)
        # What is locked may be anonymous too: counted twice, hence the bound.
        kept = sum(values.get(name, 0) for name in ("RssAnon", "RssShmem", "VmLck"))
        pinned += min(kept, values["VmRSS"])
    return GroupMemory(
        resident_bytes=resident, locked_bytes=locked, pinned_bytes=pinned, pids=tuple(pids)
    )


def group_pids(control_group: str) -> tuple[int, ...]:
    """The processes in a control group and below it, zombies included."""
    if not control_group.strip("/"):
        return ()  # The root of the tree is no unit.
    for tree in _TREES:
        folder = tree / control_group.strip("/")
        if folder.is_dir():
            return tuple(sorted(set(_pids_below(folder))))
    # Within a container a tree may show other paths than the processes do.
    return tuple(sorted(processes.members(control_group)))


def _pids_below(folder: Path) -> Iterator[int]:
    for path, _, _ in os.walk(folder):
        yield from map(int, processes.read_all(f"{path}/cgroup.procs").split())
