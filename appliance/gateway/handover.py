"""A new process takes over: the sockets, the name of the main process, and then the clients.

The one that is there starts the one that comes, of whatever release is current by then:

====  ================================  =============================================
step  the one that is there             the one that comes
====  ================================  =============================================
1     starts it with every listening
      socket and one end of a pair
2                                       becomes a child of systemd, reads what it needs,
                                        serves, and sends its process id
3     tells systemd who is main now,
      and the other that it did so
4     stops accepting, ends what is     talks to systemd itself
      under way, and exits
====  ================================  =============================================

One that fails before step 3 costs nothing: the one that is there goes on. Between 2 and 4 both
accept, so nobody waits for longer than a connection takes.
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

from appliance.adapters.systemd.notify import adopted_sockets

_log = logging.getLogger(__name__)

_SOCKETS: Final = "--sockets"
_LINK: Final = "--link"
_TAKEN: Final = b"main\n"
_START_S: Final = 20.0
_MOST_BYTES: Final = 64


class HandOverError(Exception):
    """No other process has taken over; the sentence says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predecessor:
    """What the process before has handed to this one."""

    sockets: list[socket.socket]
    link: socket.socket

    async def take_over(self) -> None:
        """Say that this process serves now; returns when it is the main one.

        Raises:
            HandOverError: the process before is gone, or has given up on this one.
        """
        loop = asyncio.get_running_loop()
        self.link.settimeout(0)
        try:
            async with asyncio.timeout(_START_S):
                await loop.sock_sendall(self.link, f"{os.getpid()}\n".encode())
                answer = await loop.sock_recv(self.link, _MOST_BYTES)
        except (OSError, TimeoutError) as error:
            raise HandOverError("the process before does not answer") from error
        finally:
            self.link.close()
        if answer != _TAKEN:
            raise HandOverError("the process before goes on itself")


def predecessor(arguments: Sequence[str]) -> Predecessor | None:
    """What was handed over on the command line; None: nothing, systemd has started this process.

    Lets go of the process that has started this one: systemd becomes the parent, and so learns
    at once when it ends.
    """
    if _LINK not in arguments:
        return None
    if os.fork():
        os._exit(0)
    numbers = arguments[arguments.index(_SOCKETS) + 1]
    (link,) = adopted_sockets([int(arguments[arguments.index(_LINK) + 1])])
    return Predecessor(sockets=adopted_sockets(map(int, numbers.split(","))), link=link)


class Successor:
    """The process that is to come: `start` it, name it main, and `release` it."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self._link = link

    def release(self) -> None:
        """Tell it that it is the main process now."""
        with contextlib.suppress(OSError):
            self._link.send(_TAKEN)
        self._link.close()

    @classmethod
    async def start(
        cls, sockets: Iterable[socket.socket], *, within_s: float = _START_S
    ) -> "Successor":
        """Start another process of this program; returns when it serves.

        Args:
            sockets: It gets them all.
            within_s: It is given up after that.

        Raises:
            HandOverError: it does not serve.
        """
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        child = 0
        try:
            with theirs:
                child = _spawned([s.fileno() for s in sockets], theirs.fileno())
            async with asyncio.timeout(within_s):
                await _ended(child)
                word = await asyncio.get_running_loop().sock_recv(ours, _MOST_BYTES)
        except (OSError, TimeoutError) as error:
            ours.close()
            _give_up(child)
            why = str(error) or "too late"
            raise HandOverError(f"the new process does not come up: {why}") from error
        except BaseException:
            ours.close()
            raise
        if not word.endswith(b"\n") or not word.strip().isdigit():
            ours.close()
            raise HandOverError("the new process has ended; its log says why")
        return cls(int(word), ours)


def _spawned(sockets: Sequence[int], link: int) -> int:
    """Start this program, as its file is now, with these descriptors and no others."""
    names = [_SOCKETS, ",".join(map(str, sockets)), _LINK, str(link)]
    passed = (*sockets, link)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LISTEN_")}
    for number in passed:
        os.set_inheritable(number, True)  # noqa: FBT003 - has no keyword
    try:
        command = [*_program(), *names]
        return os.posix_spawn(command[0], command, environment, setsigmask=())
    finally:
        for number in passed:
            os.set_inheritable(number, False)  # noqa: FBT003


def _program() -> list[str]:
    """What this process was started with, apart from its own arguments."""
    end = len(sys.orig_argv) - len(sys.argv[1:])
    return [sys.executable, *sys.orig_argv[1:end]]


async def _ended(child: int) -> None:
    """Wait for the process that has only started another one."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    watched = os.pidfd_open(child)
    loop.add_reader(watched, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(watched)
        os.close(watched)
    os.waitpid(child, os.WNOHANG)  # noqa: ASYNC222 - it has ended


def _give_up(child: int) -> None:
    """End a child that has not let go yet; one that has ends by itself, when its link closes."""
    if child:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
