"""Find an operation again after the supervisor died under the conversation about it.

systemd starts the supervisor again and it goes on with the operation, so the command that
follows it does the same.
"""

import time
from typing import Final

from appliance.cli.control_client import GREETING_S, Conversation
from appliance.cli.failures import UnreachableError
from appliance.protocol.control import Verb
from appliance.protocol.json_fields import Json, number_in, text_in

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
            return _attached(path, int(operation))
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)


def _attached(path: str, operation: int) -> Conversation | Json:
    conversation = Conversation(path, Verb.ATTACH, {"operation": operation})
    event = conversation.next_event(GREETING_S) or {}
    if number_in(event, "operation") == operation:
        if text_in(event, "event") == "accepted":
            return conversation
        if text_in(event, "event") == "result":
            conversation.close()
            return event
    conversation.close()
    raise UnreachableError
