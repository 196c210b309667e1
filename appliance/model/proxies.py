"""Proxies of the environment, which must not come between parts of one machine.

SGLang asks itself by ``requests`` before it is ready, vLLM's parts speak gRPC, and each sends that to a
proxy that a profile, the manager's ``DefaultEnvironment=`` or a drop-in names for downloads.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

_PROXIES: Final = frozenset({"all_proxy", "grpc_proxy", "http_proxy", "https_proxy"})
_EXEMPT: Final = ("no_proxy", "NO_PROXY")
"""Programs read one or the other; both are given the same hosts."""
_LOOPBACK: Final = ("localhost", "127.0.0.1")
"""Hosts of the engines' own addresses. Without ``::1``, at which none listens: httpx up to 0.24.0 takes it for a
host with a wrong port and makes no client at all (encode/httpx pull request 2659)."""


def without_proxy_to_itself(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment whose programs reach this machine directly; as it is where it names no proxy."""
    changed = dict(environment)
    if any(value for name, value in environment.items() if name.lower() in _PROXIES):
        named = ",".join(environment.get(name, "") for name in _EXEMPT).split(",")
        hosts = dict.fromkeys([*filter(None, map(str.strip, named)), *_LOOPBACK])
        changed |= dict.fromkeys(_EXEMPT, ",".join(hosts))
    return changed
