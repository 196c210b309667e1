"""Port of an engine as a resource of its start: free when it can be bound as the engine will bind it.

Connections that an engine closed stay with the kernel for a minute (TIME_WAIT). Whether they are in the way
of a bind depends on both sides (inet_bind_conflict of Linux): a socket with ``SO_REUSEADDR`` may be bound beside
those of an engine that had it too, and likewise with ``SO_REUSEPORT``; without either none may.

============================  ==================================================================
engine                        bound as
============================  ==================================================================
one of the catalogue          it is known to: with the options named on the command line
any program (``command``)     the last engine on the port was, if that was the same program;
                              else without an option
============================  ==================================================================
"""

from __future__ import annotations

import _socket as sockets  # the module `socket` takes 3 ms of every start
import os

from appliance.launch.obstacles import Obstacle, joined
from appliance.system.kernel.processes import HoldingProcess, pids

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from appliance.system.kernel.tcp_listeners import PortSocket


LISTENER_GRACE_S = 3.0
"""Time for a process that listens: one that has been stopped ends within seconds, a stranger does not."""
_LOOPBACK = "127.0.0.1"
_LOOK_EVERY_S = 0.5
"""Pause between two readings of the kernel's tables, which may have many rows."""
_OPTIONS = {"address": sockets.SO_REUSEADDR, "port": sockets.SO_REUSEPORT}
PORT_REUSE = tuple(_OPTIONS)
"""Kinds of reuse that a socket may ask for."""
_PORT = "port"
_EXTRA_S = 5.0
"""Time beyond the gate's deadline, whose default is the minute of TIME_WAIT."""


class PortWatch:
    """Watch on the port of an engine while it delays a start.

    Args:
        port: TCP port on loopback.
        reuse: Kinds of `PORT_REUSE` with one of which the engine binds; none: it binds without.
        clock: Monotonic seconds.
        sockets_on: Reads the sockets on a port from the kernel's tables.
    """

    def __init__(
        self,
        port: int,
        reuse: Sequence[str],
        *,
        clock: Callable[[], float],
        sockets_on: Callable[[int], Iterable[PortSocket]] | None = None,
    ) -> None:
        self.number = port
        self._sockets_on = sockets_on
        self._options = [_OPTIONS[kind] for kind in reuse] or [0]
        self._clock = clock
        self._looked_s = float("-inf")
        self._obstacle: Obstacle | None = None
        self._was_let_go = False
        """Whether only connections in TIME_WAIT were seen on the port: the kernel frees it a moment after the last
        has left its tables."""
        self.began_s: float | None = None
        """Time when the port was first found taken; None: it never was."""
        self.waited_s = 0.0
        """Seconds for which the port was taken."""

    def check(self) -> Obstacle | None:
        """Return the obstacle; None: the port can be bound."""
        now_s = self._clock()
        if any(map(self._can_be_bound, self._options)):
            return None
        self.began_s = now_s if self.began_s is None else self.began_s
        self.waited_s = now_s - self.began_s
        if self._obstacle is None or now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s, self._obstacle = now_s, self._look()
        return self._obstacle

    def change_text(self) -> str:
        """Return what was awaited, ``port 9103 free after 12.4 s``; empty: nothing."""
        if self.began_s is None:
            return ""
        return f"port {self.number} free after {self.waited_s:.1f} s"

    def _can_be_bound(self, option: int) -> bool:
        probe = sockets.socket()
        try:
            if option:
                probe.setsockopt(sockets.SOL_SOCKET, option, 1)
            probe.bind((_LOOPBACK, self.number))
        except OSError:
            return False
        finally:
            probe.close()
        return True

    def _look(self) -> Obstacle:
        from appliance.system.kernel import tcp_listeners  # noqa: PLC0415

        found = list((self._sockets_on or tcp_listeners.sockets_on)(self.number))
        if listeners := [one for one in found if one.is_listening]:
            return Obstacle(
                f"waiting for port {self.number}: another process listens on it",
                kind=_PORT,
                explain=lambda: f"port {self.number} is in use by {_owners(listeners)}",
                patience_s=LISTENER_GRACE_S,
                rival=True,
            )
        if rest := [one for one in found if not one.is_over]:
            text = f"connections to port {self.number} are open"
            return Obstacle(
                f"waiting for port {self.number}: {text}",
                kind=_PORT,
                explain=lambda: f"{text}: {_owners(rest)}",
            )
        self._was_let_go = self._was_let_go or bool(found)
        left_s = max((one.left_s for one in found), default=0.0)
        after = f"free again in {left_s:.0f} s" if self._was_let_go else "a process has bound it"
        return Obstacle(
            f"waiting for port {self.number}: {after}",
            kind=_PORT,
            explain=lambda: f"port {self.number} is not free: {after}",
            extra_s=_EXTRA_S if self._was_let_go else 0.0,
        )


def _owners(sockets: Sequence[PortSocket]) -> str:
    """Return the processes that have one of these sockets open, in one phrase."""
    from appliance.system.kernel.tcp_listeners import open_sockets  # noqa: PLC0415

    numbers = {one.inode for one in sockets if one.inode}
    found = [HoldingProcess(pid) for pid in pids() if not numbers.isdisjoint(open_sockets(pid))]
    return joined(found) or "a process that is not visible here"


def last_program(directory: str, port: int) -> str:
    """Return the program that was last admitted to a port since the boot; empty: none, or not known."""
    try:
        return os.readlink(_record(directory, port))
    except OSError:
        return ""


def record_program(directory: str, port: int, program: str) -> None:
    """Keep which program has been admitted to a port. Never raises: it is a hint for the next start."""
    path = _record(directory, port)
    try:
        os.makedirs(directory, mode=0o755, exist_ok=True)
        os.symlink(program, f"{path}.new")
        os.replace(f"{path}.new", path)
    except OSError:
        return


def _record(directory: str, port: int) -> str:
    return f"{directory}/.port-{port}"
