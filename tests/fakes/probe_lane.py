"""Typed in-memory port `ProbeLane`: engines answer as a test says, in the loop's time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from appliance.model.errors import LaneBusyError
from appliance.wire.lane import LaneOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAnswer:
    """Answer of an engine to a probe."""

    pieces: Sequence[tuple[float, bytes]] = ()
    """Pieces of the body, each with the seconds since the one before."""
    status: int = 200
    outcome: LaneOutcome = LaneOutcome.ENDED
    detail: str = ""


@dataclass(frozen=True, slots=True)
class LaneRequest:
    """Request that a lane was asked for."""

    profile: str
    path: str
    body: Mapping[str, object] | None
    timeout_s: float


class FakeProbeLane:
    """The port `ProbeLane`.

    Args:
        answer: What the engine answers to a request; raises `LaneBusyError` to admit none.
    """

    def __init__(self, answer: Callable[[LaneRequest], LaneAnswer]) -> None:
        self.answer = answer
        self.requests: list[LaneRequest] = []
        """Requests that were admitted."""
        self.leases: list[tuple[tuple[str, ...], bool]] = []
        """Leases that were granted: names, and whether they were exclusive."""
        self.unresponsive: tuple[str, ...] = ()
        """Profiles that are shown as unresponsive now."""
        self._shown = asyncio.Event()
        self._response: FakeLaneResponse | None = None
        self._lease: FakeLaneLease | None = None

    @asynccontextmanager
    async def send(
        self, profile: str, path: str, body: Mapping[str, object] | None, *, timeout_s: float
    ) -> AsyncIterator["FakeLaneResponse"]:
        await asyncio.sleep(0)
        if self._response is not None or self._lease is not None:
            raise LaneBusyError("another probe or a lease has the lane")
        request = LaneRequest(profile, path, body, timeout_s)
        answer = self.answer(request)
        self.requests.append(request)
        self._response = FakeLaneResponse(answer, timeout_s)
        try:
            yield self._response
        finally:
            self._response = None

    @asynccontextmanager
    async def lease(
        self, names: Sequence[str], *, exclusive: bool
    ) -> AsyncIterator["FakeLaneLease"]:
        await asyncio.sleep(0)
        if self._lease is not None:
            raise LaneBusyError("another lease has the lane")
        self._end_response(LaneOutcome.YIELDED, "a lease begins")
        self.leases.append((tuple(names), exclusive))
        self._lease = FakeLaneLease()
        try:
            yield self._lease
        finally:
            self._lease = None

    async def show_unresponsive(self, names: Sequence[str]) -> None:
        self.unresponsive, self._shown = tuple(names), asyncio.Event()
        try:
            await self._shown.wait()
        finally:
            self.unresponsive = ()

    def restart(self) -> None:
        """Have the gateway forget what it was told to show, as one that is restarted."""
        self._shown.set()

    def request_arrives(self) -> None:
        """Have a request of a client arrive: a probe yields to it, a lease counts it."""
        self._end_response(LaneOutcome.YIELDED, "a request arrived")
        if self._lease is not None:
            self._lease.count_request()

    def break_lease(self, why: str) -> None:
        """End the lease, as an operation does."""
        if self._lease is not None:
            self._lease.end(why)

    def _end_response(self, outcome: LaneOutcome, why: str) -> None:
        if self._response is not None:
            self._response.end(outcome, why)


class FakeLaneResponse:
    """The port `LaneResponse`."""

    def __init__(self, answer: LaneAnswer, timeout_s: float) -> None:
        self._answer = answer
        self._ended = asyncio.Event()
        self.sent_s = asyncio.get_running_loop().time()
        self._end_s = self.sent_s + timeout_s
        self.status = 0
        self.outcome: LaneOutcome | None = None
        self.detail = ""

    async def chunks(self) -> AsyncIterator[tuple[bytes, float]]:
        loop = asyncio.get_running_loop()
        due_s = self.sent_s
        for after_s, piece in self._answer.pieces:
            due_s += after_s
            if await self._ends_before(due_s):
                return
            self.status = self._answer.status
            yield piece, loop.time()
        # A response that was ended while its last piece was looked at stays ended so.
        if self.outcome is None:
            self.status = self._answer.status
            self.end(self._answer.outcome, self._answer.detail)

    async def _ends_before(self, due_s: float) -> bool:
        """Wait for a piece; tell whether the response has ended before."""
        try:
            async with asyncio.timeout_at(min(due_s, self._end_s)):
                await self._ended.wait()
        except TimeoutError:
            if due_s > self._end_s:
                self.end(LaneOutcome.TOO_LONG, "no end in time")
        return self.outcome is not None

    def end(self, outcome: LaneOutcome, why: str) -> None:
        if self.outcome is None:
            self.outcome, self.detail = outcome, why
            self._ended.set()


class FakeLaneLease:
    """The port `LaneLease`."""

    def __init__(self) -> None:
        self.token = "token"  # noqa: S105 - of a test
        self.requests = 0
        self.lost: str | None = None
        self._changes: asyncio.Queue[tuple[int, str | None]] = asyncio.Queue()

    async def traffic(self) -> AsyncIterator[int]:
        while self.lost is None:
            self.requests, self.lost = await self._changes.get()
            if self.lost is None:
                yield self.requests

    def count_request(self) -> None:
        self._changes.put_nowait((self.requests + self._changes.qsize() + 1, None))

    def end(self, why: str) -> None:
        self._changes.put_nowait((self.requests, why))
