"""What engines say about their own load, asked only when somebody wants to see it.

An engine may log every question and answers it between two steps of its model: each is asked at
most every few seconds, and nobody waits for one that is busy.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from appliance.domain.gateway import EngineLoad
from appliance.domain.profile import Catalogue
from appliance.ports import Backend, Clock

_EVERY_S: Final = 5.0
_PATIENCE_S: Final = 0.2
"""A status is not kept waiting longer for figures that are fresh."""


class EngineLoads:
    """The last word of each engine that serves."""

    def __init__(self, *, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._loads: dict[str, EngineLoad | None] = {}
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def latest(
        self, catalogue: Catalogue, serving: Sequence[str]
    ) -> Mapping[str, EngineLoad | None]:
        """By profile, for those that serve; None: it does not say."""
        names = [name for name in serving if name in catalogue]
        now_s = self._clock.monotonic_s()
        stale = now_s - self._asked_s > _EVERY_S or not self._loads.keys() >= set(names)
        if self._asking is None and names and stale:
            self._asked_s = now_s
            self._asking = asyncio.create_task(self._ask(catalogue, names))
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=_PATIENCE_S)
        return {name: self._loads.get(name) for name in names}

    async def _ask(self, catalogue: Catalogue, names: Sequence[str]) -> None:
        try:
            told = await asyncio.gather(*(self._backend.load(catalogue[name]) for name in names))
            self._loads = dict(zip(names, told, strict=True))
        finally:
            self._asking = None
