"""Find an operation again after the supervisor died under the conversation about it.

systemd starts the supervisor again and it goes on with the operation, so the command that
follows it does the same.
"""

import time
from typing import Final

from appliance.domain.operations import Kind, Outcome
from appliance.domain.protocol import Exit, Verb
from appliance.surfaces.cli.client import GREETING_S, Conversation, ask
from appliance.surfaces.cli.failure import UnreachableError
from appliance.surfaces.cli.reading import Json, number_in, object_in, objects_in, text_in

PATIENCE_S: Final = 15.0
"""For systemd to start the supervisor again."""
_PAUSE_S: Final = 0.1


def find_again(path: str, operation: float, patience_s: float) -> Conversation | Json:
    """A new conversation about `operation`, or its closing event when it is over already.

    Raises:
        UnreachableError: the supervisor is not back in time, or knows nothing of it.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return _attached(path, operation) or _recorded(path, operation)
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)


def _attached(path: str, operation: float) -> Conversation | None:
    conversation = Conversation(path, Verb.ATTACH, {})
    event = conversation.next_event(GREETING_S) or {}
    if text_in(event, "event") == "accepted" and number_in(event, "operation") == operation:
        return conversation
    conversation.close()
    return None


def _recorded(path: str, operation: float) -> Json:
    status = object_in(ask(path, Verb.STATUS), "status")
    last = object_in(status, "last_operation")
    if number_in(last, "id") != operation:
        raise UnreachableError
    return {**last, "event": "result", "exit": int(_exit(last, status))}


def _exit(last: Json, status: Json) -> Exit:
    outcome = text_in(last, "outcome")
    serving = any(text_in(row, "state") == "serving" for row in objects_in(status, "profiles"))
    if outcome == Outcome.DONE:
        return Exit.OK
    if outcome == Outcome.ROLLED_BACK:
        return Exit.RESTORED
    if (
        outcome == Outcome.FAILED
        and text_in(last, "kind") in {Kind.SWITCH, Kind.RUN}
        and not serving
    ):
        return Exit.NOT_RESTORED
    return Exit.FAILED
