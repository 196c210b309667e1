"""Verb `appliance wait`: for the running operation, or for a state of the box."""

import contextlib
import time
from collections.abc import Sequence
from typing import Final, Literal

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of, read_status, row_of
from appliance.cli.failures import (
    CliError,
    TimedOutError,
)
from appliance.cli.operation_follower import show_operation
from appliance.cli.paths import Places
from appliance.cli.terminal import Streams
from appliance.model.amounts import duration
from appliance.model.errors import PermissionDeniedError, UnreachableError
from appliance.model.status import ProfileRow, StatusDocument
from appliance.model.wording import joined
from appliance.wire.client import Conversation
from appliance.wire.control import Exit
from appliance.wire.control_requests import CONTROL, AttachRequest

_LOOK_S: Final = 0.25
Answer = Literal["yes", "not yet", "never"]
_ORDER: Final = ("yes", "not yet", "never")


def run(arguments: Arguments, streams: Streams) -> int:
    """Wait, and return the operation's exit status, or 0 once the state is reached."""
    places = places_of(arguments)
    if not arguments.names and arguments.state is None:
        # Without the supervisor operations are unknown: wait until the verdict is good.
        with contextlib.suppress(UnreachableError, PermissionDeniedError):
            return _follow(places, arguments, streams)
    state = arguments.state or "serving"
    return _poll(places, arguments, streams, state=state)


def _follow(places: Places, arguments: Arguments, streams: Streams) -> int:
    path = places.control_socket
    return show_operation(Conversation(CONTROL, path, AttachRequest()), path, arguments, streams)


def _poll(places: Places, arguments: Arguments, streams: Streams, *, state: str) -> int:
    began = time.monotonic()
    while True:
        document = read_status(places)
        answer, sentence = _answer(document, arguments.names, state)
        if answer == "never":
            raise CliError(sentence, Exit.FAILED)
        if answer == "yes":
            _say(sentence, document, arguments, streams)
            return int(Exit.OK)
        waited = time.monotonic() - began
        if arguments.timeout_s is not None and waited >= arguments.timeout_s:
            raise TimedOutError(
                f"{sentence} after {duration(arguments.timeout_s)}: appliance status"
            )
        time.sleep(_LOOK_S)


def _say(sentence: str, document: StatusDocument, arguments: Arguments, streams: Streams) -> None:
    if arguments.json:
        streams.out.document(document, indent=None)
    else:
        streams.out.line(sentence)


def _answer(document: StatusDocument, names: Sequence[str], state: str) -> tuple[Answer, str]:
    if names:
        rows, operation = [row_of(document, name) for name in names], bool(document.operation)
        answers = [_about_one(row, state, operation=operation) for row in rows]
        # The worst of them; where all are there, one sentence about all.
        worst = max(answers, key=lambda answer: _ORDER.index(answer[0]))
        return worst if worst[0] != "yes" else ("yes", "; ".join(text for _, text in answers))
    if document.operation is not None:
        return "not yet", "an operation is still running"
    if state == "idle":
        return "yes", "no operation is running"
    serving = {r.name for r in document.profiles if r.state == "serving"}
    missing = [n for n in document.committed if n not in serving]
    if missing:
        return "not yet", f"{joined(missing)} {_does(missing)} not serve"
    if not serving:
        return "never", "nothing serves and nothing is committed: appliance switch NAME"
    return "yes", f"{joined(sorted(serving))} {_serves(sorted(serving))}"


def _about_one(row: ProfileRow, state: str, *, operation: bool) -> tuple[Answer, str]:
    name, now = row.name, row.state
    if state == "idle":
        stopped = now in {"stopped", "failed", "refused"}
        return ("yes", f"{name} is stopped") if stopped else ("not yet", f"{name} is {now}")
    if now == "serving":
        return "yes", f"{name} is serving"
    if now in {"failed", "refused"} and not operation:
        return "never", f"{name} {now} ({row.note}): appliance logs {name}"
    return "not yet", f"{name} is {now}"


def _does(names: list[str]) -> str:
    return "does" if len(names) == 1 else "do"


def _serves(names: list[str]) -> str:
    return "is serving" if len(names) == 1 else "are serving"
