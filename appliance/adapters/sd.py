"""What systemd hands to a service, and what a service tells systemd (sd_notify(3))."""

import os
import socket
from typing import Final

import sdnotify

_FIRST_FD: Final = 3


class Readiness:
    """Tells systemd how the daemon is. Silent when systemd does not listen."""

    def __init__(self) -> None:
        # The library leaks a socket when there is nobody to talk to.
        self._to = sdnotify.SystemdNotifier() if os.environ.get("NOTIFY_SOCKET") else None
        self._last = ""

    def ready(self) -> None:
        """The daemon answers now."""
        self._send("READY=1")

    def alive(self, status: str) -> None:
        """Feed the watchdog, and say what `systemctl status` shows."""
        news = f"\nSTATUS={status}" if status != self._last else ""
        self._last = status
        self._send(f"WATCHDOG=1{news}")

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
