"""Hand-over to a new process: the sockets, the role of the main process, then the clients; and the requests left.

The old process starts the new one, from the release that is current by then:

====  ================================  =============================================
step  old process                       new process
====  ================================  =============================================
1     starts the new process with
      every listening socket and one
      end of a socket pair
2                                       becomes a child of systemd, reads its files,
                                        serves, and sends its process id
3     names the new main process to
      systemd, and confirms it
4     stops accepting, ends what is     reports to systemd itself
      under way, and exits
====  ================================  =============================================

A failure before step 3 costs nothing: the old process goes on. Between 2 and 4 both accept, so no
client waits for longer than a connection takes.

A process that was replaced is a predecessor. It keeps the counts of its requests in flight in a file
beside the state, as long as it lives, since a drain waits for those requests too.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from appliance.model.json_reader import decode_json
from appliance.system.files.regular import read_small_file, replace_volatile
from appliance.system.systemd.daemon import adopted_sockets

_log = logging.getLogger(__name__)

# --- hand-over ----------------------------------------------------------------------------

_SOCKETS: Final = "--sockets"
_LINK: Final = "--link"
_CONFIRMED: Final = b"main\n"
_START_S: Final = 20.0
_MOST_BYTES: Final = 64


class HandoverError(Exception):
    """Failure of a hand-over: no other process has taken over; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """Sockets that the old process hands to this one, and the link to it."""

    sockets: list[socket.socket]
    link: socket.socket

    async def take_over(self) -> None:
        """Report to the old process that this one serves; return once this is the main process.

        Raises:
            HandoverError: The old process has ended, or has given up on this one.
        """
        loop = asyncio.get_running_loop()
        self.link.settimeout(0)
        try:
            async with asyncio.timeout(_START_S):
                await loop.sock_sendall(self.link, f"{os.getpid()}\n".encode())
                reply = await loop.sock_recv(self.link, _MOST_BYTES)
        except (OSError, TimeoutError) as error:
            raise HandoverError("the old process does not answer") from error
        finally:
            self.link.close()
        if reply != _CONFIRMED:
            raise HandoverError("the old process continues itself")


def parse_handover(arguments: Sequence[str]) -> Handover | None:
    """Return the hand-over on the command line; None: systemd has started this process.

    The process forks: systemd becomes the parent, and so learns at once when the child ends.
    """
    if _LINK not in arguments:
        return None
    if os.fork():
        os._exit(0)
    numbers = arguments[arguments.index(_SOCKETS) + 1]
    (link,) = adopted_sockets([int(arguments[arguments.index(_LINK) + 1])])
    return Handover(sockets=adopted_sockets(map(int, numbers.split(","))), link=link)


class Successor:
    """New process, which `start` starts, and which takes over when `confirm` is called."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self._link = link

    def confirm(self) -> None:
        """Confirm to the new process that it is the main process now."""
        with contextlib.suppress(OSError):
            self._link.send(_CONFIRMED)
        self._link.close()

    @classmethod
    async def start(
        cls, sockets: Iterable[socket.socket], *, within_s: float = _START_S
    ) -> "Successor":
        """Start another process of this program; return once the new process serves.

        Args:
            sockets: Listening sockets, all inherited.
            within_s: Time limit.

        Raises:
            HandoverError: The new process does not serve.
        """
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        child = 0
        try:
            with theirs:
                child = _spawn([s.fileno() for s in sockets], theirs.fileno())
            async with asyncio.timeout(within_s):
                await _wait_for_fork(child)
                reply = await asyncio.get_running_loop().sock_recv(ours, _MOST_BYTES)
        except (OSError, TimeoutError) as error:
            ours.close()
            _kill(child)
            why = str(error) or "the new process took too long"
            raise HandoverError(f"the new process does not serve: {why}") from error
        except BaseException:
            ours.close()
            raise
        if not reply.endswith(b"\n") or not reply.strip().isdigit():
            ours.close()
            raise HandoverError("the new process has ended; its log says why")
        return cls(int(reply), ours)


def _spawn(sockets: Sequence[int], link: int) -> int:
    """Start this program, as its file is now, with these descriptors and no others."""
    arguments = [_SOCKETS, ",".join(map(str, sockets)), _LINK, str(link)]
    passed = (*sockets, link)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LISTEN_")}
    for number in passed:
        os.set_inheritable(number, True)  # noqa: FBT003 - has no keyword
    try:
        command = [*_program(), *arguments]
        return os.posix_spawn(command[0], command, environment, setsigmask=())
    finally:
        for number in passed:
            os.set_inheritable(number, False)  # noqa: FBT003


def _program() -> list[str]:
    """Return the command of this process, without the arguments of the program."""
    end = len(sys.orig_argv) - len(sys.argv[1:])
    return [sys.executable, *sys.orig_argv[1:end]]


async def _wait_for_fork(child: int) -> None:
    """Wait until the child has forked and ended."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    watched = os.pidfd_open(child)
    loop.add_reader(watched, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)
    os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222 - it has ended


def _kill(child: int) -> None:
    """Kill a child that has not forked; a forked child ends by itself when its link closes."""
    if child:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


# --- predecessors -------------------------------------------------------------------------

_PREFIX: Final = "ending."
_MAX_BYTES: Final = 1 << 20
_UNREADABLE: Final = (OSError, ValueError, AttributeError, TypeError)
_CHECK_EVERY_S: Final = 0.1


class Traffic(Protocol):
    """Requests of one gateway process or of several."""

    def in_flight(self, names: Iterable[str]) -> int:
        """Return how many requests were sent to these profiles and are not over."""
        ...

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for these requests, then cut the rest; return how many finished and were cut."""
        ...


class Predecessors:
    """Counts of requests in flight of every replaced process, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._published: Mapping[str, int] | None = None
        """Counts that this process publishes; None: it has not been replaced."""

    def publish(self, counts: Mapping[str, int]) -> None:
        """Write the counts by profile of this process, which was replaced."""
        if counts == self._published:
            return
        self._published = dict(counts)
        new = self._own.with_name(f".{self._own.name}")
        with contextlib.suppress(OSError):
            replace_volatile(self._own, new, json.dumps(self._published))

    def withdraw(self) -> None:
        """Remove the counts of this process."""
        with contextlib.suppress(OSError):
            self._own.unlink(missing_ok=True)

    def in_flight(self, names: Iterable[str]) -> int:
        """Return how many requests to these profiles the living processes have in flight."""
        chosen = set(names)
        return sum(n for counts in self._counts() for name, n in counts if name in chosen)

    def any_alive(self) -> bool:
        """Tell whether any process that was replaced still lives."""
        return any(True for _ in self._counts())

    @property
    def _own(self) -> Path:
        return self._directory / f"{_PREFIX}{os.getpid()}"

    def _counts(self) -> Iterator[list[tuple[str, int]]]:
        for path in self._directory.glob(f"{_PREFIX}*"):
            if not _is_alive(path.name.removeprefix(_PREFIX)):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
                continue
            counts: list[tuple[str, int]] = []
            with contextlib.suppress(*_UNREADABLE):
                document = decode_json(read_small_file(path, _MAX_BYTES))
                counts = [(str(name), int(n)) for name, n in document.items()]
            yield counts


class CombinedTraffic:
    """Requests of this process and of those that it has replaced."""

    def __init__(self, own: Traffic, predecessors: Predecessors) -> None:
        self._own = own
        self._predecessors = predecessors

    def in_flight(self, names: Iterable[str]) -> int:
        """Return how many requests were sent to these profiles and are not over."""
        names = tuple(names)
        return self._own.in_flight(names) + self._predecessors.in_flight(names)

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        """Wait for all requests, then cut those of this process that are left.

        Those of other processes end with the engine, and are counted as cut.
        """
        names = tuple(names)
        before = self._predecessors.in_flight(names)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(self._wait(names, timeout_s)) if before else None
            finished, cut = await self._own.drain(names, timeout_s)
        left = 0 if waiting is None else waiting.result()
        return finished + max(0, before - left), cut + left

    async def _wait(self, names: tuple[str, ...], timeout_s: float) -> int:
        """Wait for the other processes; return how many requests are left at the deadline."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while True:
            left = self._predecessors.in_flight(names)
            if not left or loop.time() >= end_s:
                return left
            await asyncio.sleep(_CHECK_EVERY_S)


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True
