"""Exchange of a daemon with systemd: its state (sd_notify(3)), its sockets, its log lines."""

import logging
import os
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from appliance.model.plain_text import plain
from appliance.system.systemd.journal_handler import (
    JournalHandler,
    priority_of,
    program_identifier,
)
from appliance.wire.journal_socket import JournalSocket, stderr_is_journal
from appliance.wire.sd_notify import extend, notify

_log = logging.getLogger(__name__)

_FIRST_FD: Final = 3
_FEED_EVERY_S: Final = 1.0


class Readiness:
    """Sender of a daemon's state; sends nothing when systemd does not listen."""

    def __init__(self) -> None:
        self._last = ""
        self._fed_s = 0.0

    def ready(self) -> None:
        """Announce that the daemon serves."""
        notify("READY=1")

    def alive(self, status: str) -> None:
        """Feed the watchdog, and set the text that `systemctl status` shows."""
        news = status != self._last
        now_s = time.monotonic()
        if not news and now_s - self._fed_s < _FEED_EVERY_S:
            return  # each message costs systemd time while it starts a model
        self._last, self._fed_s = status, now_s
        notify("WATCHDOG=1", *([f"STATUS={status}"] if news else []))

    def tell(self, status: str) -> None:
        """Set the text that `systemctl status` shows, and leave the watchdog to `feed`."""
        if status != self._last:
            self._last = status
            notify(f"STATUS={status}")

    def feed(self) -> None:
        """Feed the watchdog."""
        notify("WATCHDOG=1")

    def stopping(self) -> None:
        """Announce an intended end."""
        notify("STOPPING=1", "STATUS=stopping; models keep running")


class Notices:
    """Sender of the gateway's state, sockets and changes of its main process.

    systemd takes messages of a service's main process alone: until `ready` says that this process
    is that one, messages are kept.
    """

    def __init__(self) -> None:
        self._listens = bool(os.environ.get("NOTIFY_SOCKET"))
        """Whether systemd takes messages of this process."""
        self._last = ""
        self._main = False
        self._due: list[tuple[Sequence[str], Sequence[int]]] = []

    def ready(self, status: str) -> None:
        """Announce that the service serves, and that this is its main process."""
        self._main = True
        for assignments, descriptors in self._due:
            self._send(*assignments, descriptors=descriptors)
        self._due.clear()
        self._send("READY=1", f"STATUS={status}")

    def alive(self, status: str) -> None:
        """Feed the watchdog, and set the text that `systemctl status` shows."""
        news = status != self._last
        self._last = status
        self._send("WATCHDOG=1", *([f"STATUS={status}"] if news else []))

    def stopping(self, status: str, within_s: float) -> None:
        """Announce an intended end, which takes at most `within_s`."""
        self._send("STOPPING=1", f"STATUS={status}", extend(within_s))

    def hand_over(self, pid: int) -> None:
        """Make another process of this service its main one; this one then sends nothing."""
        self._send(f"MAINPID={pid}", "READY=1")
        self._listens = False

    def keep(self, listener: socket.socket, name: str) -> None:
        """Store a socket with systemd, which gives it to the next process (FDSTORE=1)."""
        self._send("FDSTORE=1", f"FDNAME={name}", descriptors=[listener.fileno()])

    def drop(self, name: str) -> None:
        """Have systemd close the sockets stored under a name, if there are any."""
        self._send("FDSTOREREMOVE=1", f"FDNAME={name}")

    def _send(self, *assignments: str, descriptors: Sequence[int] = ()) -> None:
        if not self._listens:
            return
        if not self._main:
            self._due.append((assignments, descriptors))
        elif not notify(*assignments, descriptors=descriptors):
            _log.warning("systemd did not take the message %s", assignments[0])


def named_sockets() -> Mapping[str, socket.socket]:
    """Return the listening socket of each .socket unit, by the unit's name (sd_listen_fds(3)).

    Empty in a process that was started by hand.
    """
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    return dict(zip(names, inherited_sockets(), strict=False))


def inherited_sockets() -> list[socket.socket]:
    """Return all sockets that systemd hands over: of .socket units, and from the descriptor store."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    return adopted_sockets(range(_FIRST_FD, _FIRST_FD + int(os.environ.get("LISTEN_FDS", "0"))))


def adopted_sockets(descriptors: Iterable[int]) -> list[socket.socket]:
    """Return sockets by their numbers, set so that programs started later do not inherit them."""
    found = [socket.socket(fileno=number) for number in descriptors]
    for listener in found:
        listener.set_inheritable(False)
    return found


class JournalFormatter(logging.Formatter):
    """Formatter of ``<6>text``, with the priority on continuation lines too."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record, with a prefix on each line."""
        priority = priority_of(record.levelno)
        lines = super().format(record).splitlines()
        return "\n".join(f"<{priority}>{plain(line)}" for line in lines)


def log_to_journal(level: str, identifier: str = "") -> None:
    """Log from `level` on: to the journal's socket in a unit, else to standard error.

    Args:
        level: Lowest level that is logged.
        identifier: Identifier of the entries; empty: by the module that the process runs.
    """
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JournalFormatter("%(message)s"))
    handler: logging.Handler = lines
    if stderr_is_journal(os.environ) and (journal := JournalSocket()).is_usable:
        handler = JournalHandler(journal, lines, identifier or program_identifier())
    logging.basicConfig(level=level.upper(), handlers=[handler])
