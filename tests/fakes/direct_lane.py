"""Port `ProbeLane` straight to a real engine of a test, which no client uses."""

import asyncio
import http.client
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from appliance.system.ports import LaneLease, LaneResponse
from appliance.wire.lane import LaneOutcome


class DirectLane:
    """Lane to an engine on a port of this machine.

    Args:
        port: The port.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.bodies: list[Mapping[str, object]] = []
        """Bodies that were sent."""

    @asynccontextmanager
    async def send(
        self, _profile: str, path: str, body: Mapping[str, object] | None, *, timeout_s: float
    ) -> AsyncIterator[LaneResponse]:
        if body is not None:
            self.bodies.append(body)
        yield await asyncio.to_thread(self._exchange, path, body, timeout_s)

    def lease(
        self, names: Sequence[str], *, exclusive: bool
    ) -> AbstractAsyncContextManager[LaneLease]:
        raise NotImplementedError(f"no test leases {names}, exclusive: {exclusive}")

    async def show_unresponsive(self, names: Sequence[str]) -> None:
        raise NotImplementedError(f"no list of models here shows {names}")

    def _exchange(
        self, path: str, body: Mapping[str, object] | None, timeout_s: float
    ) -> "_ReceivedResponse":
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout_s)
        try:
            sent_s = time.monotonic()
            payload = None if body is None else json.dumps(body)
            headers = {"Content-Type": "application/json"}
            connection.request("GET" if body is None else "POST", path, payload, headers)
            response = connection.getresponse()
            pieces = []
            while piece := response.read1(1 << 16):
                pieces.append((piece, time.monotonic()))
            return _ReceivedResponse(sent_s, response.status, pieces)
        finally:
            connection.close()


class _ReceivedResponse:
    """Response that has come whole."""

    detail = ""

    def __init__(self, sent_s: float, status: int, pieces: list[tuple[bytes, float]]) -> None:
        self.sent_s = sent_s
        self.status = status
        self.outcome: LaneOutcome | None = None
        self._pieces = pieces

    async def chunks(self) -> AsyncIterator[tuple[bytes, float]]:
        for piece in self._pieces:
            yield piece
        self.outcome = LaneOutcome.ENDED
