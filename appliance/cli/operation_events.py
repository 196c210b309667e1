"""An operation's events, taken one at a time by somebody who has other things to look at, too."""

import json

from appliance.cli.control_client import Conversation
from appliance.cli.failures import UnreachableError
from appliance.cli.progress_lines import Progress
from appliance.cli.terminal import Terminal
from appliance.protocol.json_fields import Json, number_in, text_in


class Story:
    """Shows what the supervisor tells; finds the operation again when the supervisor died.

    Args:
        conversation: The request for the operation.
        path: The control socket.
        progress: Shows the events.
        raw: Where every event goes as it came; None: nowhere.
    """

    def __init__(
        self, conversation: Conversation, path: str, *, progress: Progress, raw: Terminal | None
    ) -> None:
        self.closing: Json | None = None
        """The last event, once it is there."""
        self.accepted: Json | None = None
        self.releasing = False
        """What was in the way has ended."""
        self.token = ""
        """Of a run: what its launcher wants to see; shown to nobody."""
        self.progress = progress
        self._conversation = conversation
        self._path = path
        self.raw = raw

    def fileno(self) -> int:
        """For select."""
        return self._conversation.fileno()

    def close(self) -> None:
        """Stop listening; the operation goes on."""
        self.progress.end()
        self._conversation.close()

    def take(self, timeout_s: float) -> None:
        """Show the next event, if it comes in time. Raises `UnreachableError`."""
        try:
            event = self._conversation.next_event(timeout_s)
        except UnreachableError as error:
            self._find_again(error)
            return
        if event is None:
            self.progress.tick()
            return
        self._tell(event, self._conversation.last_line)
        if self._conversation.pending:
            self.take(timeout_s)

    def _tell(self, event: Json, line: str) -> None:
        if text_in(event, "event") == "ticket":
            self.token = text_in(event, "token")
            return
        if self.raw is not None:
            self.raw.line(line)
        kind = text_in(event, "event")
        if kind in {"result", "error"}:
            self.closing = event
        elif kind != "accepted":
            self.releasing = self.releasing or _is_release(event)
            self.progress.show(event)
        elif self.accepted is None:
            self.accepted = event
            self.progress.show(event)

    def _find_again(self, error: UnreachableError) -> None:
        from appliance.cli.operation_search import PATIENCE_S, find_again  # noqa: PLC0415 - rare

        if self.accepted is None:
            raise error
        self._conversation.close()
        found = find_again(self._path, number_in(self.accepted, "operation") or 0.0, PATIENCE_S)
        if isinstance(found, Conversation):
            self._conversation = found
        else:
            self._tell(found, json.dumps(found))


def _is_release(event: Json) -> bool:
    return text_in(event, "phase") == "release" and not event.get("rolling_back")
