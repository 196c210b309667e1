"""Lookup of host names in threads, bounded: a name service that hangs takes places, never the process.

A thread in getaddrinfo(3) cannot be ended. So the threads are few, none keeps the process from
ending, and a caller waits no longer than it wants to.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from appliance.model.errors import ApplianceError

_MOST: Final = 8
"""Lookups at one time."""
_MOST_ADDRESSES: Final = 4

_Found = Sequence[tuple[int, int, int, str, tuple[object, ...]]]
GetAddrInfo = Callable[..., _Found]


class NameLookupError(ApplianceError):
    """Failure of a lookup; `str()` is a phrase of ours."""


class NameLookup:
    """Lookup of addresses by the name service of the box.

    Args:
        getaddrinfo: As `socket.getaddrinfo`.
    """

    def __init__(self, getaddrinfo: GetAddrInfo = socket.getaddrinfo) -> None:
        self._getaddrinfo = getaddrinfo
        self._running = 0

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """Return the first numeric addresses of a host. Raises `NameLookupError`."""
        with contextlib.suppress(OSError):
            return _numbers(
                socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
            )
        if self._running >= _MOST:
            raise NameLookupError("name service does not answer")
        self._running += 1
        found: asyncio.Future[_Found] = asyncio.get_running_loop().create_future()
        arguments = (asyncio.get_running_loop(), found, host, port)
        threading.Thread(target=self._look_up, args=arguments, daemon=True).start()
        return _numbers(await found)

    def _look_up(
        self, loop: asyncio.AbstractEventLoop, found: asyncio.Future[_Found], host: str, port: int
    ) -> None:
        """Look up, in a thread."""
        outcome: _Found | NameLookupError
        try:
            outcome = self._getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            missing = error.errno in {socket.EAI_NONAME, socket.EAI_NODATA}
            outcome = NameLookupError("name not known" if missing else "name service failed")
        except (OSError, UnicodeError):
            outcome = NameLookupError("name not known")
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._settle, found, outcome)

    def _settle(self, found: asyncio.Future[_Found], outcome: _Found | NameLookupError) -> None:
        self._running -= 1
        if found.done():
            return  # the caller has left
        if isinstance(outcome, NameLookupError):
            found.set_exception(outcome)
        else:
            found.set_result(outcome)


def _numbers(found: _Found) -> Sequence[str]:
    return [str(address[0]) for *_, address in found][:_MOST_ADDRESSES]
