"""Route of the stream: server-sent events (HTML standard, 9.2), with ids by which a client resumes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Final

from fastapi import APIRouter, Header
from starlette.responses import StreamingResponse

from appliance.web.api.answers import problems
from appliance.web.box_stream import BoxStream, StreamEvent, StreamOverflowError

KEEP_ALIVE_S: Final = 15.0
_KEEP_ALIVE: Final = ": still here\n\n"
_RETRY: Final = "retry: 2000\n\n"
"""Milliseconds after which a browser comes back."""
_EXAMPLE: Final = "event: snapshot\nid: m12.a34.o56\ndata: {}\n\n"
LastEventId = Annotated[
    str,
    Header(
        description="Id of the last event that the client has; it is told what came after.",
        examples=["m12.a34.o56"],
        max_length=64,
    ),
]


def stream_router(stream: BoxStream) -> APIRouter:
    """Return the router of the stream.

    Args:
        stream: What happens on the box.
    """
    router = APIRouter(prefix="/api/v1", tags=["box"])
    streamed = {
        200: {
            "description": "Events, until the client leaves; a comment at least every 15 s.",
            "content": {"text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **problems(),
    }

    @router.get("/stream", responses=streamed, response_class=StreamingResponse)
    async def follow(last_event_id: LastEventId = "") -> StreamingResponse:
        """Stream what happens: a snapshot, then each change of state, phase, measurement and alert."""
        return StreamingResponse(
            lines(stream.events(last_event_id)),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    return router


async def lines(
    events: AsyncGenerator[tuple[StreamEvent, str], None], keep_alive_s: float = KEEP_ALIVE_S
) -> AsyncIterator[str]:
    """Yield the text of a stream; it ends when the client's queue was full."""
    yield _RETRY
    async with aclosing(events):
        coming: asyncio.Future[tuple[StreamEvent, str]] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(events))
                done, _ = await asyncio.wait({coming}, timeout=keep_alive_s)
                if not done:
                    yield _KEEP_ALIVE
                    continue
                try:
                    event, position = coming.result()
                except StreamOverflowError:
                    return
                coming = None
                yield f"event: {event.name}\nid: {position}\ndata: {event.data}\n\n"
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.wait({coming})
