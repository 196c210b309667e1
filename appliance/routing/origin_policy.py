"""Origin policies of the gateway and of the web process: which web pages of a browser are served.

The gateway serves programs of this machine without a key, and web pages not. A page whose origin is
allowed may also read what it gets, with a key or without one.

A browser on this machine lets every page that it shows send requests to 127.0.0.1. Three headers
tell them apart: ``Origin`` and ``Sec-Fetch-Site`` (Fetch standard), which no page can forge, and
``Host``, which is the page's own name once that name has been made to resolve to 127.0.0.1 (DNS
rebinding). Programs send none of the first two, and a name that is this machine's.

Programs of the machine reach the gateway by whatever address they have. The web process has a few exact
names: with another one a web page elsewhere could read what it shows.
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


LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_SCHEMES: Final = ("http://", "https://")
_FROM_HERE: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for a request of our own page, and of the person at the browser."""


@dataclass(frozen=True, slots=True)
class SameOriginPolicy:
    """Policy of the web process: its own host names, and the pages that may ask for a change."""

    names: frozenset[str]

    @classmethod
    def of(cls, names: Iterable[str]) -> "SameOriginPolicy":
        """Return the policy of this machine's own names and further ones."""
        return cls(frozenset({*LOCAL_NAMES, *(name.lower() for name in names)}))

    def knows(self, host: str) -> bool:
        """Tell whether a header ``Host`` names this machine; its port may be that of a tunnel."""
        return host_name(host.strip(" \t").lower()) in self.names

    def may_change(self, host: str, origin: str | None, site: str | None) -> bool:
        """Tell whether a request that changes something comes from our own page, or from a program.

        Args:
            host: Header ``Host``.
            origin: Header ``Origin``; None: absent.
            site: Header ``Sec-Fetch-Site``; None: absent. A page can forge neither (Fetch standard).
        """
        if site is not None and site.strip(" \t").lower() not in _FROM_HERE:
            return False
        if origin is None:
            return True
        own = host.strip(" \t").lower()
        return origin.strip(" \t").lower() in {scheme + own for scheme in _SCHEMES}
