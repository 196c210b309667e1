"""Process of the notifier: reads its credential, answers the health agent on notify.sock, and leaves when idle.

A file of targets that cannot be read does not keep it from its work: systemd would start it again and
again for the same request. Every request is then answered with what is wrong.
"""

import logging
import os
import socket
import sys
from asyncio import FIRST_COMPLETED, create_task, wait
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Final, assert_never

from appliance.daemon_main import ToldToEndError, run_daemon, until_told
from appliance.model.alerts import Message, SendOutcome, SendResult
from appliance.model.errors import BadRequestError, UnitError
from appliance.model.names import NOTIFY_SOCKET_UNIT
from appliance.model.paths import TARGETS_FILE
from appliance.model.service_lines import NotifierTally, leaving_line
from appliance.model.targets import NTFY, Target, Targets, TargetStanding, kind_of
from appliance.notifier.ntfy_sender import NtfySender
from appliance.notifier.web_client import WebError, fetch
from appliance.settings.tables import Settings
from appliance.system.apprise_sender import send_by_apprise
from appliance.system.files.regular import read_small_file
from appliance.system.systemd.daemon import Readiness, named_sockets
from appliance.system.targets_file import parse_targets, standing_of
from appliance.system.toml.file import MAX_BYTES, FaultyFileError, fault_lines
from appliance.wire.conversation import ResultEvent
from appliance.wire.helpers import (
    NOTIFY,
    CancelScheduledRequest,
    NotifyEvent,
    NotifyRequest,
    PingRequest,
    ScheduleRequest,
    SendRequest,
    TargetsRequest,
)
from appliance.wire.json_values import Json
from appliance.wire.server import FEW, Peer, serve_conversations
from appliance.wire.typed_json import JsonValueError, from_json

_log = logging.getLogger(__name__)

IDLE_S: Final = 60.0
_CREDENTIAL: Final = "targets"
"""Name in LoadCredential= of the unit."""
_NO_TARGET: Final = SendResult(outcome=SendOutcome.REFUSED, text="there is no such target")
_NOT_NTFY: Final = SendResult(
    outcome=SendOutcome.REFUSED, text="only ntfy keeps scheduled messages"
)
_NO_HEARTBEAT: Final = SendResult(outcome=SendOutcome.REFUSED, text="no heartbeat_url is set")


class NotifyVerbs:
    """Server of the health agent's requests.

    Args:
        targets: Content of the file of the targets.
        trouble: Why there are no targets, in a phrase; empty: the file is right.
        on_line: Called with the line that `systemctl status` shows, at the start and after each message.
    """

    def __init__(
        self, targets: Targets, trouble: str = "", on_line: Callable[[str], None] | None = None
    ) -> None:
        self._targets: Mapping[str, Target] = {one.name: one for one in targets.targets}
        self._ntfy = {
            one.name: NtfySender(one) for one in targets.targets if kind_of(one.url) == NTFY
        }
        self._heartbeat_url = targets.heartbeat_url
        self._trouble = trouble
        self._troubles: dict[str, str] = {}
        """Phrases about the last try of each target that failed."""
        self._tally = NotifierTally(targets=len(self._targets), fault=trouble)
        self._on_line = on_line
        self._show_line()

    async def serve(self, listener: socket.socket, *, idle_s: float | None = None) -> None:
        """Answer until no request has come for `idle_s`; None: for ever."""
        await serve_conversations(
            NOTIFY,
            listener,
            lambda verb, args, _: NOTIFY.decode_request(verb, args),
            self._answer,
            bounds=FEW,
            idle_s=idle_s,
        )

    async def _answer(
        self, request: NotifyRequest, _peer: Peer
    ) -> AsyncGenerator[NotifyEvent, None]:
        match request:
            case TargetsRequest():
                rows = [asdict(self._standing(one)) for one in self._targets.values()]
                yield ResultEvent(details={"targets": rows, "trouble": self._trouble})
                return
            case SendRequest(target, message):
                result = await self._send(target, _message(message))
            case ScheduleRequest(target, message, delay_s):
                result = await self._schedule(target, _message(message), delay_s)
            case CancelScheduledRequest(target, sequence_id):
                ntfy = self._ntfy.get(target)
                result = self._missing(target) if ntfy is None else await ntfy.cancel(sequence_id)
            case PingRequest():
                result = await self._ping()
            case _:
                assert_never(request)
        yield ResultEvent(
            outcome=result.outcome,
            details={"text": result.text, "retry_after_s": result.retry_after_s},
        )

    def _standing(self, target: Target) -> TargetStanding:
        ntfy = self._ntfy.get(target.name)
        return replace(
            standing_of(target),
            scheduled=False if ntfy is None else ntfy.scheduled,
            trouble=self._troubles.get(target.name, ""),
        )

    async def _send(self, name: str, message: Message) -> SendResult:
        target = self._targets.get(name)
        if target is None:
            return self._missing(name)
        if ntfy := self._ntfy.get(name):
            result = await ntfy.send(message)
        else:
            result = await send_by_apprise(target.url, message)
        self._note(name, result)
        return result

    async def _schedule(self, name: str, message: Message, delay_s: float) -> SendResult:
        ntfy = self._ntfy.get(name)
        return self._missing(name) if ntfy is None else await ntfy.schedule(message, delay_s)

    def _missing(self, name: str) -> SendResult:
        """Return the result for a target that does not exist, or cannot do what is requested."""
        if self._trouble:
            return SendResult(outcome=SendOutcome.RETRY, text=self._trouble)
        return _NOT_NTFY if name in self._targets else _NO_TARGET

    async def _ping(self) -> SendResult:
        """Send a heartbeat to the outside watch, of whose answer the status alone counts."""
        if not self._heartbeat_url:
            return self._missing("") if self._trouble else _NO_HEARTBEAT
        try:
            answer = await fetch("GET", self._heartbeat_url)
        except WebError as error:
            return SendResult(outcome=SendOutcome.RETRY, text=str(error))
        if answer.status in range(200, 300):
            return SendResult(outcome=SendOutcome.SENT)
        return SendResult(
            outcome=SendOutcome.RETRY,
            text=f"the outside watch answers {answer.status}",
            retry_after_s=answer.retry_after_s,
        )

    def _note(self, name: str, result: SendResult) -> None:
        is_sent = result.outcome is SendOutcome.SENT
        self._troubles[name] = "" if is_sent else result.text
        self._tally.count(is_sent=is_sent)
        self._show_line()
        _log.log(
            logging.DEBUG if is_sent else logging.WARNING,
            "%s: %s%s",
            name,
            result.outcome,
            f": {result.text}" if result.text else "",
        )

    def _show_line(self) -> None:
        if self._on_line is not None:
            self._on_line(self._tally.line(self._troubles))


def _message(document: Json) -> Message:
    try:
        return from_json(Message, document)
    except JsonValueError as error:
        raise BadRequestError(f"message: {error}") from error


async def run(_settings: Settings, *, idle_s: float = IDLE_S) -> None:
    """Answer until idle, SIGTERM or SIGINT. Raises `UnitError`."""
    listener = named_sockets().get(NOTIFY_SOCKET_UNIT)
    if listener is None:
        raise UnitError(f"no socket was passed: systemctl start {NOTIFY_SOCKET_UNIT}")
    targets, trouble = read_credential()
    if trouble:
        _log.error("%s", trouble)
    readiness = Readiness()
    verbs = NotifyVerbs(targets, trouble, readiness.tell)
    served = create_task(verbs.serve(listener, idle_s=idle_s))
    ended = create_task(until_told(readiness))
    readiness.ready()
    done, pending = await wait({served, ended}, return_when=FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await wait({served, ended})
    try:
        for task in done:
            task.result()
        readiness.tell(leaving_line(idle_s))
    except ToldToEndError:
        _log.debug("the notifier ends")


def read_credential() -> tuple[Targets, str]:
    """Return the targets that systemd passed, and what is wrong with them; no value of theirs."""
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / _CREDENTIAL
    try:
        return parse_targets(read_small_file(path, MAX_BYTES)), ""
    except FaultyFileError as error:
        return Targets(), fault_lines(TARGETS_FILE, error.faults).replace("\n", "; ")
    except OSError as error:
        return Targets(), f"no targets were passed: {error.strerror}"


def main() -> int:
    """Run the notifier; returns its exit status. One argument is the seconds after which it leaves."""
    idle_s = float(sys.argv[1]) if len(sys.argv) > 1 else IDLE_S
    return run_daemon(partial(run, idle_s=idle_s))
