"""Life of a daemon under systemd: its state (sd_notify(3)), its sockets, its log entries, its garbage.

Log entries go to the journal's own socket, because a line on standard error has no fields. Nothing waits:
while the journal reads too slowly entries are dropped and counted, and where it cannot be reached the
lines go to standard error.
"""

import gc
import logging
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from sdnotify import SystemdNotifier

from appliance.model.journal_events import JOURNAL_EXTRA
from appliance.model.plain_text import plain
from appliance.wire.journal_socket import JournalSocket, encode_entry, entry_head, stderr_is_journal
from appliance.wire.sd_notify import SEND_TIMEOUT_S, extend, message_of, notify

_log = logging.getLogger(__name__)

_FIRST_FD: Final = 3
_FEED_EVERY_S: Final = 1.0
_PRIORITY: Final = (
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (logging.INFO, 6),
    (logging.NOTSET, 7),
)
"""Levels of syslog(3) by the lowest logging level that each stands for."""
_SETTLE_S: Final = 0.5
"""Longest wait at the end of a process: journald needs some ms for an entry, 0.5 s under load."""


def _send(*assignments: str) -> bool:
    """Send assignments such as ``STATUS=…`` to the service manager; returns whether they were sent.

    The package `sdnotify` leaves a socket open where there is no manager, waits for one that does not read,
    and drops a text with a character beyond Latin-1; it knows no descriptors.
    """
    if not os.environ.get("NOTIFY_SOCKET"):
        return False
    notifier = SystemdNotifier()
    if notifier.socket is None:
        return False
    with notifier.socket as channel:
        channel.settimeout(SEND_TIMEOUT_S)
        notifier.debug = True  # an error is raised
        try:
            notifier.notify(message_of(assignments).decode("latin-1"))
        except OSError:
            return False
    return True


class Readiness:
    """Sender of a daemon's state; sends nothing when systemd does not listen."""

    def __init__(self) -> None:
        self._last = ""
        self._fed_s = 0.0

    def ready(self) -> None:
        """Announce that the daemon serves."""
        _send("READY=1")

    def alive(self, status: str) -> None:
        """Feed the watchdog, and set the text that `systemctl status` shows."""
        news = status != self._last
        now_s = time.monotonic()
        if not news and now_s - self._fed_s < _FEED_EVERY_S:
            return  # each message costs systemd time while it starts a model
        self._last, self._fed_s = status, now_s
        _send("WATCHDOG=1", *([f"STATUS={status}"] if news else []))

    def tell(self, status: str) -> None:
        """Set the text that `systemctl status` shows, and leave the watchdog to `feed`."""
        if status != self._last:
            self._last = status
            _send(f"STATUS={status}")

    def feed(self) -> None:
        """Feed the watchdog."""
        _send("WATCHDOG=1")

    def stopping(self) -> None:
        """Announce an intended end."""
        _send("STOPPING=1", "STATUS=stopping; models keep running")


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
            return
        is_sent = (
            notify(*assignments, descriptors=descriptors) if descriptors else _send(*assignments)
        )
        if not is_sent:
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


def freeze_garbage() -> None:
    """Exempt the objects of the start from collections, which would pause for them and write to their pages."""
    gc.collect()
    gc.freeze()


# --- log lines -----------------------------------------------------------------------


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


class JournalHandler(logging.Handler):
    """Handler that sends each record as one entry, with its traceback in the message."""

    def __init__(self, journal: JournalSocket, fallback: logging.Handler, identifier: str) -> None:
        """Create the handler.

        Args:
            journal: Socket of the journal, which the handler closes at its end.
            fallback: Takes records while the journal cannot be reached.
            identifier: Identifier of the entries, as ``SyslogIdentifier=`` of the unit.
        """
        super().__init__()
        # Without one, logging.basicConfig gives a handler its own, with level and logger in the text.
        self.setFormatter(logging.Formatter("%(message)s"))
        self._journal = journal
        self._fallback = fallback
        self._identifier = identifier
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record."""
        try:
            entry = encode_entry(self._fields(record))
        except Exception:  # noqa: BLE001 - as in every handler of logging: never the caller's error
            self.handleError(record)
            return
        if self._journal.send(entry):
            self._report_dropped()
        elif self._journal.is_usable:
            self._dropped += 1
        else:
            self._fallback.handle(record)

    def close(self) -> None:
        """Wait shortly until the journal has read everything, and disconnect."""
        self._journal.settle(_SETTLE_S)
        self._journal.close()
        self._fallback.close()
        super().close()

    def _report_dropped(self) -> None:
        if not self._dropped:
            return
        text = f"{self._dropped} log entries were dropped: the journal read too slowly"
        if self._journal.send(encode_entry(self._head(text, logging.WARNING))):
            self._dropped = 0

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        yield from self._head(self.format(record), record.levelno)
        yield from getattr(record, JOURNAL_EXTRA, ())
        yield "LOGGER", record.name
        yield "CODE_FUNC", record.funcName or ""
        yield "CODE_LINE", str(record.lineno)

    def _head(self, text: str, level: int) -> list[tuple[str, str]]:
        return entry_head(text, priority=priority_of(level), identifier=self._identifier)


def priority_of(level: int) -> int:
    """Return the priority of syslog(3) for a level of logging."""
    return next(priority for least, priority in _PRIORITY if level >= least)


def program_identifier() -> str:
    """Return the identifier of this process by the module that it runs (``python -m``)."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return identifier_of("appliance" if spec is None else spec.name)


def identifier_of(module: str) -> str:
    """Return the identifier of a daemon by its module, as its unit has it in ``SyslogIdentifier=``."""
    return module.removesuffix(".__main__").replace(".helpers", "").replace(".", "-")
