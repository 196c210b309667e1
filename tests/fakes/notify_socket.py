"""Fake of the service manager's end of a notification socket (sd_notify(3))."""

import os
import socket
import time
from pathlib import Path

from tests.programs import PATIENCE_S


class NotifySocket:
    """The service manager's end of the notification socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[str] = []
        self.barriers: list[int] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that a program needs in order to talk to this manager."""
        return {"NOTIFY_SOCKET": str(self.path)}

    def receive(self, *, within_s: float) -> str | None:
        """The next message; None: none came."""
        self._socket.settimeout(max(0.001, within_s))
        try:
            message, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 16, 4)
        except TimeoutError:
            return None
        self.barriers += descriptors
        self.messages.append(message.decode())
        return self.messages[-1]

    def wait_for(self, text: str, *, within_s: float = PATIENCE_S) -> str:
        """The first message from now on that contains `text`."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            message = self.receive(within_s=deadline - time.monotonic())
            if message is not None and text in message:
                return message
        raise AssertionError(f"no {text!r} in {self.messages}")

    def drain(self, seconds: float) -> list[str]:
        """The messages of the next `seconds`."""
        deadline = time.monotonic() + seconds
        seen: list[str] = []
        while (left := deadline - time.monotonic()) > 0:
            message = self.receive(within_s=left)
            if message is not None:
                seen.append(message)
        return seen

    def pass_barriers(self) -> None:
        """Say that everything before the barriers was read."""
        while self.barriers:
            os.close(self.barriers.pop())

    def close(self) -> None:
        self.pass_barriers()
        self._socket.close()
