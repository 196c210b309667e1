"""The control socket: NDJSON requests from operators to the supervisor (domain.protocol).

Who may connect is the socket's mode (0660, group appliance-operators). Who did is logged
from the kernel's credentials, never from what a client says about itself.
"""

import asyncio
import dataclasses
import difflib
import json
import logging
import os
import pwd
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import appliance
from appliance.domain.claims import NOTHING, Claim, claim_on
from appliance.domain.errors import ApplianceError, PermissionDeniedError
from appliance.domain.events import Accepted, Ended, Event, PhaseChanged
from appliance.domain.operations import FOREVER, Goal, HoldUntil, Kind, Outcome
from appliance.domain.profile import Mark
from appliance.domain.protocol import MAX_LINE_BYTES, PROTOCOL_MAX, PROTOCOL_MIN, Exit, Verb
from appliance.planning.admission import Level
from appliance.planning.transaction import CANCELLED
from appliance.planning.wording import joined, short
from appliance.services.supervisor import (
    BusyError,
    Request,
    Running,
    Supervisor,
    UnknownProfileError,
)
from appliance.surfaces.key_desk import KeyDesk, Keys
from appliance.surfaces.requests import BadRequestError

_log = logging.getLogger(__name__)

_FIRST_LINE_TIMEOUT_S: Final = 10.0
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
_MOST_GPUS: Final = 256
_MOST_OPERATIONS: Final = 2**63 - 1
"""As far as SQLite counts."""

Message = Mapping[str, Any]


class ControlServer:
    """Serves one supervisor on an inherited or bound listening socket.

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

    async def serve(self, listener: socket.socket) -> None:
        """Answer for ever. The socket stays open for the next process (it is systemd's)."""
        keep: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        server = await asyncio.start_unix_server(
            self._converse, sock=listener, limit=MAX_LINE_BYTES, **keep
        )
        async with server:
            await server.serve_forever()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async for message in self._answers(reader, _peer(writer)):
                writer.write(json.dumps(message).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, asyncio.LimitOverrunError, TimeoutError):
            _log.debug("a client left")
        finally:
            writer.close()

    async def _answers(self, reader: asyncio.StreamReader, peer: str) -> AsyncIterator[Message]:
        try:
            request = _parsed(await _first_line(reader))
            yield {
                "event": "hello",
                "protocol": _common_protocol(request),
                "version": appliance.__version__,
            }
            verb, args = _verb(request)
            async for message in self._do(verb, args, peer):
                yield message
        except ApplianceError as error:
            yield _error(error)

    async def _do(self, verb: Verb, args: Message, peer: str) -> AsyncIterator[Message]:
        if verb in _KINDS:
            async for message in self._operate(_KINDS[verb], args, peer):
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

    async def _operate(self, kind: Kind, args: Message, peer: str) -> AsyncIterator[Message]:
        request = Request(
            kind=kind,
            names=(_name(args),) if kind is Kind.SWITCH else _names(args),
            command=_command(args) if kind is Kind.RUN else "",
            claim=_claim(args) if kind is Kind.RUN else NOTHING,
            by=_by(args, peer),
            rollback=bool(args.get("rollback", True)),
            drain_s=_seconds(args, "drain_s"),
            hold_until=self._hold_until(args) if kind is Kind.HOLD else None,
        )
        if args.get("dry_run"):
            yield await self._rehearsed(request)
            return
        async for message in _story(await self._supervisor.submit(request)):
            yield message

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

    async def _rehearsed(self, request: Request) -> Message:
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


def _peer(writer: asyncio.StreamWriter) -> str:
    """Who is at the other end: "ana (uid 1000, pid 4121)"."""
    peer = writer.get_extra_info("socket")
    raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", raw)
    return f"{_user(uid)} (uid {uid}, pid {pid})"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return "unknown"


def _by(args: Message, peer: str) -> str:
    """Who asks. On whose behalf is believed of our own user alone: the gateway asks for others."""
    behalf = args.get("on_behalf")
    if isinstance(behalf, str) and peer.startswith(f"{_user(os.geteuid())} (uid {os.geteuid()},"):
        return f"{short(behalf)} as {peer}"
    return peer


async def _first_line(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_FIRST_LINE_TIMEOUT_S):
            return await reader.readline()
    except ValueError as error:
        raise BadRequestError(
            f"the request is too long: {MAX_LINE_BYTES} bytes are the most"
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
