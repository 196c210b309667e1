"""HTTP client of the gateway's front for measurements: one request a connection, bytes with times.

The connection is made before a request is timed: connecting is no work of the model. Responses are
parsed by httptools, as in the gateway; a byte has the time at which the event loop received it.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httptools

from appliance.model.json_reader import decode_json

TakePiece = Callable[[bytes, float], None]
"""Taker of bytes of a body, with the time of their arrival by the loop's clock."""
CONNECT_S: Final = 5.0
_OK: Final = 200
_MOST_ERROR_BYTES: Final = 64 << 10
_CODE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")
"""Pattern of an error's code: an identifier, never a text that may repeat the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnd:
    """End of a response, with the times of the loop's clock."""

    sent_s: float
    """Time at which the request was written."""
    ended_s: float
    status: int | None
    """HTTP status; None: no response came."""
    fault: str
    """Reason why the response cannot be used, for people; empty: it is a whole 200."""


class FrontClient:
    """Client of one address.

    Args:
        host: IP address.
        port: Port of the gateway.
        key: Inference key; None: a client on this machine needs none.
        path: Unix socket of the gateway to connect to in place of the address; None: none.
    """

    def __init__(
        self, host: str, port: int, *, key: str | None = None, path: Path | None = None
    ) -> None:
        self._address = host, port
        self._key = key
        self._path = path

    async def post(
        self,
        path: str,
        body: Mapping[str, object],
        take: TakePiece,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> ResponseEnd:
        """Send one request, and pass the body of a response with status 200 to `take`.

        Args:
            path: Path of the request.
            body: Value of its JSON.
            take: Taker of the body's bytes.
            timeout_s: Time for the whole response.
            headers: Further headers, with values that end no line.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                transport, response = await self._connected(take)
        except (OSError, TimeoutError):
            now_s = loop.time()
            return ResponseEnd(sent_s=now_s, ended_s=now_s, status=None, fault="no connection")
        request = self._request(path, body, headers or {})
        sent_s = loop.time()
        transport.write(request)
        try:
            async with asyncio.timeout(timeout_s):
                await response.ended
        except TimeoutError:
            response.fault = f"no end within {timeout_s:g} s"
        finally:
            transport.abort()
        return ResponseEnd(
            sent_s=sent_s,
            ended_s=loop.time() if response.ended_s is None else response.ended_s,
            status=response.status,
            fault=response.fault,
        )

    async def _connected(self, take: TakePiece) -> tuple[asyncio.WriteTransport, "FrontResponse"]:
        loop = asyncio.get_running_loop()
        if self._path is not None:
            return await loop.create_unix_connection(lambda: FrontResponse(take), str(self._path))
        return await loop.create_connection(lambda: FrontResponse(take), *self._address)

    def _request(self, path: str, body: Mapping[str, object], headers: Mapping[str, str]) -> bytes:
        content = json.dumps(body).encode()
        lines = {
            "Host": "{}:{}".format(*self._address),
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Accept": "text/event-stream",
            "Connection": "close",
            **({} if self._key is None else {"Authorization": f"Bearer {self._key}"}),
            **headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + content


class FrontResponse(asyncio.Protocol):
    """Response on a connection; httptools calls the methods that begin with ``on``.

    Args:
        take: Taker of the body of a 200.
    """

    def __init__(self, take: TakePiece) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._error = bytearray()
        self._at_s = 0.0
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.ended_s: float | None = None
        self.status: int | None = None
        self.fault = ""

    def data_received(self, data: bytes) -> None:
        """Parse bytes as they arrive."""
        self._at_s = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._end("invalid HTTP")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """End a response that is not whole."""
        self._at_s = self._loop.time()
        self._end("broke off" if self.status else "no response")

    def on_headers_complete(self) -> None:
        """Note the status."""
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body, or keep it where it is an error's."""
        if self.status == _OK:
            if not self.ended.done():
                self._take(body, self._at_s)
        elif len(self._error) < _MOST_ERROR_BYTES:
            self._error += body[:_MOST_ERROR_BYTES]

    def on_message_complete(self) -> None:
        """End the response."""
        self._end("" if self.status == _OK else f"{self.status} {_code(self._error)}".rstrip())

    def _end(self, fault: str) -> None:
        if not self.ended.done():
            self.fault, self.ended_s = fault, self._at_s
            self.ended.set_result(None)


def _code(body: bytes | bytearray) -> str:
    """Return the code or type of an error response; empty: it has none."""
    try:
        error = decode_json(body)["error"]
        words = [error.get("code"), error.get("type")]
    except (ValueError, LookupError, TypeError, AttributeError):
        return ""
    return next((w for w in words if isinstance(w, str) and _CODE.match(w)), "")
