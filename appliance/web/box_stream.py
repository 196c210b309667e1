"""Stream of what happens on the box: one follower of the daemons for any number of clients.

=============  =====================================  ==================================================
event          data                                   id
=============  =====================================  ==================================================
`snapshot`     status, speeds and alerts of now       of the client, first of all
`status`       the status document after a change     none
`operation`    an event of an operation               with the closing one: the operation's number counts
`recorded`     an operation that ended while the      likewise
               client was away
`measured`     a measurement event                    its number counts
`alert`        a transition of an alert               its number counts
`lost`         the daemon that does not answer        none
=============  =====================================  ==================================================

Events of the same 50 ms go out together, and of several status documents among them only the last: what fifty
dashboards cost while a switch runs is the number of pieces that are sent to each.

An id has three numbers, ``m12.a34.o56``: the last measurement event, transition and operation that the
client has. With it a client that comes back is told what it has missed. While no client is there, no daemon is
asked. A client that does not read in time finds its queue full and is sent away; it comes back with its id.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import msgspec

from appliance.model.errors import ApplianceError
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.web.box_documents import BoxSource
from appliance.wire.control_events import MOST_OPERATIONS, OperationsRequest, StatusEvent
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import HealthEvent, MeasurementEventsRequest
from appliance.wire.json_values import Json, encode_json, number_in, objects_in
from appliance.wire.status_socket import FollowRequest, OperationEvent, WatchRequest

_log = logging.getLogger(__name__)
RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")

MOST_WAITING: Final = 256
"""Pieces that wait for one client, each with the events of `GATHER_S`; a switch has some forty events."""
GATHER_S: Final = 0.05
_MOST_MISSED: Final = 500
_MOST_QUESTIONS: Final = 4
"""Questions for clients that are asked at a time; a daemon's socket takes 16 conversations of this process."""
_STATUS: Final = "status"
_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0
_ID: Final = re.compile(r"m([0-9]{1,15})\.a([0-9]{1,15})\.o([0-9]{1,15})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPosition:
    """Position in the stream: the last numbers that a client has."""

    measured: int = 0
    alert: int = 0
    operation: int = 0

    @classmethod
    def of(cls, text: str) -> "StreamPosition | None":
        """Return the position that an id stands for; None: it is none."""
        found = _ID.match(text)
        if found is None:
            return None
        measured, alert, operation = map(int, found.groups())
        return cls(measured=measured, alert=alert, operation=operation)

    def __str__(self) -> str:
        """Return the id."""
        return f"m{self.measured}.a{self.alert}.o{self.operation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """Event of the stream, encoded once for all clients."""

    name: str
    data: str
    """JSON in one line."""
    measured: int = 0
    """Number that the client has with it; 0: none of this kind, as for the next two."""
    alert: int = 0
    operation: int = 0

    def is_new(self, position: StreamPosition) -> bool:
        """Tell whether a client at a position lacks it."""
        numbers = (self.measured, self.alert, self.operation)
        if not any(numbers):
            return True
        have = (position.measured, position.alert, position.operation)
        return any(number > had for number, had in zip(numbers, have, strict=True))

    def after(self, position: StreamPosition) -> StreamPosition:
        """Return the position of a client that has it."""
        return replace(
            position,
            measured=max(position.measured, self.measured),
            alert=max(position.alert, self.alert),
            operation=max(position.operation, self.operation),
        )


Piece = Sequence[StreamEvent]
"""Events that go out together."""
Follower = Callable[[], AsyncGenerator[StreamEvent | None, None]]
"""Function that follows a daemon until the conversation ends; None: nothing for clients."""


class StreamOverflowError(Exception):
    """A client does not read: its events are dropped, and it has to come back."""


class BoxStream:
    """Stream to any number of clients.

    Args:
        box: Whose daemons are followed while a client is there.
        gather_s: Time for which events wait for others.
    """

    def __init__(self, box: BoxSource, *, gather_s: float = GATHER_S) -> None:
        self._box = box
        self._gather_s = gather_s
        self._gathered: list[StreamEvent] = []
        self._queues: set[asyncio.Queue[Piece | None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions: dict[object, asyncio.Task[Any]] = {}
        """Questions that are being asked; clients with the same one wait for the same answer."""
        self._turns = asyncio.Semaphore(_MOST_QUESTIONS)
        self._last = StreamPosition()
        """Position of a client that has everything."""

    @contextlib.contextmanager
    def _queue(self) -> Iterator[asyncio.Queue[Piece | None]]:
        """Give a queue of what happens from now on."""
        queue: asyncio.Queue[Piece | None] = asyncio.Queue(MOST_WAITING)
        self._queues.add(queue)
        if not self._tasks:
            self._begin()
        try:
            yield queue
        finally:
            self._queues.discard(queue)
            if not self._queues:
                self._end()

    async def events(
        self, last_id: str = "", *, quiet_s: float | None = None
    ) -> AsyncGenerator[Sequence[tuple[StreamEvent, str]], None]:
        """Yield events that go out together, each with the id of the client that has it; the snapshot first.

        Args:
            last_id: Id that the client had; empty or malformed: it begins with what happens now.
            quiet_s: Time without an event after which none are yielded; None: it is waited for the next.

        Raises:
            StreamOverflowError: The client does not take them in time.
        """
        with self._queue() as queue:
            known = StreamPosition.of(last_id)
            position = await self._newest() if known is None else known
            yield [(await self._snapshot(), str(position))]
            if known is not None:
                async for event in self._missed(known):
                    position = event.after(position)
                    yield [(event, str(position))]
            while True:
                try:
                    async with asyncio.timeout(quiet_s):
                        piece = await queue.get()
                except TimeoutError:
                    yield []
                    continue
                if piece is None:
                    raise StreamOverflowError
                found = []
                for event in piece:
                    if event.is_new(position):
                        position = event.after(position)
                        found.append((event, str(position)))
                if found:
                    yield found

    # --- what a client begins with ---------------------------------------------------

    async def _snapshot(self) -> StreamEvent:
        documents = await self._box.look(with_gpus=False)
        data = {
            "unix_s": documents.unix_s,
            "status": documents.status,
            "status_age_s": documents.status_age_s,
            "speeds": documents.speeds,
            "speeds_age_s": documents.speeds_age_s,
        }
        return _event("snapshot", data)

    async def _newest(self) -> StreamPosition:
        """Return the position of now; a daemon that does not answer has the last one known."""
        with contextlib.suppress(ApplianceError):
            request = MeasurementEventsRequest(most=1, alerts_after=0)
            for event in await self._shared(self._box.ask_agent_events, request):
                self._note(_agent_event(event))
        with contextlib.suppress(ApplianceError):
            answer = await self._shared(self._box.ask_supervisor, OperationsRequest(1))
            for row in objects_in(answer, "operations"):
                self._note(_recorded(row))
        return self._last

    async def _missed(self, position: StreamPosition) -> AsyncIterator[StreamEvent]:
        with contextlib.suppress(ApplianceError):
            operations = OperationsRequest(MOST_OPERATIONS)
            answer = await self._shared(self._box.ask_supervisor, operations)
            rows = [_recorded(row) for row in objects_in(answer, "operations")]
            for event in reversed(rows):
                if event.operation > position.operation:
                    yield event
        with contextlib.suppress(ApplianceError):
            request = MeasurementEventsRequest(
                after=position.measured, most=_MOST_MISSED, alerts_after=position.alert
            )
            for found in await self._shared(self._box.ask_agent_events, request):
                told = _agent_event(found)
                if told is not None:
                    yield told

    async def _shared(
        self, ask: Callable[[RequestT], Awaitable[AnswerT]], request: RequestT
    ) -> AnswerT:
        """Return the answer to a question, asked once for all clients that have it now. Raises `ApplianceError`."""

        async def in_turn() -> AnswerT:
            async with self._turns:
                return await ask(request)

        question = self._questions.get(request)
        if question is None:
            question = self._questions[request] = asyncio.create_task(in_turn())
            question.add_done_callback(lambda _: self._questions.pop(request, None))
        answer: AnswerT = await asyncio.shield(question)
        return answer

    # --- followers -------------------------------------------------------------------

    def _begin(self) -> None:
        for follower in (self._follow_status, self._follow_operations, self._follow_agent):
            task = asyncio.create_task(self._again_and_again(follower))
            self._tasks.add(task)

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _again_and_again(self, follower: Follower) -> None:
        """Follow for ever; tell of a lost daemon once, until it answers again."""
        pause_s, told = _FIRST_PAUSE_S, False
        while True:
            try:
                async with contextlib.aclosing(follower()) as events:
                    async for event in events:
                        pause_s, told = _FIRST_PAUSE_S, False
                        if event is not None:
                            self._publish(event)
            except ApplianceError as error:
                _log.debug("%s", error)
                if not told:
                    told = True
                    self._publish(_event("lost", {"message": str(error)}))
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _follow_status(self) -> AsyncGenerator[StreamEvent | None, None]:
        async with self._box.follow_supervisor(WatchRequest()) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                if isinstance(event, StatusEvent):
                    yield _event(_STATUS, event.status)

    async def _follow_operations(self) -> AsyncGenerator[StreamEvent | None, None]:
        async with self._box.follow_supervisor(FollowRequest()) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                if isinstance(event, OperationEvent):
                    yield _operation_event(event)

    async def _follow_agent(self) -> AsyncGenerator[StreamEvent | None, None]:
        last = await self._newest()
        request = MeasurementEventsRequest(
            after=last.measured, follow=True, alerts_after=last.alert
        )
        async with self._box.follow_agent(request) as events:
            async for event in events:
                if isinstance(event, ErrorEvent):
                    raise RequestRefusedError(event)
                yield _agent_event(event)

    def _publish(self, event: StreamEvent) -> None:
        """Hand an event to every client, with others of the same moment. Never blocks."""
        self._note(event)
        if not self._gathered:
            asyncio.get_running_loop().call_later(self._gather_s, self._send_gathered)
        self._gathered.append(event)

    def _send_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        last = max((n for n, event in enumerate(gathered) if event.name == _STATUS), default=None)
        piece = [e for n, e in enumerate(gathered) if e.name != _STATUS or n == last]
        for queue in list(self._queues):
            if queue.full():
                # Its generator ends with the next piece that it takes.
                self._queues.discard(queue)
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(piece)

    def _note(self, event: StreamEvent | None) -> None:
        if event is not None:
            self._last = event.after(self._last)


def _event(name: str, data: object, **numbers: int) -> StreamEvent:
    return StreamEvent(name=name, data=encode_json(msgspec.to_builtins(data)), **numbers)


def _operation_event(event: OperationEvent) -> StreamEvent:
    """Return an event of an operation; the closing one alone moves the position."""
    is_over = event.change.get("event") == "result"
    data = {"operation": event.operation, "change": event.change}
    return _event("operation", data, operation=event.operation if is_over else 0)


def _recorded(row: Json) -> StreamEvent:
    return _event("recorded", row, operation=int(number_in(row, "id") or 0))


def _agent_event(event: HealthEvent) -> StreamEvent | None:
    """Return an event of the health agent; None: it is not one for clients."""
    match event:
        case MeasuredEvent():
            return _event("measured", event.fields(), measured=event.id)
        case AlertEvent():
            return _event("alert", event.fields(), alert=event.id)
        case _:
            return None
