"""Metrics of the engines that serve, as each publishes them, for those who collect them.

Engines are asked a few at a time, and for one collector after the other, so that many cost them no more than
one does. Nothing is kept: a page has up to a MiB.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from appliance.model.gateway import EngineMetrics
from appliance.supervisor.memory_sampler import LastLook
from appliance.system.ports import Backend

_AT_ONCE: Final = 4
_MOST: Final = 32
"""Engines that are asked at all: more than a box has memory for."""


class EnginePageReader:
    """Reader of the pages.

    Args:
        look: The supervisor's last look at the box.
        backend: Asks an engine.
    """

    def __init__(self, look: LastLook, backend: Backend) -> None:
        self._look = look
        self._backend = backend
        self._turn = asyncio.Lock()

    async def pages(self) -> AsyncGenerator[tuple[str, EngineMetrics | None], None]:
        """Iterate over the profiles that serve; None: the engine has no page, or does not answer in time."""
        async with self._turn:
            catalogue, observed = self._look()
            serving = [name for name in observed.serving() if name in catalogue][:_MOST]
            for first in range(0, len(serving), _AT_ONCE):
                names = serving[first : first + _AT_ONCE]
                asked = (self._backend.metrics(catalogue[name]) for name in names)
                for name, page in zip(names, await asyncio.gather(*asked), strict=True):
                    yield name, page
