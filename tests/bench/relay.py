"""The relay that one would write in an afternoon: an ASGI application with an HTTP client.

What the gateway is compared with: ``uvicorn tests.bench.relay:app``, the engine's address in
``RELAY_TO``.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_OURS_ALONE = {b"connection", b"content-length", b"host", b"keep-alive", b"transfer-encoding"}
_client = httpx.AsyncClient(base_url=os.environ.get("RELAY_TO", ""), timeout=None)  # noqa: S113


async def app(scope: Message, receive: Receive, send: Send) -> None:
    """Pass a request on and stream the answer back."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    headers = [(name, value) for name, value in scope["headers"] if name not in _OURS_ALONE]
    request = _client.build_request(
        scope["method"], scope["path"], headers=headers, content=await _body(receive)
    )
    answer = await _client.send(request, stream=True)
    kept = [pair for pair in answer.headers.raw if pair[0].lower() != b"connection"]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
    async for piece in answer.aiter_raw():
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    await answer.aclose()


async def _body(receive: Receive) -> bytes:
    pieces = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


async def _lifespan(receive: Receive, send: Send) -> None:
    kind = ""
    while kind != "lifespan.shutdown":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
