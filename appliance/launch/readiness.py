"""Readiness of a starting engine: its endpoint, its progress, and the poller that sends READY.

The poller sends READY when the engine answers its health check. Until then it extends systemd's start
time-out only while there is progress: so that time-out *is* the deadline on no progress, also at boot and
after a crash, when no supervisor of ours runs.

Progress is sampled each second over all processes of our own control group. An engine that hangs still uses
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
import select
import socket
import time

from appliance.launch.program import INFO, WARNING, say
from appliance.model.amounts import size
from appliance.system.kernel.processes import control_group, members
from appliance.system.kernel.tcp_listeners import open_sockets, tcp_listeners
from appliance.system.kernel.text_files import PROC, read, read_all
from appliance.wire.sd_notify import barrier, extend, load_status, notify, ready_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


LOOPBACK = "127.0.0.1"
_HEALTH_TIMEOUT_S = 1.0
_STATUS_LINE_BYTES = 512
_UNIX_LISTENING = 0x10000
"""Flag __SO_ACCEPTCON, in the flags column of /proc/net/unix."""

# Addresses by which a listener gets the connection, best match first: the exact address, then all
# of IPv4, then everything.
_PREFERENCE = (
    {LOOPBACK, f"::ffff:{LOOPBACK}"},
    {"0.0.0.0", "::ffff:0.0.0.0"},  # noqa: S104 - of listeners that are looked for
    {"::"},
)


class EngineEndpoint:
    """Address of an engine on loopback: a port or a unix socket. Exactly one is set."""

    __slots__ = ("health", "path", "port")

    def __init__(self, *, port: int | None, path: str | None, health: str) -> None:
        self.port = port
        self.path = path
        self.health = health
        """Path of the health check."""

    def __str__(self) -> str:
        return self.path if self.path is not None else f"{LOOPBACK}:{self.port}"

    def health_status(self) -> int | None:
        """Return the HTTP status of the health check; None: no HTTP answer yet."""
        request = (
            f"GET {self.health} HTTP/1.1\r\nHost: {LOOPBACK}\r\n"
            "Accept: */*\r\nConnection: close\r\n\r\n"
        )
        try:
            with self._connected() as connection:
                connection.sendall(request.encode())
                return _status(connection)
        except OSError:
            return None

    def _connected(self) -> socket.socket:
        address: str | tuple[str, int]
        if self.path is not None:
            family, address = socket.AF_UNIX, self.path
        else:
            family, address = socket.AF_INET, (LOOPBACK, self.port or 0)
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(_HEALTH_TIMEOUT_S)
        try:
            connection.connect(address)
        except BaseException:
            connection.close()
            raise
        return connection

    def listeners(self) -> set[int]:
        """Return the inodes of the listening sockets that a client of this endpoint reaches."""
        if self.path is not None:
            return _unix_listeners(self.path)
        found = [one for one in tcp_listeners() if one.port == self.port]
        for addresses in _PREFERENCE:
            if inodes := {one.inode for one in found if one.address in addresses}:
                return inodes
        return set()

    def belongs_to(self, group: str) -> bool:
        """Tell whether every such socket is open in a process of control group `group`.

        Every one: with SO_REUSEPORT another process could share the port and get some requests.
        """
        inodes = self.listeners()
        return bool(inodes) and inodes <= _sockets_of(members(group))


def _status(connection: socket.socket) -> int | None:
    received = b""
    while b"\n" not in received and len(received) < _STATUS_LINE_BYTES:
        chunk = connection.recv(_STATUS_LINE_BYTES)
        if not chunk:
            break
        received += chunk
    words = received.split(b"\r\n", 1)[0].split(b" ", 2)
    if len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1].isdigit():
        return int(words[1])
    return None


def _unix_listeners(path: str) -> set[int]:
    found: set[int] = set()
    for line in read_all(f"{PROC}/self/net/unix").splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) > 7 and fields[7] == path and int(fields[3], 16) & _UNIX_LISTENING:  # noqa: PLR2004
            found.add(int(fields[6]))
    return found


def _sockets_of(pids: Iterable[int]) -> set[int]:
    return {number for pid in pids for number in open_sockets(pid) if number}


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


_QUICK_PAUSE_S = 0.005
_QUICK_FOR_S = 1.0
"""Time of frequent polls: a small model answers within a second; later 50 ms more or less are not
noticed."""
_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 0.5
_PAUSE_SHARE = 0.05
_SAMPLE_EVERY_S = 1.0
_QUIET_S = 10.0
"""Time without progress from which the status text says so."""
_HTTP_OK = 200
_HTTP_LOADING = 503
"""HTTP status of engines that load."""


def pause_s(elapsed_s: float, *, answered: bool) -> float:
    """Return the seconds until the next health check.

    An engine that answers, but is not ready, is polled ever more rarely: it may log a line for
    each check, which must never look like its progress. Two such lines a second stay below what
    counts (`appliance.launch.readiness`).
    """
    if elapsed_s < _QUICK_FOR_S:
        return _QUICK_PAUSE_S
    if not answered:
        return _PAUSE_S
    return min(max(_PAUSE_S, elapsed_s * _PAUSE_SHARE), _LONGEST_PAUSE_S)


class ReadinessPoller:
    """Poller of one engine, until it is ready or has ended.

    Args:
        endpoint: Of the engine.
        main: A pidfd of the engine.
        started_s: Beginning of the start, monotonic seconds.
        no_progress_s: Longest time without progress.
    """

    def __init__(
        self, endpoint: EngineEndpoint, *, main: int, started_s: float, no_progress_s: float
    ) -> None:
        self._endpoint = endpoint
        self._started_s = started_s
        self._no_progress_s = no_progress_s
        self._group = control_group("self")
        self._progress = ProgressSampler(self._group, without=os.getpid())
        self._ended = select.poll()
        self._ended.register(main, select.POLLIN)
        self._problem = ""
        self._answered = False

    def run(self) -> bool:
        """Poll until the engine is ready; False: the engine ended before."""
        notify(f"STATUS={load_status()}", extend(self._no_progress_s))
        next_sample_s = self._started_s + _SAMPLE_EVERY_S
        while not self._is_ready():
            now_s = time.monotonic()
            if now_s >= next_sample_s:
                next_sample_s = now_s + _SAMPLE_EVERY_S
                self._report()
            pause = pause_s(now_s - self._started_s, answered=self._answered)
            if self._ended.poll(pause * 1000):
                return False
        text = ready_status(f"on {self._endpoint}, ready after {self._elapsed_s():.2f} s")
        notify("READY=1", f"STATUS={text}")
        barrier()
        say(INFO, text)
        return True

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _is_ready(self) -> bool:
        status = self._endpoint.health_status()
        self._answered = status is not None
        if status == _HTTP_OK and self._endpoint.belongs_to(self._group):
            return True
        if status == _HTTP_OK:
            self._log_problem(
                f"{self._endpoint} is answered by a process that is not this backend's"
            )
        elif status is not None and status != _HTTP_LOADING:
            self._log_problem(f"{self._endpoint.health} answers {status}")
        else:
            self._problem = ""
        return False

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            say(WARNING, problem)

    def _report(self) -> None:
        moved = self._progress.sample()
        quiet_s = time.monotonic() - self._progress.moved_at_s
        parts = [
            f"{size(self._progress.resident_bytes)} resident",
            f"{self._elapsed_s():.0f} s",
            f"no progress for {quiet_s:.0f} s" if quiet_s >= _QUIET_S else "",
            self._problem,
        ]
        details = ", ".join(filter(None, parts))
        notify(f"STATUS={load_status(details)}", *([extend(self._no_progress_s)] if moved else []))
