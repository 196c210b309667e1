"""Processes from /proc: name, user, memory and control group of each.

Works with ProtectProc=invisible (the other processes of a user stay visible to it), and in
both kinds of control group tree: hybrid (systemd's own hierarchy) and unified.
"""

from __future__ import annotations

import os

from appliance.model.names import profile_of
from appliance.system.kernel.text_files import PROC, read, read_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_TREES = ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
"""Roots where systemd's control groups may be: on hybrid machines, and on unified ones."""


def pids() -> Iterator[int]:
    """Yield every process that this one may see."""
    for entry in os.listdir(PROC):
        if entry.isdigit():
            yield int(entry)


def control_group(pid: int | str) -> str:
    """Return the path of a process in systemd's control group tree; empty when it has ended.

    A hybrid machine has two such trees, and within a container one of them may show only its
    root: the longer path is the one that distinguishes units.
    """
    paths = [""]
    for line in read(f"{PROC}/{pid}/cgroup").splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" or controllers == "name=systemd":
            paths.append(path)
    return max(paths, key=len)


def members(group: str) -> Iterator[int]:
    """Yield the processes in control group `group` and below it, by their own paths."""
    below = group.rstrip("/") + "/"
    for pid in pids():
        path = control_group(pid)
        if path and (path == group or path.startswith(below)):
            yield pid


def processes_of(group: str) -> list[int]:
    """Return the processes in control group `group` and below it, as the kernel lists them."""
    found: set[int] = set()
    for tree in _TREES:
        _collect(tree + group, found)
    return sorted(found)


def _collect(directory: str, found: set[int]) -> None:
    try:
        with os.scandir(directory) as entries:
            below = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return  # no such group, the usual case
    found.update(map(int, read_all(f"{directory}/cgroup.procs").split()))
    for path in below:
        _collect(path, found)


def command_words(pid: int) -> list[str]:
    """Return the command line of a process; empty: it has ended, or is a kernel thread.

    Only to recognise our own programs: arguments can hold secrets, so they are never shown.
    """
    return read(f"{PROC}/{pid}/cmdline").rstrip("\0").split("\0") if pid else []


def group_of_unit(unit: str, slice_: str) -> str:
    """Return the control group of a unit, from our own place in the tree; `slice_` is a top-level one."""
    parts = control_group("self").split("/")
    above = next((i for i, part in enumerate(parts) if part.endswith(".slice")), len(parts))
    return "/".join([*parts[:above], slice_, unit])


def unit_of_group(group: str) -> str:
    """Return the unit that a control group path belongs to; empty for none.

    The innermost service or scope: a user's service sits in ``user@1000.service`` too.
    """
    for part in reversed(group.split("/")):
        if part.endswith((".service", ".scope")):
            return part
    return ""


def backend_unit(group: str) -> str:
    """Return the backend's unit that a control group path belongs to; empty for none.

    The outermost service: a person's own service manager has units of any name below its own one.
    """
    for part in group.split("/"):
        if part.endswith((".service", ".scope")):
            return part if profile_of(part) is not None else ""
    return ""


class HoldingProcess:
    """Process that holds a lease or memory. `str()` names it for people."""

    __slots__ = ("comm", "held_bytes", "pid", "unit", "user")

    def __init__(self, pid: int, *, held_bytes: int | None = None) -> None:
        self.pid = pid
        self.held_bytes = held_bytes
        """Bytes that the process holds; None: unknown, or it holds no memory but a lease."""
        # Arguments, which can hold secrets, are never shown. A process may set any name.
        comm = read(f"{PROC}/{pid}/comm").strip()
        self.comm = "".join(c if c.isprintable() else "?" for c in comm)
        self.unit = unit_of_group(control_group(pid))
        self.user = _user(pid)

    def __str__(self) -> str:
        facts = [f"pid {self.pid}", self.unit, f"user {self.user}" if self.user else ""]
        if self.held_bytes is not None:
            from appliance.model.amounts import size  # noqa: PLC0415

            facts.append(size(self.held_bytes))
        return f"{self.comm or 'a process that has ended'} ({', '.join(filter(None, facts))})"


def _user(pid: int) -> str:
    try:
        return user_name(os.stat(f"{PROC}/{pid}").st_uid)
    except OSError:
        return ""


def user_name(uid: int) -> str:
    """Return the name of a user; the number where there is no name."""
    import pwd  # noqa: PLC0415

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Return the name of a group; the number where there is no name."""
    import grp  # noqa: PLC0415

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def holders_of_file(path: str) -> list[HoldingProcess]:
    """Return the processes that have the file at `path` open, this one left out.

    /proc/locks cannot answer this: it does not show locks across PID namespaces, and it names
    the process that took a lock, which may be dead while its workers keep it.
    """
    try:
        wanted = os.stat(path)
    except OSError:
        return []
    key = (wanted.st_dev, wanted.st_ino)
    return [HoldingProcess(pid) for pid in pids() if pid != os.getpid() and _has_open(pid, key)]


def _has_open(pid: int, key: tuple[int, int]) -> bool:
    directory = f"{PROC}/{pid}/fd"
    try:
        descriptors = os.listdir(directory)
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            status = os.stat(f"{directory}/{descriptor}")
        except OSError:
            continue
        if (status.st_dev, status.st_ino) == key:
            return True
    return False


def resident_bytes(pid: int) -> int | None:
    """Return the main memory of a process; None: it has ended."""
    fields = read(f"{PROC}/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGESIZE") if len(fields) > 1 else None


def largest(count: int, *, at_least_bytes: int) -> list[HoldingProcess]:
    """Return the processes with the most resident memory, largest first."""
    sizes = ((resident_bytes(pid) or 0, pid) for pid in pids())
    large = sorted((pair for pair in sizes if pair[0] >= at_least_bytes), reverse=True)
    return [HoldingProcess(pid, held_bytes=held) for held, pid in large[:count]]
