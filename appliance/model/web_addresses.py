"""Addresses of the status API and its page, and which of them may be served."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address

from appliance.model.gateway import LOOPBACK_ADDRESSES, is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class WebAddresses:
    """Port and addresses of the status API, as the settings name them."""

    port: int = 8011
    addresses: tuple[str, ...] = LOOPBACK_ADDRESSES
    """IPv4 and IPv6 addresses to listen on, never a wildcard."""

    def beyond_loopback(self) -> tuple[str, ...]:
        """Return the addresses that other machines can reach."""
        return tuple(address for address in self.addresses if not is_loopback(address))

    def on_loopback(self) -> "WebAddresses":
        """Return these without the addresses that other machines can reach, and never none."""
        own = tuple(address for address in self.addresses if is_loopback(address))
        return replace(self, addresses=own or LOOPBACK_ADDRESSES)

    def strangers(self, bound: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Return the sockets, by address and port, that other machines reach and that are not named here."""
        named = {ip_address(address) for address in self.addresses}
        return tuple(
            (address, port)
            for address, port in bound
            if not is_loopback(address)
            and (port != self.port or ip_address(address.partition("%")[0]) not in named)
        )
