"""The supervisor's sockets: NDJSON requests (protocol.control), from operators and the gateway.

==============  =======================  ====================================================
socket          who may connect          what is offered
==============  =======================  ====================================================
control.sock    appliance-operators      every verb
request.sock    appliance-gateway        a switch to a profile that requests may switch to
==============  =======================  ====================================================

The mode of each socket says who may connect. Who did is logged from the kernel's credentials,
never from what a client says about itself.
"""

import asyncio
import contextlib
import dataclasses
import difflib
import grp
import json
import logging
import pwd
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import appliance
from appliance.domain.claims import NOTHING, Claim, claim_on
from appliance.domain.errors import (
    ApplianceError,
    BadRequestError,
    BusyError,
    PermissionDeniedError,
    UnknownProfileError,
)
from appliance.domain.events import Accepted, Ended, Event, PhaseChanged
from appliance.domain.names import is_engine
from appliance.domain.operations import FOREVER, Goal, HoldUntil, Kind, Outcome
from appliance.domain.profile import Mark
from appliance.planning.admission.preflight import Level
from appliance.planning.switch.next_action import CANCELLED
from appliance.planning.wording import joined, short
from appliance.protocol.control import MAX_REQUEST_BYTES, PROTOCOL_MAX, PROTOCOL_MIN, Exit, Verb
from appliance.protocol.unix_server import Bounds, peer_of, serve_unix, until_left
from appliance.supervisor.inference_keys import KeyDesk, Keys
from appliance.supervisor.ownership import (
    OperationRequest,
    Running,
    Supervisor,
)

_log = logging.getLogger(__name__)

_FIRST_LINE_TIMEOUT_S: Final = 10.0
_TAKEN_WITHIN_S: Final = 30.0
"""An answer that a client does not read is dropped then, and the client with it."""
_BOUNDS: Final = Bounds(line_bytes=MAX_REQUEST_BYTES, per_user=64, total=256)
"""LimitNOFILE= of the unit fits two such sockets."""
_FULL: Final = (
    json.dumps(
        {
            "event": "error",
            "exit": Exit.BUSY,
            "message": "too many connections to the supervisor are open: end some, or try again",
        }
    ).encode()
    + b"\n"
)
_MOST_SECONDS: Final = 1e9
"""Thirty years: more is a mistake, and no clock may overflow."""
_NAMES: Final = {Accepted: "accepted", PhaseChanged: "phase", Ended: "result"}
_KINDS: Final = {
    Verb.SWITCH: Kind.SWITCH,
    Verb.START: Kind.START,
    Verb.STOP: Kind.STOP,
    Verb.RESTART: Kind.RESTART,
    Verb.HOLD: Kind.HOLD,
    Verb.RUN: Kind.RUN,
}
_ON_REQUEST: Final = frozenset({"name", "on_behalf"})
"""Arguments of a switch on request: no deadline for others' requests, nothing left undone."""
_MOST_GPUS: Final = 256
_MOST_OPERATIONS: Final = 2**63 - 1
"""As far as SQLite counts."""

Message = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What clients of one socket may ask for."""

    verbs: frozenset[Verb] = frozenset(Verb)
    uid: int | None = None
    """The only user that is answered; None: everybody whom the socket's mode admits."""
    on_request: bool = False
    """Clients ask because of somebody's request: `on_behalf` is believed, and profiles that no
    request may switch to are refused."""


TO_OPERATORS: Final = Offer()


def to_gateway(uid: int) -> Offer:
    """What the gateway, which runs as `uid`, may ask for: a switch on request, nothing else."""
    return Offer(verbs=frozenset({Verb.SWITCH}), uid=uid, on_request=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """Process at the other end of a connection, as the kernel knew it at connect time."""

    uid: int
    gid: int
    pid: int

    @property
    def is_engine(self) -> bool:
        """Whether a model's unit is behind it, also one that runs as an operator."""
        try:
            group = grp.getgrgid(self.gid).gr_name
        except KeyError:
            group = ""
        return is_engine(self.uid, group)

    def __str__(self) -> str:
        """As the log names it: "ana (uid 1000, pid 4121)"."""
        return f"{_user(self.uid)} (uid {self.uid}, pid {self.pid})"


class ControlServer:
    """Serves one supervisor on inherited or bound listening sockets.

    Args:
        supervisor: Does what is asked.
        status: Builds the status document.
        keys: Where inference keys are kept.
        now_unix_s: The wall clock.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        status: Callable[[], Awaitable[Message]],
        keys: Keys,
        now_unix_s: Callable[[], float],
    ) -> None:
        self._supervisor = supervisor
        self._status = status
        self._desk = KeyDesk(keys, supervisor.check_names, now_unix_s)
        self._now_unix_s = now_unix_s

    async def serve(self, listener: socket.socket, offer: Offer = TO_OPERATORS) -> None:
        """Answer for ever. The socket stays open for the next process (it is systemd's)."""
        await self._supervisor.resumed()
        await serve_unix(listener, partial(self._converse, offer), _BOUNDS, refusal=_FULL)

    async def _converse(
        self, offer: Offer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        pid, uid, gid = peer_of(writer)
        answers = self._answers(reader, Peer(uid=uid, gid=gid, pid=pid), offer)
        try:
            async with contextlib.aclosing(answers):
                async for message in answers:
                    await _send(writer, message)
                    if message["event"] == "accepted":
                        # From here on the operation goes on without the client.
                        await _follow(answers, reader, writer)
                        return
        except (ConnectionError, asyncio.LimitOverrunError, TimeoutError):
            _log.debug("a client left")

    async def _answers(
        self, reader: asyncio.StreamReader, peer: Peer, offer: Offer
    ) -> AsyncGenerator[Message, None]:
        try:
            request = _parsed(await _first_line(reader))
            yield {
                "event": "hello",
                "protocol": _common_protocol(request),
                "version": appliance.__version__,
            }
            verb, args = _verb(request)
            _check_offered(offer, verb, args, peer)
            who = _by(args, peer, offer)
            async for message in self._do(verb, args, who, offer, uid=peer.uid):
                yield message
        except ApplianceError as error:
            yield _error(error)

    async def _do(
        self, verb: Verb, args: Message, peer: str, offer: Offer, *, uid: int
    ) -> AsyncIterator[Message]:
        if verb in _KINDS:
            async for message in self._operate(_KINDS[verb], args, peer, offer, uid=uid):
                yield message
        elif verb is Verb.STATUS:
            yield {"event": "result", "exit": Exit.OK, "status": await self._status()}
        elif verb is Verb.ATTACH:
            async for message in self._attach(_operation(args)):
                yield message
        elif verb is Verb.CANCEL:
            async for message in self._cancel(peer):
                yield message
        elif verb is Verb.MARK:
            name, mark = _name(args), _mark(args)
            await self._supervisor.mark(name, mark, by=peer)
            yield _done(f"{name} is marked {mark}")
        elif verb is Verb.KEY:
            yield self._desk.answer(args, peer)
        else:
            yield _done(f"{self._supervisor.reload()} profiles are applied")

    async def _operate(
        self, kind: Kind, args: Message, peer: str, offer: Offer, *, uid: int
    ) -> AsyncIterator[Message]:
        request = OperationRequest(
            kind=kind,
            names=(_name(args),) if kind is Kind.SWITCH else _names(args),
            command=_command(args) if kind is Kind.RUN else "",
            claim=_claim(args) if kind is Kind.RUN else NOTHING,
            uid=uid,
            by=peer,
            rollback=bool(args.get("rollback", True)),
            drain_s=_seconds(args, "drain_s"),
            hold_until=self._hold_until(args) if kind is Kind.HOLD else None,
            on_request=offer.on_request,
        )
        if args.get("dry_run"):
            yield await self._rehearsed(request)
            return
        running = await self._supervisor.submit(request)
        async for message in _story(running):
            yield message
            if message["event"] == "accepted" and running.token:
                yield {"event": "ticket", "token": running.token}

    async def _attach(self, operation: int | None) -> AsyncIterator[Message]:
        running = self._supervisor.current()
        if operation is not None and (running is None or running.accepted.operation != operation):
            yield await self._recorded(operation)
            return
        if running is None:
            yield _done("no operation is running")
            return
        async for message in _story(running):
            yield message

    async def _recorded(self, operation: int) -> Message:
        event = await self._supervisor.ended(operation)
        if event is None:
            raise BadRequestError(f"operation {operation} is not on record")
        return _message(event)

    async def _cancel(self, peer: str) -> AsyncIterator[Message]:
        running = self._supervisor.current()
        transaction = self._supervisor.cancel()
        if running is None or transaction is None:
            yield _done("nothing to cancel")
            return
        _log.info("operation %d is cancelled by %s", transaction.operation.id, peer)
        async for message in _story(running):
            yield message if message["event"] != "result" else _cancelled(message)

    async def _rehearsed(self, request: OperationRequest) -> Message:
        operation, found = await self._supervisor.rehearse(request)
        refused = any(f.level is Level.REFUSE for f in found)
        return {
            "event": "result",
            "exit": Exit.FAILED if refused else Exit.OK,
            "outcome": "rehearsed",
            "message": "refused" if refused else "nothing speaks against it",
            "plan": _plan(operation.goal),
            "findings": [
                {
                    "level": f.level,
                    "text": f.text,
                    "source": f.source,
                    "wanted_bytes": f.wanted_bytes,
                }
                for f in found
            ],
        }

    def _hold_until(self, args: Message) -> HoldUntil:
        for_s = _seconds(args, "for_s")
        return FOREVER if for_s is None else self._now_unix_s() + for_s


async def _follow(
    answers: AsyncIterator[Message], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Send the rest of an operation's story, unless the client leaves before its end."""
    left = asyncio.ensure_future(until_left(reader, writer))
    try:
        while True:
            upcoming = asyncio.ensure_future(anext(answers, None))
            try:
                await asyncio.wait({upcoming, left}, return_when=asyncio.FIRST_COMPLETED)
                message = await upcoming if upcoming.done() else None
            finally:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)
            if message is None:
                return
            await _send(writer, message)
    finally:
        left.cancel()
        await asyncio.gather(left, return_exceptions=True)


async def _send(writer: asyncio.StreamWriter, message: Message) -> None:
    """Raises TimeoutError when the client takes nothing."""
    writer.write(json.dumps(message).encode() + b"\n")
    async with asyncio.timeout(_TAKEN_WITHIN_S):
        await writer.drain()


async def _story(running: Running) -> AsyncIterator[Message]:
    """Everything about one operation as messages, from the first on."""
    yield _message(running.accepted)
    async for event in running.transaction.feed.follow():
        message = _message(event)
        if isinstance(event, Ended) and event.kind is Kind.HOLD:
            message = {**message, "hold": _hold(running.transaction.operation.goal)}
        yield message


def _message(event: Event) -> Message:
    return {"event": _NAMES[type(event)], **dataclasses.asdict(event)}


def _hold(goal: Goal) -> Message:
    """As in the status document."""
    until = goal.hold_until
    return {"until_unix_s": None if isinstance(until, str) else until, "kept": True}


def _cancelled(result: Message) -> Message:
    """The end of an operation, for who cancelled it: undone as asked is no failure."""
    outcome, message = result["outcome"], result["message"]
    if outcome is Outcome.REFUSED and message == CANCELLED:
        return {**result, "exit": Exit.OK, "message": "cancelled before anything was touched"}
    if outcome is Outcome.ROLLED_BACK or message == CANCELLED:
        verb = "serve" if result["serving"][1:] else "serves"
        text = f"{CANCELLED}: {joined(result['serving'])} {verb}"
        return {**result, "exit": Exit.OK, "message": text}
    if outcome is Outcome.DONE:
        return {**result, "exit": Exit.FAILED, "message": f"too late to cancel: {message}"}
    return result


def _plan(goal: Goal) -> Message:
    return {"stop": goal.stop, "start": goal.start, "committed_after": goal.commit}


def _done(text: str) -> Message:
    return {"event": "result", "exit": Exit.OK, "outcome": "done", "message": text}


def _error(error: ApplianceError) -> Message:
    match error:
        case UnknownProfileError():
            status = Exit.NO_SUCH_PROFILE
        case BusyError():
            status = Exit.BUSY
        case PermissionDeniedError():
            status = Exit.PERMISSION
        case BadRequestError():
            status = Exit.USAGE
        case _:
            status = Exit.FAILED
    return {"event": "error", "exit": status, "message": str(error)}


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "unknown"


def _check_offered(offer: Offer, verb: Verb, args: Message, peer: Peer) -> None:
    """Raises `PermissionDeniedError`."""
    if offer.uid is not None and peer.uid != offer.uid:
        raise PermissionDeniedError(f"this socket answers uid {offer.uid} alone, not {peer}")
    if peer.is_engine:
        raise PermissionDeniedError(f"{peer} is an engine: none may ask the supervisor")
    if verb not in offer.verbs:
        raise PermissionDeniedError(f"this socket does not take {verb}: appliance {verb}")
    if offer.on_request and (more := sorted(args.keys() - _ON_REQUEST)):
        raise PermissionDeniedError(f"this socket does not take {short(', '.join(more))}")


def _by(args: Message, peer: Peer, offer: Offer) -> str:
    """Who asks; through the gateway also on whose behalf."""
    behalf = args.get("on_behalf")
    return (
        f"{short(behalf)} as {peer}" if offer.on_request and isinstance(behalf, str) else str(peer)
    )


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_FIRST_LINE_TIMEOUT_S):
            return await reader.readline()
    except ValueError as error:
        raise BadRequestError(
            f"the request is too long: {MAX_REQUEST_BYTES} bytes are the most"
        ) from error


def _parsed(line: bytes) -> Message:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRequestError("the request is not one line of JSON") from error
    if not isinstance(request, dict):
        raise BadRequestError("the request is not a JSON object")
    return request


def _common_protocol(request: Message) -> int:
    offered: Any = request.get("protocol")
    try:
        lowest, highest = int(offered["min"]), int(offered["max"])
    except (TypeError, KeyError, ValueError, OverflowError) as error:  # int(Infinity)
        raise BadRequestError("the request names no protocol versions") from error
    common = min(highest, PROTOCOL_MAX)
    if common < max(lowest, PROTOCOL_MIN):
        theirs = str(request.get("version", "unknown"))[:20]
        raise BadRequestError(
            f"this command is appliance {theirs}, the supervisor {appliance.__version__}, and they"
            " share no protocol: sudo systemctl restart appliance-supervisor"
        )
    return common


def _verb(request: Message) -> tuple[Verb, Message]:
    args = request.get("args", {})
    try:
        verb = Verb(str(request.get("verb")))
    except ValueError as error:
        known = difflib.get_close_matches(str(request.get("verb")), list(Verb), 1)
        hint = f'; did you mean "{known[0]}"?' if known else ""
        raise BadRequestError(f"the supervisor does not know this verb{hint}") from error
    if not isinstance(args, dict):
        raise BadRequestError("args is not an object")
    return verb, args


def _name(args: Message) -> str:
    name = args.get("name")
    if not isinstance(name, str):
        raise BadRequestError("name is missing")
    return name


def _names(args: Message) -> tuple[str, ...]:
    names = args.get("names") or []
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
        raise BadRequestError("names is not a list of names")
    return tuple(dict.fromkeys(names))


def _operation(args: Message) -> int | None:
    number = args.get("operation")
    if number is None or (type(number) is int and 0 <= number <= _MOST_OPERATIONS):
        return number
    raise BadRequestError("operation is not the number of one")


def _command(args: Message) -> str:
    command = args.get("command")
    if not isinstance(command, str) or not command:
        raise BadRequestError("command is missing")
    return short(command)


def _claim(args: Message) -> Claim:
    gpus = args.get("gpus")
    if gpus == "all":
        return claim_on("all")
    indexes = range(_MOST_GPUS)
    if not isinstance(gpus, list) or not all(type(n) is int and n in indexes for n in gpus):
        raise BadRequestError('gpus is neither "all" nor a list of indexes')
    return claim_on(gpus)


def _mark(args: Message) -> Mark:
    try:
        return Mark(str(args.get("mark")))
    except ValueError as error:
        raise BadRequestError(f"a mark is one of {', '.join(Mark)}") from error


def _seconds(args: Message, key: str) -> float | None:
    value = args.get(key)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value < _MOST_SECONDS:
        raise BadRequestError(f"{key} is not a number of seconds")
    return float(value)
