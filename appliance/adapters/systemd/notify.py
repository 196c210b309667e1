"""What systemd hands to a service, and what a service tells systemd (sd_notify(3))."""

import logging
import os
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Final

import sdnotify

_log = logging.getLogger(__name__)

_FIRST_FD: Final = 3
_FEED_EVERY_S: Final = 1.0


class Readiness:
    """Tells systemd how the daemon is. Silent when systemd does not listen."""

    def __init__(self) -> None:
        # The library leaks a socket when there is nobody to talk to.
        self._to = sdnotify.SystemdNotifier() if os.environ.get("NOTIFY_SOCKET") else None
        self._last = ""
        self._fed_s = 0.0

    def ready(self) -> None:
        """The daemon answers now."""
        self._send("READY=1")

    def alive(self, status: str) -> None:
        """Feed the watchdog, and say what `systemctl status` shows."""
        news = status != self._last
        now_s = time.monotonic()
        if not news and now_s - self._fed_s < _FEED_EVERY_S:
            return  # each message costs systemd time just when it starts a model
        self._last, self._fed_s = status, now_s
        self._send(f"WATCHDOG=1\nSTATUS={status}" if news else "WATCHDOG=1")

    def stopping(self) -> None:
        """The daemon ends on purpose."""
        self._send("STOPPING=1\nSTATUS=stopping; models keep running")

    def _send(self, state: str) -> None:
        if self._to is not None:
            self._to.notify(state)


class Notices:
    """As `Readiness`, for a service that leaves sockets with systemd and changes processes.

    systemd listens to a service's main process alone: until `ready` says that this is the one,
    everything waits.
    """

    def __init__(self) -> None:
        # "@" stands for the NUL of an abstract address.
        self._address = os.environ.get("NOTIFY_SOCKET", "").replace("@", "\0", 1)
        self._last = ""
        self._main = False
        self._due: list[tuple[str, tuple[int, ...]]] = []

    def ready(self, status: str) -> None:
        """The service answers now, and this is its main process."""
        self._main = True
        for text, descriptors in self._due:
            self._send(text, *descriptors)
        self._due.clear()
        self._send(f"READY=1\nSTATUS={status}")

    def alive(self, status: str) -> None:
        """Feed the watchdog, and say what `systemctl status` shows."""
        news = status != self._last
        self._last = status
        self._send(f"WATCHDOG=1\nSTATUS={status}" if news else "WATCHDOG=1")

    def stopping(self, status: str, within_s: float) -> None:
        """The service ends on purpose, and takes so long for it."""
        self._send(f"STOPPING=1\nSTATUS={status}\nEXTEND_TIMEOUT_USEC={round(within_s * 1e6)}")

    def hand_over(self, pid: int) -> None:
        """Another process of this service is its main one from now on, and listened to."""
        self._send(f"MAINPID={pid}\nREADY=1")
        self._address = ""

    def keep(self, listener: socket.socket, name: str) -> None:
        """Leave a socket with systemd, which gives it to the next process (FDSTORE=1)."""
        self._send(f"FDSTORE=1\nFDNAME={name}", listener.fileno())

    def drop(self, name: str) -> None:
        """Have systemd close what was left under a name; nothing was is fine."""
        self._send(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def _send(self, text: str, *descriptors: int) -> None:
        if not self._address:
            return
        if not self._main:
            self._due.append((text, descriptors))
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
                to.connect(self._address)
                socket.send_fds(to, [text.encode()], list(descriptors))
        except OSError as error:
            _log.warning("systemd was not told (%s)", error)


def named_sockets() -> Mapping[str, socket.socket]:
    """The listening socket of each .socket unit, by the unit's name (sd_listen_fds(3)).

    Empty in a process that was started by hand.
    """
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    return dict(zip(names, inherited_sockets(), strict=False))


def inherited_sockets() -> list[socket.socket]:
    """All that systemd hands over: those of our .socket units, and those left with it."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    return adopted_sockets(range(_FIRST_FD, _FIRST_FD + int(os.environ.get("LISTEN_FDS", "0"))))


def adopted_sockets(descriptors: Iterable[int]) -> list[socket.socket]:
    """Sockets by their numbers; no program that is started later inherits them."""
    found = [socket.socket(fileno=number) for number in descriptors]
    for listener in found:
        listener.set_inheritable(False)
    return found
