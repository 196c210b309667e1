"""State of a profile's GPUs before, during and after a block, from the supervisor's status socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.model.errors import ApplianceError
from appliance.model.measurements import BoxGpus
from appliance.model.profile import Applied
from appliance.wire.async_client import open_conversation
from appliance.wire.conversation import ResultEvent
from appliance.wire.status_socket import STATUS, GpuEvidenceRequest
from appliance.wire.typed_json import from_json

_EVERY_S: Final = 5.0
_WITHIN_S: Final = 10.0


class BlockEvidence:
    """Readings of one block; None: not read."""

    def __init__(self) -> None:
        self.before: BoxGpus | None = None
        self.loaded: BoxGpus | None = None
        """Last one while the profile was at work."""
        self.after: BoxGpus | None = None


@asynccontextmanager
async def watched_gpus(
    path: Path, applied: Applied, *, every_s: float = _EVERY_S
) -> AsyncIterator[BlockEvidence]:
    """Read a profile's GPUs before, during and after a block.

    Args:
        path: The status socket.
        applied: The profile; one that uses no GPU is not watched.
        every_s: Pause between two readings.
    """
    watch = BlockEvidence()
    watch.before = await read_gpus(path, applied)
    if watch.before is None:
        yield watch
        return

    async def sample() -> None:
        while True:
            await asyncio.sleep(every_s)
            watch.loaded = await read_gpus(path, applied) or watch.loaded

    sampling = asyncio.create_task(sample())
    try:
        yield watch
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        watch.after = await read_gpus(path, applied)


async def read_gpus(path: Path, applied: Applied) -> BoxGpus | None:
    """Return the state of a profile's GPUs.

    Returns:
        None: it uses none, this user may not open the socket, or the supervisor does not answer.
    """
    if not applied.gpus:
        return None
    try:
        async with (
            asyncio.timeout(_WITHIN_S),
            open_conversation(STATUS, path, GpuEvidenceRequest()) as events,
        ):
            async for event in events:
                if isinstance(event, ResultEvent):
                    found = from_json(BoxGpus, event.details)
                    gpus = applied.gpus
                    own = tuple(g for g in found.gpus if gpus == "all" or g.index in gpus)
                    return replace(found, gpus=own)
    except (ApplianceError, TimeoutError, ValueError):
        return None
    return None
