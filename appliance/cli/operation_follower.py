"""Follow one operation from the request to its closing event.

A supervisor that dies during the operation is started again by systemd and goes on with it, so the
follower finds the operation again over a new connection.
"""

from __future__ import annotations

import time

from appliance.cli.failures import CliError, TimedOutError
from appliance.cli.progress_lines import FRAME_S, Progress
from appliance.cli.terminal import Terminal
from appliance.model.amounts import duration
from appliance.model.errors import UnreachableError
from appliance.model.wording import joined
from appliance.wire.client import Conversation
from appliance.wire.control import Exit
from appliance.wire.control_events import (
    AcceptedEvent,
    ClosingEvent,
    ControlEvent,
    EndedEvent,
    PhaseEvent,
    TicketEvent,
)
from appliance.wire.control_requests import CONTROL, AttachRequest
from appliance.wire.conversation import GREETING_S

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_PATIENCE_S: Final = 15.0
"""Time for systemd to start the supervisor again."""
_PAUSE_S: Final = 0.1
_HOW_TO_GO_ON: Final = "appliance wait follows it, appliance cancel ends it"


class OperationFollower:
    """Follower that shows the events of one operation as they come.

    Args:
        conversation: The request for the operation.
        path: The control socket, to find the operation again on.
        progress: Shows the events.
        raw: Output for every event as it came, tickets excepted; None: none.
        timeout_s: How long `follow` waits in all; None: for ever.
    """

    def __init__(
        self,
        conversation: Conversation[ControlEvent],
        path: str,
        *,
        progress: Progress,
        raw: Terminal | None,
        timeout_s: float | None = None,
    ) -> None:
        self.accepted: AcceptedEvent | None = None
        """Event that tells which operation this is; None: not received yet."""
        self.closing: ClosingEvent | None = None
        """Last event; None: not received yet."""
        self.releasing = False
        """Whether all conflicting profiles have stopped."""
        self.token = ""
        """Token of a run for its launcher; never shown."""
        self.progress = progress
        self.raw = raw
        self._conversation = conversation
        self._path = path
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def fileno(self) -> int:
        """Return the descriptor for select."""
        return self._conversation.fileno()

    def close(self) -> None:
        """Stop listening; the operation goes on."""
        self.progress.end()
        self._conversation.close()

    def follow(self, *, until_accepted: bool = False) -> ClosingEvent | None:
        """Take events up to the closing one; None when `until_accepted` and the operation runs.

        Raises:
            TimedOutError: the time-out passed; the operation continues.
            CliError: Ctrl-C; the operation continues.
            UnreachableError: the supervisor went away and did not come back.
        """
        try:
            while self.closing is None and not (until_accepted and self.accepted):
                self._take_one(self._patience_s())
        except KeyboardInterrupt as interrupt:
            raise CliError(self._detached(), Exit.DETACHED) from interrupt
        except UnreachableError as error:
            if self.accepted is None:
                raise
            raise UnreachableError(
                f"the supervisor went away during {self.what()}; when it is back it finishes "
                "or rolls back: appliance wait"
            ) from error
        finally:
            self.close()
        return self.closing

    def take(self, timeout_s: float) -> None:
        """Show the next event, if it comes in time, and those that came with it.

        Raises:
            UnreachableError: the supervisor went away and did not come back.
        """
        self._take_one(timeout_s)
        while self.closing is None and self._conversation.pending:
            self._take_one(timeout_s)

    def what(self) -> str:
        """Return the operation as text."""
        if self.accepted is None:
            return "what was asked for"
        kind, names = self.accepted.kind, joined(self.accepted.target, nothing="")
        return f"switch to {names}" if kind == "switch" else f"{kind} {names}".rstrip()

    def _take_one(self, timeout_s: float) -> None:
        try:
            event = self._conversation.next_event(timeout_s)
        except UnreachableError as error:
            if self.accepted is None:
                raise
            self._find_again(self.accepted.operation, error)
            return
        if event is None:
            self.progress.tick()
        else:
            self._show(event)

    def _show(self, event: ControlEvent) -> None:
        if isinstance(event, TicketEvent):
            self.token = event.token
            return
        if self.raw is not None:
            self.raw.verbatim(self._conversation.last_line)
        if isinstance(event, ClosingEvent):
            self.closing = event
        elif isinstance(event, AcceptedEvent):
            if self.accepted is None:  # a supervisor that was restarted sends the token again
                self.accepted = event
                self.progress.show(event)
        elif isinstance(event, PhaseEvent):
            is_release = event.phase == "release" and not event.rolling_back
            self.releasing = self.releasing or is_release
            self.progress.show(event)

    def _find_again(self, operation: int, error: UnreachableError) -> None:
        self._conversation.close()
        left_s = _PATIENCE_S if self._deadline is None else self._deadline - time.monotonic()
        try:
            self._conversation, event = find_again(self._path, operation, min(left_s, _PATIENCE_S))
        except UnreachableError as again:
            raise again from error
        if isinstance(event, EndedEvent):
            self._show(event)

    def _patience_s(self) -> float:
        """Return how long to wait for one event: at most one frame, so that the spinner turns."""
        if self._deadline is None or self._timeout_s is None:
            return FRAME_S
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimedOutError(
                f"{self.what()} continues after {duration(self._timeout_s)}: {_HOW_TO_GO_ON}"
            )
        return min(FRAME_S, left_s)

    def _detached(self) -> str:
        if self.accepted is None:
            return "interrupted before the supervisor answered: appliance status"
        return f"detached; {self.what()} continues: {_HOW_TO_GO_ON}"


def find_again(
    path: str, operation: int, patience_s: float
) -> tuple[Conversation[ControlEvent], AcceptedEvent | EndedEvent]:
    """Return a new conversation about `operation` and its first event; the last one if over.

    Raises:
        UnreachableError: the supervisor is not back in time, or does not know the operation.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            return _attached(path, operation)
        except UnreachableError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_PAUSE_S)


def _attached(
    path: str, operation: int
) -> tuple[Conversation[ControlEvent], AcceptedEvent | EndedEvent]:
    conversation = Conversation(CONTROL, path, AttachRequest(operation))
    event = conversation.next_event(GREETING_S)
    if isinstance(event, AcceptedEvent | EndedEvent) and event.operation == operation:
        return conversation, event
    conversation.close()
    raise UnreachableError(CONTROL.not_running)
