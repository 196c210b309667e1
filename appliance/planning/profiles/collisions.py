"""Ports and sockets that two profiles would both listen on.

Profiles whose claims intersect never run together, so they may share an address.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from appliance.domain.spec import Problem, Profile
from appliance.planning.profiles.compilation import claim_of

_KEYS: Final = ("port", "socket")


def collisions(
    profiles: Mapping[str, Profile], reserved: Mapping[int, str]
) -> Mapping[str, tuple[Problem, ...]]:
    """Return problems by profile; profiles without a problem are absent.

    Args:
        profiles: Every profile of the box by name.
        reserved: Ports that others own, and what to call their owner.
    """
    found: dict[str, list[Problem]] = {}
    for name in sorted(profiles):
        for problem in _reserved(profiles[name], reserved):
            found.setdefault(name, []).append(problem)
    claims = {name: claim_of(profile) for name, profile in profiles.items()}
    for name, others in _sharers(profiles).items():
        for other in others:
            if not claims[name].intersects(claims[other]):
                found.setdefault(name, []).extend(_shared(profiles[name], profiles[other]))
    return {name: tuple(problems) for name, problems in found.items()}


def _sharers(profiles: Mapping[str, Profile]) -> Mapping[str, list[str]]:
    """Return, by name, the other profiles that have the same port or socket, sorted."""
    users: dict[tuple[str, object], list[str]] = {}
    for name, profile in sorted(profiles.items()):
        for key in _KEYS:
            users.setdefault((key, getattr(profile.endpoint, key)), []).append(name)
    return {
        name: sorted(
            {
                other
                for key in _KEYS
                if (address := getattr(profile.endpoint, key)) is not None
                for other in users[key, address]
            }
            - {name}
        )
        for name, profile in sorted(profiles.items())
    }


def _reserved(profile: Profile, reserved: Mapping[int, str]) -> Iterator[Problem]:
    port = profile.endpoint.port
    if port is not None and (owner := reserved.get(port)) is not None:
        yield Problem(where=("port",), text=f"port {port} belongs to {owner}: choose another")


def _shared(one: Profile, other: Profile) -> Iterator[Problem]:
    for key in _KEYS:
        address = getattr(one.endpoint, key)
        if address is not None and address == getattr(other.endpoint, key):
            text = (
                f"{key} {address} is also that of {other.name}.toml, and their claims do not "
                "intersect, so both may run at once: choose another"
            )
            yield Problem(where=(key,), text=text)
