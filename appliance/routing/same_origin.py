"""Same-origin policy of the web process: which hosts it answers to, and which pages may ask for a change.

Unlike the gateway (`appliance.routing.origin_policy`), which programs of the machine reach by
whatever address they have, the page has a few exact names: with another one a web page elsewhere could read
what it shows, once that name was made to resolve to this machine (DNS rebinding).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from appliance.routing.origin_policy import host_name

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_WEB: Final = ("http://", "https://")
_FROM_HERE: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for a request of our own page, and of the person at the browser."""


@dataclass(frozen=True, slots=True)
class SameOriginPolicy:
    """Host names by which the web process is asked."""

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
        return origin.strip(" \t").lower() in {scheme + own for scheme in _WEB}
