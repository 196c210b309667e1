"""Verbs of the control protocol: the answer to each request, as events."""

import logging
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict
from typing import Any, assert_never

from appliance.model.claims import claim_on
from appliance.model.errors import NotFoundError
from appliance.model.operations import FOREVER, Cause, Goal, Kind, Outcome
from appliance.model.status import OperationsSection, StatusDocument, VerificationRow
from appliance.model.wording import joined, requester_name, short
from appliance.status.verification import differences, failure_text
from appliance.supervisor.access_policy import Requester, read_from_operator, requester_of
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.inference_keys import KeyDesk, Keys
from appliance.supervisor.operator_tokens import TokenDesk
from appliance.supervisor.ownership import OperationRequest, Running, Supervisor
from appliance.supervisor.status_feed import PERSON_EVERY_S, PERSON_TIMES, StatusFeed
from appliance.switch.preflight_facts import Level
from appliance.wire.control import Exit
from appliance.wire.control_events import (
    AcceptedEvent,
    ControlEvent,
    EndedEvent,
    OperationsRequest,
    StatusEvent,
    TicketEvent,
)
from appliance.wire.control_requests import (
    CONTROL,
    AbandonRequest,
    AddKeyRequest,
    AddTokenRequest,
    AttachRequest,
    CancelRequest,
    ChangeRequest,
    ControlRequest,
    CutRequest,
    GpuStateRequest,
    HoldRequest,
    ListKeysRequest,
    ListTokensRequest,
    MarkRequest,
    OnRequestSwitch,
    PlainRequest,
    ReloadRequest,
    RemoveKeyRequest,
    RemoveTokenRequest,
    RestartRequest,
    RunRequest,
    StartRequest,
    StatusRequest,
    StopRequest,
    SwitchRequest,
    UncommitRequest,
    VerifyRequest,
    WatchStatusRequest,
)
from appliance.wire.conversation import ResultEvent
from appliance.wire.server import Peer, ReadRequest, serve_conversations

_OUTCOME = "verified"


async def verification_result(supervisor: Supervisor, name: str | None) -> ResultEvent:
    """Return how the engines compare: of one profile, or of all that serve.

    Raises:
        UnknownProfileError: `name` is not applied.
        UnitError: systemd does not tell when an engine was started.
    """
    if name is not None:
        supervisor.check_names((name,))
    catalogue, observed = supervisor.last_look()
    serving = [one for one in observed.serving() if one in catalogue and name in {None, one}]
    rows = {one: await supervisor.verifier.verify(catalogue[one]) for one in serving}
    if not rows:
        message = "nothing serves" if name is None else f"{name} does not serve"
        return ResultEvent(exit=Exit.NOTHING_SERVING, outcome=_OUTCOME, message=message)
    failures = list(filter(None, (failure_text(one, row) for one, row in rows.items())))
    return ResultEvent(
        exit=Exit.FAILED if failures else Exit.OK,
        outcome=_OUTCOME,
        message="; ".join(failures) or _agreement(list(rows.values())),
        details={"profiles": [{"name": one, "verification": row} for one, row in rows.items()]},
    )


def _agreement(rows: list[VerificationRow]) -> str:
    if any(map(differences, rows)):
        return "nothing differs but what may"
    if not any(fact.state == "agrees" for row in rows for fact in row.facts):
        return "no engine reports what could be compared"
    return "what engines report is what their profiles declare"


_log = logging.getLogger(__name__)

Report = Callable[[], Awaitable[Mapping[str, Any]]]
"""Function that returns a JSON object."""


class ControlVerbs:
    """Handler of the requests to one supervisor.

    Args:
        supervisor: Does what is asked.
        status: Builds the status document.
        keys: Where inference keys are kept.
        tokens: Answers requests about operators' tokens.
        requests: Cancels requests of clients.
        now_unix_s: The wall clock.
        gpus: Reads the state of the GPUs; None: it is not told here.
        operations: Returns the running operation and that many which are over; None: none are told here.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        status: Callable[[], Awaitable[StatusDocument]],
        keys: Keys,
        tokens: TokenDesk,
        requests: ClientRequests,
        now_unix_s: Callable[[], float],
        gpus: Report | None = None,
        operations: Callable[[int], Awaitable[OperationsSection]] | None = None,
    ) -> None:
        self.feed = StatusFeed(
            status, supervisor.signature, every_s=PERSON_EVERY_S, times=PERSON_TIMES
        )
        """Feed of those who watch; is told of each look at the box."""
        self._supervisor = supervisor
        self._status = status
        self._gpus = gpus
        self._operations = operations
        self._desk = KeyDesk(keys, supervisor.check_names, now_unix_s)
        self._tokens = tokens
        self._requests = requests
        self._now_unix_s = now_unix_s

    async def serve(
        self, listener: socket.socket, read: ReadRequest[ControlRequest] = read_from_operator
    ) -> None:
        """Answer on one socket for ever, once an operation that was left open goes on."""
        await self.resumed()
        await serve_conversations(CONTROL, listener, read, self._answer)

    async def resumed(self) -> None:
        """Wait until an operation that was left open goes on."""
        await self._supervisor.resumed()

    async def _answer(
        self, request: ControlRequest, peer: Peer
    ) -> AsyncGenerator[ControlEvent, None]:
        async with aclosing(self.answer(request, requester_of(peer, request))) as events:
            async for event in events:
                yield event

    async def answer(
        self, request: ControlRequest, by: Requester
    ) -> AsyncGenerator[ControlEvent, None]:
        """Answer one request, whoever makes it; the policy of each socket was applied before."""
        match request:
            case WatchStatusRequest():
                async with aclosing(self.feed.documents()) as documents:
                    async for document in documents:
                        yield StatusEvent(document)
            case AttachRequest(operation):
                async for event in self._attach(operation):
                    yield event
            case CancelRequest(operation):
                async for event in self._cancel(operation, by):
                    yield event
            case VerifyRequest(name):
                yield await verification_result(self._supervisor, name)
            case (
                SwitchRequest()
                | OnRequestSwitch()
                | StartRequest()
                | StopRequest()
                | RestartRequest()
                | HoldRequest()
                | RunRequest()
            ):
                async for event in self._operate(request, by):
                    yield event
            case _:
                yield await self._result(request, by)

    async def _result(self, request: PlainRequest, by: Requester) -> ResultEvent:  # noqa: C901, PLR0911 - one a request
        """Return the result of a request that is no operation."""
        match request:
            case StatusRequest():
                return ResultEvent(details={"status": await self._status()})
            case GpuStateRequest():
                return ResultEvent(details={} if self._gpus is None else await self._gpus())
            case AbandonRequest(number):
                is_cancelled = self._supervisor.abandon(number)
                text = "is" if is_cancelled else "cannot be"
                return _done(f"operation {number} {text} cancelled")
            case CutRequest(client_request):
                return await self._requests.cancel(client_request, by)
            case OperationsRequest(most):
                if self._operations is None:
                    return ResultEvent()
                return ResultEvent(details=(await self._operations(most)).fields())
            case MarkRequest(name, mark):
                await self._supervisor.mark(name, mark, by=str(by))
                return _done(f"{name} is marked {mark}")
            case UncommitRequest(name, exclusive):
                message, left = await self._supervisor.uncommit(
                    name, exclusive=exclusive, by=str(by)
                )
                return ResultEvent(
                    outcome=Outcome.DONE, message=message, details={"committed": left}
                )
            case AddKeyRequest() | ListKeysRequest() | RemoveKeyRequest():
                return self._desk.answer(request, by)
            case AddTokenRequest() | ListTokensRequest() | RemoveTokenRequest():
                return self._tokens.answer(request, by)
            case ReloadRequest():
                return _done(f"{self._supervisor.reload()} profiles are applied")
            case never:
                assert_never(never)

    async def _operate(self, asked: ChangeRequest, by: Requester) -> AsyncIterator[ControlEvent]:
        request = self._request(asked, by)
        if not isinstance(asked, OnRequestSwitch) and asked.dry_run:
            yield await self._rehearsed(request)
            return
        running = await self._supervisor.submit(request)
        async for event in _events(running):
            yield await self._with_silence(event, running)
            if isinstance(event, AcceptedEvent) and running.token:
                yield TicketEvent(running.token)

    async def _with_silence(self, event: ControlEvent, running: Running) -> ControlEvent:
        """Return an event, that of a stop with the silence that the health agent makes of it."""
        if not isinstance(event, EndedEvent) or event.kind != Kind.STOP:
            return event
        live = await self._supervisor.live(running.transaction.operation.goal.stop)
        if event.outcome != Outcome.DONE or not live:
            return event
        silence = f"nobody is told of {joined(live)} for 2 h, or until the next start"
        return event.replaced(message=f"{event.message}; {silence}")

    def _request(self, asked: ChangeRequest, by: Requester) -> OperationRequest:  # noqa: PLR0911 - one a kind
        match asked:
            case OnRequestSwitch(name):
                return OperationRequest(kind=Kind.SWITCH, names=(name,), by=by)
            case SwitchRequest(_, _, rollback, drain_s):
                return OperationRequest(
                    kind=Kind.SWITCH,
                    names=asked.targets(),
                    by=by,
                    rollback=rollback,
                    drain_s=drain_s,
                )
            case StartRequest(names):
                return OperationRequest(kind=Kind.START, names=names, by=by)
            case StopRequest(names):
                return OperationRequest(kind=Kind.STOP, names=names, by=by, drain_s=asked.drain_s)
            case RestartRequest(names):
                return OperationRequest(
                    kind=Kind.RESTART, names=names, by=by, drain_s=asked.drain_s
                )
            case HoldRequest(for_s):
                until = FOREVER if for_s is None else self._now_unix_s() + for_s
                return OperationRequest(
                    kind=Kind.HOLD, hold_until=until, by=by, drain_s=asked.drain_s
                )
            case RunRequest(command, gpus):
                return OperationRequest(
                    kind=Kind.RUN,
                    command=short(command),
                    claim=claim_on(gpus),
                    by=by,
                    drain_s=asked.drain_s,
                )
            case never:
                assert_never(never)

    async def _attach(self, operation: int | None) -> AsyncIterator[ControlEvent]:
        running = self._supervisor.current()
        if operation is not None and (running is None or running.accepted.operation != operation):
            yield await self._recorded(operation)
            return
        if running is None:
            yield _done("no operation is running")
            return
        async for event in _events(running):
            yield event

    async def _recorded(self, operation: int) -> ControlEvent:
        event = await self._supervisor.ended(operation)
        if event is None:
            raise NotFoundError(f"operation {operation} is not on record: appliance operations")
        return event

    async def _cancel(self, operation: int | None, by: Requester) -> AsyncIterator[ControlEvent]:
        running = self._supervisor.current()
        if operation is not None and (running is None or running.accepted.operation != operation):
            await self._recorded(operation)
            yield _done(f"operation {operation} does not run")
            return
        transaction = self._supervisor.cancel(by=requester_name(str(by)))
        if running is None or transaction is None:
            yield _done("nothing to cancel")
            return
        _log.info("operation %d is cancelled by %s", transaction.operation.id, by)
        async for event in _events(running):
            yield _cancelled(event) if isinstance(event, EndedEvent) else event

    async def _rehearsed(self, request: OperationRequest) -> ResultEvent:
        operation, found = await self._supervisor.rehearse(request)
        refused = any(f.level is Level.REFUSE for f in found)
        goal = operation.goal
        plan = {"stop": goal.stop, "start": goal.start, "committed_after": goal.commit}
        findings = [
            {
                "level": f.level,
                "text": f.text,
                "source": f.source,
                "wanted_bytes": f.wanted_bytes,
            }
            for f in found
        ]
        estimates = await self._supervisor.estimates(operation)
        return ResultEvent(
            exit=Exit.FAILED if refused else Exit.OK,
            outcome="rehearsed",
            message="refused" if refused else "the preflight finds no obstacle",
            details={
                "plan": plan,
                "findings": findings,
                "estimates": {name: asdict(row) for name, row in estimates.items()},
            },
        )


async def _events(running: Running) -> AsyncIterator[ControlEvent]:
    """Yield every event of one operation, from the first on."""
    yield running.accepted
    async for event in running.transaction.feed.follow():
        if isinstance(event, EndedEvent) and event.kind == Kind.HOLD:
            yield event.replaced(hold=_hold(running.transaction.operation.goal))
        else:
            yield event


def _hold(goal: Goal) -> Mapping[str, object]:
    """Return the hold as the status document has it."""
    until = goal.hold_until
    return {"until_unix_s": None if isinstance(until, str) else until, "kept": True}


def _cancelled(event: EndedEvent) -> EndedEvent:
    """Return an operation's end for the client that cancelled it: a roll-back is no failure."""
    cancelled = event.cause == Cause.CANCELLED
    if event.outcome == Outcome.REFUSED and cancelled:
        return event.replaced(exit=Exit.OK, message="cancelled before anything was changed")
    if event.outcome == Outcome.ROLLED_BACK or cancelled:
        verb = "serve" if event.serving[1:] else "serves"
        text = f"cancelled: {joined(event.serving)} {verb}"
        return event.replaced(exit=Exit.OK, message=text)
    if event.outcome == Outcome.DONE:
        text = f"too late to cancel: {event.message}"
        return event.replaced(exit=Exit.FAILED, message=text)
    return event


def _done(text: str) -> ResultEvent:
    return ResultEvent(outcome=Outcome.DONE, message=text)
