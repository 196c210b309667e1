"""Wait of a daemon for settings that can be read.

A daemon that ended would be started again and fail again, by systemd or by the next client of its socket.
So it stays, reports to systemd and its clients what is wrong, and goes on by itself once anything changes
that the settings are read from.
"""

import contextlib
import os
import select
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from appliance.settings.snapshot import settings_sources
from appliance.system.systemd.daemon import Readiness
from appliance.wire.conversation import refusal_line

_LOOK_EVERY_S: Final = 1.0
_REQUEST_WITHIN_S: Final = 0.2
_MOST_REQUEST_BYTES: Final = 1 << 16
_SENTENCE: Final = b"the settings cannot be read: appliance config validate\n"
_UNAVAILABLE: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nRetry-After: 10\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_SENTENCE), _SENTENCE)
)
_READ_AGAIN_S: Final = 60.0
"""Time after which the settings are read again without a change: what failed may have been their reader."""


class SettingsWait:
    """Wait until the settings may be others.

    Args:
        listeners: The daemon's sockets, whose clients are refused meanwhile.
        readiness: Shows what is wrong in the unit's status.
        seen: What the settings were read from when that failed.
        sources: Returns the same of now.
        look_every_s: Pause between two looks at the sources.
    """

    def __init__(
        self,
        listeners: Iterable[socket.socket],
        readiness: Readiness,
        *,
        seen: Mapping[str, object],
        sources: Callable[[], Mapping[str, object]] = lambda: settings_sources(os.environ),
        look_every_s: float = _LOOK_EVERY_S,
    ) -> None:
        self._listeners = list(listeners)
        self._readiness = readiness
        self._sources = sources
        self._look_every_s = look_every_s
        self._seen = seen

    def wait(self, problem: str) -> None:
        """Return when the sources are others than those of the last failure, or after a minute.

        Args:
            problem: What is wrong with the settings.
        """
        first = problem.partition("\n")[0]
        self._readiness.ready()
        ends_s = time.monotonic() + _READ_AGAIN_S
        while (sources := self._sources()) == self._seen and time.monotonic() < ends_s:
            self._readiness.alive(f"waits for its settings: {first}")
            self._refuse(first)
        self._seen = sources  # those of the next attempt, or older ones

    def _refuse(self, problem: str) -> None:
        """Refuse the clients that come until the next look."""
        if not self._listeners:
            time.sleep(self._look_every_s)
            return
        ready, _, _ = select.select(self._listeners, (), (), self._look_every_s)
        for listener in ready:
            listener.settimeout(0.0)
            with contextlib.suppress(OSError):
                client, _ = listener.accept()
                with client:
                    if client.family == socket.AF_UNIX:
                        client.settimeout(0.0)
                        client.send(refusal_line("settings", problem))
                    else:
                        _refuse_over_http(client)


def _refuse_over_http(client: socket.socket) -> None:
    """Answer a client of HTTP; it may be of another machine, so the response does not quote the file.

    Raises:
        OSError: the client has gone, or has sent nothing.
    """
    client.settimeout(_REQUEST_WITHIN_S)
    # A request that is left unread would have the kernel reset the connection, response and all.
    client.recv(_MOST_REQUEST_BYTES)
    client.sendall(_UNAVAILABLE)
