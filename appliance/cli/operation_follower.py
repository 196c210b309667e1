"""Follow one operation from the request to its closing event."""

import json
import time
from typing import Final

from appliance.cli.control_client import Conversation, closing_status
from appliance.cli.failures import CliError, TimedOutError, UnreachableError
from appliance.cli.progress_lines import FRAME_S, Progress, SilentProgress, progress_on
from appliance.cli.terminal import Streams
from appliance.planning.wording import duration, joined
from appliance.protocol.control import Exit
from appliance.protocol.json_fields import Json, number_in, object_in, text_in, texts_in


def follower_of(
    path: str, streams: Streams, *, as_json: bool, timeout_s: float | None
) -> "Follower":
    """A follower with the progress that suits the streams."""
    return Follower(
        path,
        progress=SilentProgress() if as_json else progress_on(streams.err),
        streams=streams,
        as_json=as_json,
        timeout_s=timeout_s,
    )


_TIMED: Final = frozenset({"switch", "start", "restart"})
_HOW_TO_GO_ON: Final = "appliance wait follows it, appliance cancel ends it"


class Follower:
    """Shows the events of one conversation as they come.

    Args:
        path: The control socket, to find the operation again on.
        progress: Shows the events.
        streams: For the events themselves, with `as_json`.
        as_json: Pass every event on as it came.
        timeout_s: How long to wait in all; None: for ever.
    """

    def __init__(
        self,
        path: str,
        *,
        progress: Progress,
        streams: Streams,
        as_json: bool,
        timeout_s: float | None,
    ) -> None:
        self.accepted: Json | None = None
        """The event that says which operation this is; None: not yet."""
        self._path = path
        self._progress = progress
        self._streams = streams
        self._as_json = as_json
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def follow(self, conversation: Conversation, *, until_accepted: bool = False) -> Json | None:
        """The closing event; None when `until_accepted` and the operation was accepted.

        Raises:
            TimedOutError: the time-out passed; the operation continues.
            CliError: Ctrl-C; the operation continues.
            UnreachableError: the supervisor went away and did not come back.
        """
        try:
            return self._story(conversation, until_accepted=until_accepted)
        except KeyboardInterrupt as interrupt:
            raise CliError(self._detached(), Exit.DETACHED) from interrupt
        finally:
            self._progress.end()

    def _story(self, conversation: Conversation, *, until_accepted: bool) -> Json | None:
        while True:
            try:
                with conversation:
                    return self._events(conversation, until_accepted=until_accepted)
            except UnreachableError as error:
                if self.accepted is None:
                    raise
                found = self._find_again(self.accepted, error)
            if not isinstance(found, Conversation):
                self._pass_on(json.dumps(found))
                return found
            conversation = found

    def _events(self, conversation: Conversation, *, until_accepted: bool) -> Json | None:
        while True:
            event = conversation.next_event(self._patience_s())
            if event is None:
                self._progress.tick()
                continue
            self._pass_on(conversation.last_line)
            if conversation.closed:
                return event
            if text_in(event, "event") == "accepted":
                if self.accepted is not None:
                    continue  # told again by a supervisor that was restarted
                self.accepted = event
                if until_accepted:
                    return None
            self._progress.show(event)

    def _pass_on(self, line: str) -> None:
        if self._as_json:
            self._streams.out.line(line)

    def _find_again(self, accepted: Json, error: UnreachableError) -> Conversation | Json:
        from appliance.cli.operation_search import PATIENCE_S, find_again  # noqa: PLC0415 - rare

        left = PATIENCE_S if self._deadline is None else self._deadline - time.monotonic()
        operation = number_in(accepted, "operation") or 0.0
        try:
            return find_again(self._path, operation, min(left, PATIENCE_S))
        except UnreachableError:
            raise UnreachableError(
                f"the supervisor went away during {self.what()}; when it is back it finishes "
                "or rolls back: appliance wait"
            ) from error

    def _patience_s(self) -> float:
        """How long to wait for one event: at most a frame, so that the spinner turns."""
        if self._deadline is None or self._timeout_s is None:
            return FRAME_S
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimedOutError(
                f"{self.what()} continues after {duration(self._timeout_s)}: {_HOW_TO_GO_ON}"
            )
        return min(FRAME_S, left)

    def _detached(self) -> str:
        if self.accepted is None:
            return "interrupted before the supervisor answered: appliance status"
        return f"detached; {self.what()} continues: {_HOW_TO_GO_ON}"

    def what(self) -> str:
        """The operation in words."""
        if self.accepted is None:
            return "what was asked for"
        kind = text_in(self.accepted, "kind")
        names = joined(texts_in(self.accepted, "target"), nothing="")
        return f"switch to {names}" if kind == "switch" else f"{kind} {names}".rstrip()


def conclude(event: Json, streams: Streams) -> int:
    """Say how it ended and return the exit status."""
    status = closing_status(event)
    message = text_in(event, "message") or text_in(event, "outcome")
    if status == Exit.OK:
        streams.out.line(f"{message}{_in_time(event)}{_until(event)}")
        return status
    streams.err.line(message)
    for line in texts_in(event, "log"):
        streams.err.line(f"    {line}")
    if restored := texts_in(event, "restored"):
        verb = "serves" if len(restored) == 1 else "serve"
        streams.err.line(f"restored: {joined(restored)} {verb} again")
    return status


def _until(event: Json) -> str:
    """When a hold ends by itself, by this machine's clock."""
    ends = number_in(object_in(event, "hold"), "until_unix_s")
    if ends is None:
        return ""
    today = time.strftime("%x") == time.strftime("%x", time.localtime(ends))
    when = time.strftime("%H:%M" if today else "%a %d %b %H:%M", time.localtime(ends))
    return f"; the hold ends by itself at {when}"


def _in_time(event: Json) -> str:
    """How long it took until something served; anything else is quick or was waited for."""
    spent_ms = number_in(event, "ms")
    timed = text_in(event, "kind") in _TIMED and text_in(event, "outcome") == "done"
    named = texts_in(event, "target")
    return f" in {duration(spent_ms / 1000)}" if spent_ms and timed and named else ""
