"""Addresses on which clients are let in: those of this machine, and what the settings name once a token exists.

===================================  ===========================================================
a socket at                          is served
===================================  ===========================================================
an address of loopback               always
an address that the settings name    while the supervisor says that somebody can act by a token
any other address or port            never: a drop-in that is not apply's, or no longer
===================================  ===========================================================

A connection that is not let in is closed before a byte of it is read. Which requests are answered on one that
is, `appliance.web.reader_guard` decides: each needs a token of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from appliance.model.errors import ApplianceError
from appliance.model.gateway import is_loopback
from appliance.model.names import WEB_SOCKET_UNIT
from appliance.model.web_addresses import WebAddresses

_log = logging.getLogger(__name__)

ASK_EVERY_S: Final = 5.0

Endpoint = Sequence[Any] | None
"""Address and port of one end of a connection, as ASGI and uvicorn tell it; None: not known."""


def is_of_this_machine(server: Endpoint, client: Endpoint) -> bool:
    """Tell whether both ends of a connection are loopback addresses, which no other machine can have.

    A client's alone would not do: packets may be forwarded to 127.0.0.1 (route_localnet, ip-sysctl).
    """
    return all(end is not None and is_loopback(str(end[0])) for end in (server, client))


class OpenAddresses:
    """Addresses that are open now.

    Args:
        named: Addresses of the settings.
        bound: Address and port of each listening socket.
        is_any_token_usable: Asks whether somebody can act by a token. Raises `ApplianceError`.
    """

    def __init__(
        self,
        named: WebAddresses,
        bound: Iterable[tuple[str, int]],
        is_any_token_usable: Callable[[], Awaitable[bool]],
    ) -> None:
        bound = frozenset(bound)
        strangers = frozenset(named.strangers(bound))
        self._beyond = frozenset(one for one in bound - strangers if not is_loopback(one[0]))
        self._is_any_token_usable = is_any_token_usable
        self._is_open: bool | None = None
        """Whether `_beyond` is open; None: nobody has said yet, so it is not."""
        for address, port in sorted(strangers):
            _log.error(
                "%s listens on %s port %d, which the settings do not name, so clients there are not let in:"
                " list it in web.listen, then sudo appliance apply",
                WEB_SOCKET_UNIT,
                address,
                port,
            )

    def admits(self, address: str, port: int) -> bool:
        """Tell whether clients of a listening socket are let in now."""
        if is_loopback(address):
            return True
        return self._is_open is True and (address, port) in self._beyond

    async def follow(self) -> None:
        """Ask about tokens again and again; return at once where no address depends on them."""
        while self._beyond:
            await asyncio.sleep(ASK_EVERY_S)
            await self.ask()

    async def ask(self) -> None:
        """Ask once. Without an answer everything stays as it is: then nobody's token is accepted either."""
        if not self._beyond:
            return
        try:
            is_open = await self._is_any_token_usable()
        except ApplianceError as error:
            _log.debug("%s", error)
            return
        if is_open is not self._is_open:
            self._is_open = is_open
            _log.info("%s", _OPEN if is_open else _CLOSED)


_OPEN: Final = "open to other machines, for requests with an operator's token"
_CLOSED: Final = "closed to other machines: no operator has a token: appliance token add NAME"
