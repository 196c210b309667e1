"""Origin policy: without a key, programs of this machine are served, and web pages are not.

A page whose origin is allowed may also read what it gets, with a key or without one.

A browser on this machine lets every page that it shows send requests to 127.0.0.1. Three headers
tell them apart: ``Origin`` and ``Sec-Fetch-Site`` (Fetch standard), which no page can forge, and
``Host``, which is the page's own name once that name has been made to resolve to 127.0.0.1 (DNS
rebinding). Programs send none of the first two, and a name that is this machine's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from appliance.model.gateway import Refusal, is_loopback
from appliance.routing.refusals import HOST_REFUSED, ORIGIN_REFUSED

_LOCAL: Final = "localhost"
_WEB: Final = frozenset({"http", "https"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OriginPolicy:
    """Host names and origins that need no key."""

    names: frozenset[str]
    """Host names of this machine, in lower case."""
    origins: frozenset[str]
    """Allowed values of the header ``Origin``, in lower case."""

    @classmethod
    def of(cls, names: Iterable[str], origins: Iterable[str]) -> "OriginPolicy":
        return cls(
            names=frozenset(name.lower() for name in names),
            origins=frozenset(origin.lower() for origin in origins),
        )

    def allows(self, origin: bytes) -> bool:
        """Tell whether a web page of this origin may read what the gateway answers."""
        return self._is_allowed(_normalize(origin))

    def refusal(
        self, host: bytes | None, origin: bytes | None, site: bytes | None
    ) -> Refusal | None:
        """Return why a request needs a key; None: it needs none.

        Args:
            host: Header ``Host``, well-formed; None: absent.
            origin: Header ``Origin``; None: absent.
            site: Header ``Sec-Fetch-Site``; None: absent.
        """
        if host is not None and not self._is_this_machine(host_name(_normalize(host))):
            return HOST_REFUSED
        if origin is not None:
            return None if self._is_allowed(_normalize(origin)) else ORIGIN_REFUSED
        return ORIGIN_REFUSED if site is not None and _normalize(site) == "cross-site" else None

    def _is_this_machine(self, name: str) -> bool:
        """Tell whether no web page can have this host name."""
        return name in self.names or _is_localhost(name) or _address(name) is not None

    def _is_allowed(self, origin: str) -> bool:
        """Tell whether the server of a web page is on this machine, or listed."""
        if origin in self.origins:
            return True
        scheme, found, rest = origin.partition("://")
        if not found:
            return False  # "null": a page in a sandbox, or one that hides its origin
        # Other schemes belong to programs installed on this machine.
        return scheme not in _WEB or _is_loopback_name(host_name(rest))


def _normalize(value: bytes) -> str:
    return value.decode("latin-1").strip(" \t").lower()


def host_name(authority: str) -> str:
    """Return the name or address of a host, without the port."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].removesuffix(".")


def _is_localhost(name: str) -> bool:
    """Tell whether a name is reserved for this machine (RFC 6761)."""
    return name == _LOCAL or name.endswith(f".{_LOCAL}")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _is_loopback_name(name: str) -> bool:
    address = _address(name)
    return _is_localhost(name) or (address is not None and is_loopback(str(address)))
