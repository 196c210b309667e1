"""Requests of the prober in the gateway's lane: streamed answers, and pages of an engine.

An end without a complete answer is a `ProbeEndedError` with the probe's outcome.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from appliance.model.errors import LaneBusyError
from appliance.model.words import ProbeOutcome
from appliance.speed.event_stream import EventStreamParser
from appliance.speed.measurement import Measurement, ObservedStream
from appliance.system.ports import LaneResponse, ProbeLane
from appliance.wire.lane import LaneOutcome

_MOST_PAGE_BYTES: Final = 2 << 20
_PAGE_S: Final = 10.0
_OK: Final = 200
_OUTCOMES: Final[Mapping[LaneOutcome, ProbeOutcome]] = {
    LaneOutcome.YIELDED: ProbeOutcome.YIELDED,
    LaneOutcome.FAILED: ProbeOutcome.FAILED,
    LaneOutcome.TOO_LONG: ProbeOutcome.TOO_LONG,
}


class ProbeEndedError(Exception):
    """End of a prompt that measured nothing."""

    def __init__(self, outcome: ProbeOutcome, detail: str) -> None:
        super().__init__(detail)
        self.measurement = Measurement(outcome=outcome, detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedAnswer:
    """Answer of an engine, complete."""

    stream: ObservedStream
    ended_s: float
    """Arrival of its last piece at the gateway, monotonic."""


class LaneRequests:
    """Sender of one profile's requests.

    Args:
        lane: Lane of the gateway.
        profile: Name of the profile.
    """

    def __init__(self, lane: ProbeLane, profile: str) -> None:
        self._lane = lane
        self._profile = profile

    async def stream(
        self,
        path: str,
        body: Mapping[str, object],
        *,
        timeout_s: float,
        first_text: asyncio.Event | None = None,
        on_step: Callable[[float], None] = lambda _step_s: None,
    ) -> StreamedAnswer:
        """Return a streamed answer. Raises `ProbeEndedError`.

        Args:
            path: Path of the engine's API.
            body: Value of the JSON body.
            timeout_s: Time for the whole answer.
            first_text: Is set when the first text has come.
            on_step: Told the time from the request or the piece before to each piece, in seconds; may
                raise `ProbeEndedError`, which ends the request.
        """
        parser = EventStreamParser()
        try:
            async with self._lane.send(self._profile, path, body, timeout_s=timeout_s) as response:
                stream = ObservedStream(sent_s=response.sent_s)
                ended_s = response.sent_s
                async for piece, at_s in response.chunks():
                    on_step(at_s - ended_s)
                    ended_s = at_s
                    for data in parser.feed(piece):
                        stream.take(data, at_s)
                    if parser.overflowed:
                        raise ProbeEndedError(ProbeOutcome.TOO_LONG, "the response is too large")
                    if first_text is not None and stream.first_s is not None:
                        first_text.set()
                _check(response)
        except LaneBusyError as error:
            raise ProbeEndedError(ProbeOutcome.BUSY, str(error)) from error
        return StreamedAnswer(stream=stream, ended_s=ended_s)

    async def page(self, path: str) -> str | None:
        """Return a page of the engine; None: it has no such page, or one that is too long.

        Raises `ProbeEndedError` if the lane is busy, a client's request has come, or the engine does
        not answer.
        """
        pieces: list[bytes] = []
        left = _MOST_PAGE_BYTES
        try:
            async with self._lane.send(self._profile, path, None, timeout_s=_PAGE_S) as response:
                async for piece, _ in response.chunks():
                    left -= len(piece)
                    if left < 0:
                        return None
                    pieces.append(piece)
        except LaneBusyError as error:
            raise ProbeEndedError(ProbeOutcome.BUSY, str(error)) from error
        if response.outcome in {LaneOutcome.YIELDED, LaneOutcome.FAILED}:
            raise ProbeEndedError(_OUTCOMES[response.outcome], response.detail)
        is_whole = response.outcome is LaneOutcome.ENDED and response.status == _OK
        return b"".join(pieces).decode(errors="replace") if is_whole else None


def _check(response: LaneResponse) -> None:
    """Raise `ProbeEndedError` unless the response is complete and no error."""
    outcome = response.outcome
    if outcome is not None and outcome in _OUTCOMES:
        raise ProbeEndedError(_OUTCOMES[outcome], response.detail)
    if response.status != _OK:
        text = f"the engine answered with status {response.status}"
        raise ProbeEndedError(ProbeOutcome.FAILED, text)
