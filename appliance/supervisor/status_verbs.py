"""Verbs of the status socket, for processes that look at the box and can change nothing."""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, assert_never

from appliance.protocol.control_events import StatusEvent
from appliance.protocol.conversation.codec import ResultEvent
from appliance.protocol.conversation.server import FEW, serve_conversations
from appliance.protocol.status_socket import (
    STATUS,
    WATCHER_READS_WITHIN_S,
    DocumentRequest,
    GpuEvidenceRequest,
    StatusSocketEvent,
    StatusSocketRequest,
    WatchRequest,
)
from appliance.protocol.unix_server import Peer
from appliance.supervisor.access_policy import read_from_watcher
from appliance.supervisor.status_feed import StatusFeed

Report = Callable[[], Awaitable[Mapping[str, Any]]]
"""Function that returns a JSON object."""


class StatusVerbs:
    """Handler of the requests on status.sock.

    Args:
        feed: Feeds those who watch.
        status: Builds the status document for one who asks.
        gpus: Reads the state of the GPUs.
        resumed: Waits until an operation that was left open goes on: before, no status is right.
    """

    def __init__(
        self,
        feed: StatusFeed,
        *,
        status: Report,
        gpus: Report,
        resumed: Callable[[], Awaitable[None]],
    ) -> None:
        self._feed = feed
        self._status = status
        self._gpus = gpus
        self._resumed = resumed

    async def serve(self, listener: socket.socket) -> None:
        """Answer for ever."""
        await self._resumed()
        await serve_conversations(
            STATUS,
            listener,
            read_from_watcher,
            self._answer,
            bounds=FEW,
            taken_within_s=WATCHER_READS_WITHIN_S,
        )

    async def _answer(
        self, request: StatusSocketRequest, _peer: Peer
    ) -> AsyncGenerator[StatusSocketEvent, None]:
        match request:
            case DocumentRequest():
                yield ResultEvent(details={"status": await self._status()})
            case WatchRequest():
                async for document in self._feed.documents():
                    yield StatusEvent(document)
            case GpuEvidenceRequest():
                yield ResultEvent(details=await self._gpus())
            case never:
                assert_never(never)
