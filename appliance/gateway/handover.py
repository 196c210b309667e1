"""Hand-over to a new process: the sockets, the role of the main process, and then the clients.

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
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.system.systemd.daemon import adopted_sockets

_log = logging.getLogger(__name__)

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
        """Tell the old process that this one serves; return once this is the main process.

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
        """Tell the new process that it is the main process now."""
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
