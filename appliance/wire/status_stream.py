"""Client that follows the supervisor's status for ever, whatever becomes of the supervisor.

State of the follower, and what it yields on the way into it:

===========  ====================  ===========================================================
state        yields                left when
===========  ====================  ===========================================================
connected    each document         the connection ends, or is silent for `SILENT_S`
lost         None, once            the pause is over: 0.2 s, then twice as long each time, at
                                   most 5 s; a document makes it 0.2 s again
===========  ====================  ===========================================================
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Self

from appliance.model.errors import ApplianceError
from appliance.model.status import StatusDocument
from appliance.wire.async_client import open_conversation
from appliance.wire.control_events import StatusEvent
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.status_socket import (
    STATUS,
    WATCH_AT_LEAST_EVERY_S,
    StatusSocketEvent,
    WatchRequest,
)

SILENT_S: Final = 3 * WATCH_AT_LEAST_EVERY_S
"""Silence after which the supervisor is given up: it hangs, or the connection leads nowhere."""
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0

OpenWatch = Callable[[], AbstractAsyncContextManager[AsyncGenerator[StatusSocketEvent, None]]]
"""Function that begins one watch."""


Documents = AsyncIterator[StatusDocument | None]
"""Status documents, one after the other; None: the supervisor was lost."""


class StatusFollower:
    """Follower of the supervisor's status.

    Args:
        open_watch: Begins one watch.
    """

    def __init__(self, open_watch: OpenWatch) -> None:
        self.trouble = "the supervisor was not asked yet"
        """Reason why there is no status now; empty: there is one."""
        self._open_watch = open_watch

    @classmethod
    def on(cls, path: Path) -> Self:
        """Return a follower on a status socket."""
        return cls(lambda: open_conversation(STATUS, path, WatchRequest()))

    async def documents(self) -> AsyncGenerator[StatusDocument | None, None]:
        """Yield status documents for ever; None: the connection is lost, or could not be made."""
        pause_s, told = _FIRST_PAUSE_S, False
        while True:
            async with contextlib.aclosing(self._watch()) as documents:
                async for document in documents:
                    pause_s, told = _FIRST_PAUSE_S, False
                    yield document
            if not told:
                told = True
                yield None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _watch(self) -> AsyncGenerator[StatusDocument, None]:
        """Yield the documents of one connection; at its end `trouble` says why it has ended."""
        try:
            async with self._open_watch() as events:
                while (event := await _next(events)) is not None:
                    if isinstance(event, StatusEvent):
                        self.trouble = ""
                        yield event.status
                    elif isinstance(event, ErrorEvent):
                        raise RequestRefusedError(event)
            self.trouble = STATUS.not_our_protocol  # it has closed a watch with a result
        except TimeoutError:
            self.trouble = f"the supervisor says nothing for {SILENT_S:.0f} s"
        except ApplianceError as error:
            self.trouble = str(error)


async def _next(events: AsyncGenerator[StatusSocketEvent, None]) -> StatusSocketEvent | None:
    """Return the next event; None: there is none. Raises `TimeoutError` when none comes in time."""
    async with asyncio.timeout(SILENT_S):
        return await anext(events, None)
