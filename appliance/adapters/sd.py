"""What systemd hands to a service, and what a service tells systemd (sd_notify(3))."""

import os
import socket
import time
from typing import Final

import sdnotify

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


def inherited_socket() -> socket.socket | None:
    """The listening socket of our .socket unit (sd_listen_fds(3)); None: started by hand."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") == "0":
        return None
    listener = socket.socket(fileno=_FIRST_FD)
    listener.set_inheritable(False)
    return listener
