"""Operation from its request to its end: events followed, shown as they come, and concluded in sentences and a status.

A supervisor that dies during the operation is started again by systemd and goes on with it, so the
follower finds the operation again over a new connection.
"""

from __future__ import annotations

import time

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError, TimedOutError
from appliance.cli.progress_lines import FRAME_S, Progress, cancel_heading, heading, progress_for
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.model.amounts import duration, parts_text
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
from appliance.wire.conversation import EXIT_STATUSES, GREETING_S, ErrorEvent, ResultEvent
from appliance.wire.json_values import Json, number_in, object_in, objects_in, text_in, texts_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
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
        """Event with the operation's number; None: not received yet."""
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


_TIMED: Final = frozenset({"switch", "start", "restart"})


def exit_status(event: ClosingEvent) -> int:
    """Return the exit status of the command after a closing event."""
    return EXIT_STATUSES[event.kind] if isinstance(event, ErrorEvent) else event.exit


def conclude(event: ClosingEvent, streams: Streams) -> int:
    """Print how a request ended and return the exit status."""
    status = exit_status(event)
    ended = event if isinstance(event, EndedEvent) else None
    message = event.message or ("" if isinstance(event, ErrorEvent) else event.outcome)
    if status == Exit.OK:
        hints = "" if ended is None else f"{_in_time(ended)}{_until(ended)}"
        streams.out.line(f"{message}{hints}")
        return status
    streams.err.line(message)
    if ended is not None:
        for line in ended.log:
            streams.err.line(f"    {line}")
        if ended.restored:
            verb = "serves" if len(ended.restored) == 1 else "serve"
            streams.err.line(f"restored: {joined(ended.restored)} {verb} again")
    return status


def _until(event: EndedEvent) -> str:
    """Return when a hold ends by itself, by this machine's clock; empty: it has no end."""
    ends = number_in(event.hold or {}, "until_unix_s")
    if ends is None:
        return ""
    today = time.strftime("%x") == time.strftime("%x", time.localtime(ends))
    when = time.strftime("%H:%M" if today else "%a %d %b %H:%M", time.localtime(ends))
    return f"; the hold ends by itself at {when}"


def _in_time(event: EndedEvent) -> str:
    """Return how long it took until a profile served; empty if quick, or if the command waited."""
    timed = event.kind in _TIMED and event.outcome == "done"
    return f" in {duration(event.ms / 1000)}" if event.ms and timed and event.target else ""


_PARTS = ("weights", "cache", "state", "compute", "checkpoints")


def need_lines(estimate: Json) -> Iterator[tuple[str, str]]:
    """Return pairs of a label and a text: the parts in each place, now and with a setting changed.

    Args:
        estimate: As `appliance.switch.need.EstimateRow`; empty: there is none.
    """
    if not estimate:
        return
    yield from _labelled("parts", estimate)
    for one in objects_in(estimate, "alternatives"):
        yield from _labelled(text_in(one, "setting"), one)


def _labelled(label: str, placed: Json) -> Iterator[tuple[str, str]]:
    for count, line in enumerate(_places(placed)):
        yield ("" if count else label), line


def _places(placed: Json) -> Iterator[str]:
    gpus = object_in(placed, "gpus")
    shown = [(f"GPU {index}", object_in(gpus, index)) for index in gpus]
    together = [("GPUs", object_in(placed, "vram"))]
    for name, parts in (*(shown or together), ("RAM", object_in(placed, "ram"))):
        counts = {part: int(number_in(parts, f"{part}_bytes") or 0) for part in _PARTS}
        if any(counts.values()):
            yield f"{name} {parts_text(counts)}"


_LEVELS = {"ok": ("✓", Style.GREEN), "warn": ("⚠", Style.YELLOW), "refuse": ("✗", Style.RED)}


def show_operation(
    conversation: Conversation[ControlEvent], path: str, arguments: Arguments, streams: Streams
) -> int:
    """Show what the supervisor answers, and return the exit status.

    Args:
        conversation: The request, which was sent.
        path: The control socket, to find the operation again on.
        arguments: Those of the verb.
        streams: For events, progress and the end.
    """
    no_wait = getattr(arguments, "no_wait", False)
    follower = OperationFollower(
        conversation,
        path,
        progress=progress_for(
            streams.err,
            silent=arguments.json or no_wait,
            heading=cancel_heading if arguments.verb == "cancel" else heading,
        ),
        raw=streams.out if arguments.json else None,
        timeout_s=getattr(arguments, "timeout_s", None),
    )
    closing = follower.follow(until_accepted=no_wait)
    if closing is not None:
        return _ended(closing, arguments, streams)
    if not arguments.json:
        streams.out.line(f"{follower.what()} has begun: appliance wait follows it")
    return Exit.OK


def _ended(closing: ClosingEvent, arguments: Arguments, streams: Streams) -> int:
    if arguments.json:
        return exit_status(closing)
    if isinstance(closing, ResultEvent) and "plan" in closing.details:
        for line in plan_lines(closing, streams.out):
            streams.out.line(line)
        return exit_status(closing)
    return conclude(closing, streams)


def plan_lines(closing: ResultEvent, out: Terminal) -> Iterable[str]:
    """Return what a rehearsed operation would do, and what its preflight finds."""
    plan = object_in(closing.details, "plan")
    yield f"would stop   {joined(texts_in(plan, 'stop'))}"
    yield f"would start  {joined(texts_in(plan, 'start'))}"
    if plan.get("committed_after") is not None:
        yield f"after a boot {joined(texts_in(plan, 'committed_after'))}"
    for finding in objects_in(closing.details, "findings"):
        glyph, style = _LEVELS.get(text_in(finding, "level"), ("·", Style.PLAIN))
        yield f" {out.paint(glyph, style)} {text_in(finding, 'text')}"
    needs = object_in(closing.details, "estimates")
    for name in needs:
        for label, text in need_lines(object_in(needs, name)):
            yield f"   {name} {label}: {text}" if label else f"     {text}"
    yield closing.message
