"""Events of one operation for any number of followers, late ones included."""

import asyncio
from collections.abc import AsyncIterator

from appliance.domain.events import Ended, Event, PhaseChanged, PhaseState


class Feed:
    """Keeps what a late follower needs and wakes the others.

    Progress events are not kept: a follower that comes late sees the phases, not each step.
    """

    def __init__(self) -> None:
        self._kept: list[Event] = []
        self._followers: set[asyncio.Queue[Event]] = set()

    def publish(self, event: Event) -> None:
        """Hand an event to every follower. Never blocks."""
        if not (isinstance(event, PhaseChanged) and event.state is PhaseState.PROGRESS):
            self._kept.append(event)
        for queue in self._followers:
            queue.put_nowait(event)

    async def follow(self) -> AsyncIterator[Event]:
        """Every event from the first on; ends after the operation's end."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self._kept:
            queue.put_nowait(event)
        self._followers.add(queue)
        try:
            while True:
                event = await queue.get()
                yield event
                if isinstance(event, Ended):
                    return
        finally:
            self._followers.discard(queue)
