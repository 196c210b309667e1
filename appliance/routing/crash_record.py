"""Record of the requests that engines had when they died, so that none is sent to a third death.

    sent --lost, or 500--> lost --the engine died--> suspect --it died again--> refused
                             |                          |                          |
                             '------ `LOST_S` ------'   '--- answered, `KEPT_S` ---'--> forgotten

A connection ends a moment before the supervisor reports the death, or, where an engine has several
processes, after it: a request counts that was lost shortly before the news, or after it until the
profile serves again. Requests that were in flight by chance are suspects too, until they are
answered. Requests are known by digests, and few are kept: the oldest makes room.
"""

from collections import deque
from typing import Final

from appliance.model.gateway import Standing, State

LOST_S: Final = 10.0
"""Time between the loss of a request and the news of the engine's death: vLLM answers its requests
with 500 when its core has died, and then ends its server."""
KEPT_S: Final = 1800.0
"""Time for which a request is remembered after its last death: with two deaths in it a box is no
crash loop."""
_MOST: Final = 256
"""Limit of suspects, and of the lost requests of each profile."""
_DEATHS: Final = 2

_Request = tuple[str, int]
"""Profile and digest of a request."""


class _Suspect:
    """Request that was in flight at a death."""

    __slots__ = ("at_s", "death", "deaths")

    def __init__(self) -> None:
        self.deaths = 0
        self.death = 0
        """Number of the last of these deaths, by which a second copy of the request is known."""
        self.at_s = 0.0


class CrashRecord:
    """Record of all profiles. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self.suspects: dict[_Request, _Suspect] = {}
        """Suspects, the one of the oldest death first; empty: nothing has to be checked."""
        self._lost: dict[str, deque[tuple[int, float]]] = {}
        """Digests of the requests that were lost since a profile's last death, with their times."""
        self._dead: dict[str, int] = {}
        """Number of the death of each profile that does not serve since."""
        self._deaths = 0

    def lost(self, profile: str, digest: int, now_s: float) -> None:
        """Note a request that an engine had, and did not answer."""
        if profile in self._dead:
            self._suspect((profile, digest), self._dead[profile], now_s)
        else:
            self._lost.setdefault(profile, deque(maxlen=_MOST)).append((digest, now_s))

    def answered(self, profile: str, digest: int) -> None:
        """Note a request that an engine has answered: it was there by chance."""
        self.suspects.pop((profile, digest), None)

    def follow(self, before: State, after: State, now_s: float) -> None:
        """Note the deaths between two states, and the profiles that serve again."""
        ended = (after.crashed | after.failed) - (before.crashed | before.failed)
        for profile in ended:
            self._deaths += 1
            self._dead[profile] = self._deaths
            for digest, at_s in self._lost.pop(profile, ()):
                if now_s - at_s <= LOST_S:
                    self._suspect((profile, digest), self._deaths, now_s)
        for profile in [p for p in self._dead if after.standing(p) is Standing.SERVING]:
            del self._dead[profile]
        for request in [r for r, s in self.suspects.items() if now_s - s.at_s > KEPT_S]:
            del self.suspects[request]

    def refuses(self, profile: str, digest: int, now_s: float) -> bool:
        """Tell whether a request was in flight at two deaths, the last of them not long ago."""
        found = self.suspects.get((profile, digest))
        if found is None or now_s - found.at_s > KEPT_S:
            return False
        return found.deaths >= _DEATHS

    def _suspect(self, request: _Request, death: int, now_s: float) -> None:
        found = self.suspects.pop(request, None) or _Suspect()
        if len(self.suspects) >= _MOST:
            del self.suspects[next(iter(self.suspects))]
        if found.death != death:
            found.deaths += 1
        found.death, found.at_s = death, now_s
        self.suspects[request] = found
