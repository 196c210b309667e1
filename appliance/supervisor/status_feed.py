"""Feed of the status document for processes that watch the box all day.

===========================  ================================================================
a watcher gets a document    at once, half a second at least after the one before
after a change               of a unit, of the operation or its phase, of the hold, of the
                             committed names, of the applied profiles
without one                  every 10 s, or so much later that the documents cost at most a
                             five-hundredth of a core; at most 20 s. A feed for people: every 2 s,
                             when the gateway's figures are new, and at most a fiftieth of a core
===========================  ================================================================

A change is noticed at the supervisor's looks. While nobody watches, a look costs one comparison.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from time import thread_time
from typing import Final

from appliance.model.status import StatusDocument
from appliance.wire.status_socket import (
    WATCH_AT_LEAST_EVERY_S,
    WATCH_AT_MOST_EVERY_S,
    WATCH_EVERY_S,
)

TIMES: Final = 500.0
"""Ratio of the pause between two documents to the CPU time of one."""
PERSON_EVERY_S: Final = 2.0
"""Usual pause where a person looks on: that between two questions to the gateway."""
PERSON_TIMES: Final = 50.0
"""Ratio as above for documents for people."""


class StatusFeed:
    """Feed of one document to any number of watchers.

    Args:
        document: Builds the document.
        state: Returns a value that changes with the state of the box; cheap.
        every_s: Usual pause between two documents that tell no change.
        times: Least ratio of that pause to the CPU time of a document.
    """

    def __init__(
        self,
        document: Callable[[], Awaitable[StatusDocument]],
        state: Callable[[], object],
        *,
        every_s: float = WATCH_EVERY_S,
        times: float = TIMES,
    ) -> None:
        self._every_s = every_s
        self._times = times
        self._document = document
        self._state = state
        self._seen: object = None
        """State that was noticed last."""
        self._watchers = 0
        self._changed = asyncio.Event()
        self._building = asyncio.Lock()
        self._last = StatusDocument()
        self._last_state: object = None
        self._last_s = float("-inf")
        self._last_cost_s = 0.0

    def notice(self) -> None:
        """Wake the watchers if the state has changed; called after each look at the box."""
        if not self._watchers:
            return
        state = self._state()
        if state != self._seen:
            self._seen = state
            self._changed.set()

    async def documents(self) -> AsyncGenerator[StatusDocument, None]:
        """Yield documents until closed. Raises `ApplianceError` when none can be built."""
        self._watchers += 1
        try:
            while True:
                began_s = asyncio.get_running_loop().time()
                yield await self._latest()
                await self._pause(began_s)
        finally:
            self._watchers -= 1

    async def _latest(self) -> StatusDocument:
        """Return a document of now; watchers that ask at about the same time share one."""
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        async with self._building:
            # Counted from its beginning: a document that took long may tell the past.
            is_new = self._last_s >= asked_s - WATCH_AT_MOST_EVERY_S / 2
            state = self._state()
            if not is_new or state != self._last_state:
                # Forgotten before it is built: a change during it makes the next one due.
                self._changed.clear()
                self._seen = self._last_state = state
                began_s, cost_s = loop.time(), thread_time()
                self._last = await self._document()
                self._last_cost_s, self._last_s = thread_time() - cost_s, began_s
            return self._last

    async def _pause(self, began_s: float) -> None:
        """Wait for a change or the next document's time, and for the least pause in any case."""
        loop = asyncio.get_running_loop()
        pause_s = min(max(self._every_s, self._times * self._last_cost_s), WATCH_AT_LEAST_EVERY_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(began_s + pause_s):
                await self._changed.wait()
        await asyncio.sleep(began_s + WATCH_AT_MOST_EVERY_S - loop.time())
