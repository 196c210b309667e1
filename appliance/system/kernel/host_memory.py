"""Main memory: the host's from /proc/meminfo, a control group's from its processes."""

from appliance.model.errors import ApplianceError
from appliance.model.memory import GroupMemory, HostMemory
from appliance.system.kernel.processes import members, processes_of
from appliance.system.kernel.text_files import PROC, kib_table, meminfo, read


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
