"""Whether a request without a key comes from a program on this machine, or from a page of anybody's.

A browser on this machine lets every page that it shows send requests to 127.0.0.1. What it says
about them tells them apart: ``Origin`` and ``Sec-Fetch-Site`` (Fetch standard), which no page can
forge, and ``Host``, which is the page's own name once that name has been made to mean 127.0.0.1
(DNS rebinding). Programs send none of the first two, and a name that is this machine's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from appliance.domain.gateway import Refusal

_LOCAL: Final = "localhost"
_WEB: Final = frozenset({"http", "https"})

OTHER_NAME: Final = Refusal(
    status=421,
    code="misdirected",
    message=(
        "the header Host has a name that is not this machine's: ask at 127.0.0.1, with a key, "
        "or by a name that is listed under [gateway] names"
    ),
)
OTHER_PAGE: Final = Refusal(
    status=403,
    code="origin_refused",
    message=("a web page from elsewhere needs a key, or has to be listed under [gateway] origins"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitors:
    """Who may ask without a key."""

    names: frozenset[str]
    """Host names of this machine, in small letters."""
    origins: frozenset[str]
    """Pages that may, as in the header ``Origin``, in small letters."""

    @classmethod
    def of(cls, names: Iterable[str], origins: Iterable[str]) -> "Visitors":
        """Those with these names, and these origins."""
        return cls(
            names=frozenset(name.lower() for name in names),
            origins=frozenset(origin.lower() for origin in origins),
        )

    def refusal(
        self, host: bytes | None, origin: bytes | None, site: bytes | None
    ) -> Refusal | None:
        """Why a request needs a key; None: it needs none.

        Args:
            host: The header ``Host``, well-formed; None: absent.
            origin: The header ``Origin``; None: absent.
            site: The header ``Sec-Fetch-Site``; None: absent.
        """
        if host is not None and not self._is_ours(_name(_text(host))):
            return OTHER_NAME
        if origin is not None:
            return None if self._is_welcome(_text(origin)) else OTHER_PAGE
        return OTHER_PAGE if site is not None and _text(site) == "cross-site" else None

    def _is_ours(self, name: str) -> bool:
        """Whether nobody else can have a name mean this machine."""
        return name in self.names or _is_localhost(name) or _address(name) is not None

    def _is_welcome(self, origin: str) -> bool:
        """Whether what shows a page is on this machine, or listed."""
        if origin in self.origins:
            return True
        scheme, found, rest = origin.partition("://")
        if not found:
            return False  # "null": a page in a sandbox, or one that hides where it is from
        # Other schemes are those of programs that were installed here.
        return scheme not in _WEB or _is_loopback(_name(rest))


def _text(value: bytes) -> str:
    return value.decode("latin-1").strip(" \t").lower()


def _name(authority: str) -> str:
    """The name or address of a host, without its port."""
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0].removesuffix(".")


def _is_localhost(name: str) -> bool:
    """Whether it is the name that is nobody's (RFC 6761)."""
    return name == _LOCAL or name.endswith(f".{_LOCAL}")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _is_loopback(name: str) -> bool:
    address = _address(name)
    return _is_localhost(name) or (address is not None and address.is_loopback)
