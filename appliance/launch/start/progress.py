"""Progress of a loading engine, from counters of its processes.

Sampled each second over all processes of our own control group. An engine that hangs still uses
some CPU time: threads wake up to look at a queue, an event loop ticks. So a number counts only
when it changes faster in one second than idling changes it:

=============  ===============  =====================================================
number         counts from      most that idling did in any of ten seconds
=============  ===============  =====================================================
CPU time       50 ms            llama.cpp server 0 ms; Python: 20 Hz event loop 10 ms,
                                thread that polls 1000 times a second 20 ms
memory         1 MiB            0
bytes read     64 KiB           80 B: ten wake-ups a second by eventfd
bytes written  256 B            80 B: the same
=============  ===============  =====================================================

(Two cores, Linux 6.18. Memory counts either way; page-ins of a mapped model count as reads.)

A log line of 256 bytes or a few short ones in a second count; a lone short line does not, as
"still waiting" is what hung engines log. Busy-waiting (NCCL spins) cannot be told from work.
"""

from __future__ import annotations

import os
import time

from appliance.system.kernel.processes import members
from appliance.system.kernel.text_files import PROC, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CPU_S = 0.05
MEMORY_BYTES = 1 << 20
READ_BYTES = 64 << 10
WRITTEN_BYTES = 256
_MEMORY_LINES = frozenset({"VmRSS", "VmLck", "HugetlbPages"})
_READ_LINES = frozenset({"rchar", "read_bytes"})


class Sample:
    """Sums over a set of processes; a process that ends takes its part out of the sums."""

    __slots__ = ("at_s", "cpu_s", "memory_bytes", "read_bytes", "resident_bytes", "written_bytes")

    def __init__(self, at_s: float, pids: Iterable[int] = ()) -> None:
        self.at_s = at_s
        """Monotonic seconds."""
        self.cpu_s = 0.0
        """CPU seconds, with those of children that have ended: compilers start and end."""
        self.memory_bytes = 0
        """Bytes resident, locked and in huge pages."""
        self.resident_bytes = 0
        """Resident bytes; pages that two processes share count twice."""
        self.read_bytes = 0
        self.written_bytes = 0
        for pid in pids:
            self._add(pid)

    def _add(self, pid: int) -> None:
        # The command name may contain spaces and brackets: fields are counted after its end.
        fields = read(f"{PROC}/{pid}/stat").rpartition(")")[2].split()
        if len(fields) > _LAST_TIME:
            ticks = sum(int(f) for f in fields[_FIRST_TIME : _LAST_TIME + 1])
            self.cpu_s += ticks / os.sysconf("SC_CLK_TCK")
        for name, value in _lines(f"{PROC}/{pid}/status", _MEMORY_LINES):
            self.memory_bytes += value << 10
            if name == "VmRSS":
                self.resident_bytes += value << 10
        for name, value in _lines(f"{PROC}/{pid}/io", _READ_LINES | {"wchar"}):
            if name == "wchar":
                self.written_bytes += value
            else:
                self.read_bytes += value

    def is_ahead_of(self, earlier: Sample) -> bool:
        """Tell whether more happened since `earlier` than idling explains.

        A late sample is judged by its rate, so that a busy machine does not turn idling into
        progress.
        """
        span = max(1.0, self.at_s - earlier.at_s)
        return (
            self.cpu_s - earlier.cpu_s >= CPU_S * span
            or abs(self.memory_bytes - earlier.memory_bytes) >= MEMORY_BYTES * span
            or self.read_bytes - earlier.read_bytes >= READ_BYTES * span
            or self.written_bytes - earlier.written_bytes >= WRITTEN_BYTES * span
        )


_FIRST_TIME = 11
"""Place of utime in proc(5), counted from the state field; stime, cutime and cstime follow."""
_LAST_TIME = 14


def _lines(path: str, names: frozenset[str]) -> Iterable[tuple[str, int]]:
    for line in read(path).splitlines():
        name, _, rest = line.partition(":")
        if name in names:
            yield name, int(rest.split()[0])


class ProgressSampler:
    """Sampler of the processes of a control group.

    Args:
        group: Its path in systemd's tree.
        without: Our own process, whose sampling is no progress.
    """

    def __init__(self, group: str, *, without: int) -> None:
        self._group = group
        self._without = without
        self._last = self._take()
        self.moved_at_s = self._last.at_s
        """Monotonic seconds of the last progress; the first sample counts as progress."""

    @property
    def resident_bytes(self) -> int:
        """Return the resident memory at the last sample."""
        return self._last.resident_bytes

    def sample(self) -> bool:
        """Take a sample; returns whether there was progress since the last one."""
        now = self._take()
        moved = now.is_ahead_of(self._last)
        self._last = now
        if moved:
            self.moved_at_s = now.at_s
        return moved

    def _take(self) -> Sample:
        pids = [p for p in members(self._group) if p != self._without]
        return Sample(time.monotonic(), pids)
