"""Ports and sockets that two profiles would both listen on.

Profiles whose claims intersect never run together, so they may share an address.
"""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Final

from appliance.domain.spec import Profile
from appliance.planning.compile import claim_of
from appliance.planning.problems import Problem

_KEYS: Final = ("port", "socket")


def collisions(
    profiles: Mapping[str, Profile], reserved: Mapping[int, str]
) -> Mapping[str, tuple[Problem, ...]]:
    """Problems by profile; profiles without any are absent.

    Args:
        profiles: Every profile of the box by name.
        reserved: Ports that others own, and what to call their owner.
    """
    found: dict[str, list[Problem]] = {}
    for name in sorted(profiles):
        for problem in _reserved(profiles[name], reserved):
            found.setdefault(name, []).append(problem)
    for first, second in combinations(sorted(profiles), 2):
        for one, other in ((first, second), (second, first)):
            for problem in _shared(profiles[one], profiles[other]):
                found.setdefault(one, []).append(problem)
    return {name: tuple(problems) for name, problems in found.items()}


def _reserved(profile: Profile, reserved: Mapping[int, str]) -> Iterator[Problem]:
    port = profile.endpoint.port
    if port is not None and (owner := reserved.get(port)) is not None:
        yield Problem(where=("port",), text=f"port {port} belongs to {owner}: choose another")


def _shared(one: Profile, other: Profile) -> Iterator[Problem]:
    if claim_of(one).intersects(claim_of(other)):
        return
    for key in _KEYS:
        address = getattr(one.endpoint, key)
        if address is not None and address == getattr(other.endpoint, key):
            text = (
                f"{key} {address} is also that of {other.name}.toml, and their claims do not "
                "intersect, so both may run at once: choose another"
            )
            yield Problem(where=(key,), text=text)
