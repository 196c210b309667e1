"""Route of the stream: server-sent events (HTML standard, 9.2), with ids by which a client resumes."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress
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
            lines(stream.events(last_event_id, quiet_s=KEEP_ALIVE_S)),
            media_type="text/event-stream",
            headers={"x-accel-buffering": "no"},
        )

    return router


async def lines(
    pieces: AsyncGenerator[Sequence[tuple[StreamEvent, str]], None],
) -> AsyncIterator[str]:
    """Yield the text of a stream; a comment for a piece without events. It ends when the client's queue was full."""
    yield _RETRY
    async with aclosing(pieces):
        with suppress(StreamOverflowError):
            async for piece in pieces:
                text = (f"event: {e.name}\nid: {id_}\ndata: {e.data}\n\n" for e, id_ in piece)
                yield "".join(text) or _KEEP_ALIVE
