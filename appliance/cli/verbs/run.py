"""Verb `appliance run`: a command in place of the models, in the foreground."""

import os
import select
from collections.abc import Sequence
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.conclusion import exit_status
from appliance.cli.failures import CliError, status_of
from appliance.cli.operation_follower import OperationFollower
from appliance.cli.progress_lines import FRAME_S, progress_for
from appliance.cli.run_caller import SOCKET, HungUp, Launched, check_program, passing_on
from appliance.cli.terminal import Streams, Terminal
from appliance.model.errors import UnreachableError
from appliance.wire.client import Conversation
from appliance.wire.control import Exit
from appliance.wire.control_events import PhaseEvent
from appliance.wire.control_requests import CONTROL, CancelRequest, RunRequest
from appliance.wire.json_values import number_in, text_in

_KNOCK_S: Final = 0.02
"""Pause between two attempts to connect to the launcher."""
_SIGNALLED: Final = 128
_HANGUP: Final = 129


def run(arguments: Arguments, streams: Streams) -> int:
    """Run the command and return its exit status."""
    words = arguments.command
    command = words[1:] if words[:1] == ["--"] else words
    if not command:
        raise CliError("no command: appliance run -- COMMAND", Exit.USAGE)
    check_program(command[0])
    path = places_of(arguments).control_socket
    gpus = arguments.gpus
    request = RunRequest(
        command=os.path.basename(command[0]) or command[0],  # noqa: PTH119 - 7 ms
        gpus=gpus if gpus == "all" else tuple(gpus),
        drain_s=arguments.drain_s,
    )
    follower = OperationFollower(
        Conversation(CONTROL, path, request),
        path,
        progress=progress_for(streams.err, silent=arguments.json),
        raw=streams.err if arguments.json else None,
    )
    try:
        foreground = Foreground(follower, path, streams.err, as_json=arguments.json)
        return foreground.run(command, gpus)
    finally:
        follower.close()


class Foreground:
    """Foreground command, from the request for its claim until the models serve again.

    Args:
        follower: Follower of the operation.
        path: The control socket.
        err: Stream for all output of ours: standard output is the command's.
        as_json: Print events there, and nothing else.
    """

    def __init__(
        self, follower: OperationFollower, path: str, err: Terminal, *, as_json: bool
    ) -> None:
        self._follower = follower
        self._path = path
        self._err = err
        self._as_json = as_json
        self._launched: Launched | None = None

    def run(self, command: Sequence[str], gpus: str | Sequence[int]) -> int:
        """Run the command to its end, and return the exit status."""
        try:
            launched = self._begin(command, gpus)
            if launched is None:
                return self._not_begun()
            self._follower.progress.end()
            with passing_on(launched):
                status = _attend(launched)
        except KeyboardInterrupt:
            return self._cancel()
        except HungUp:
            return _HANGUP
        finally:
            self._let_go()
        if self._err.interactive and not self._as_json:
            self._err.line()  # keep an unfinished last line of the command
        try:
            ended = self._conclude(status)
            # A command whose end was not reported may have failed.
            return int(Exit.FAILED) if status is None and ended == Exit.OK else ended
        except KeyboardInterrupt:
            self._say("detached; what served before comes back: appliance wait follows it")
            return Exit.DETACHED if status is None else status
        except UnreachableError as error:
            self._say(f"{error} (what served before comes back when it runs)")
            return status or status_of(error)

    def _begin(self, command: Sequence[str], gpus: str | Sequence[int]) -> Launched | None:
        """Wait until the launcher has the claim and waits for `go`; None: the command is not run."""
        follower = self._follower
        while follower.closing is None:
            if self._launched is not None:
                if self._is_ready(self._launched):
                    return self._launched
                continue
            follower.take(_KNOCK_S if follower.releasing else FRAME_S)
            if follower.releasing and follower.closing is None:
                self._launched = Launched.connect(os.environ.get("APPLIANCE_RUN_SOCKET") or SOCKET)
                if self._launched is not None:
                    self._launched.ask(command, gpus, follower.token)
        return None

    def _is_ready(self, launched: Launched) -> bool:
        """Check launcher and operation once. A launcher that has ended has told the supervisor why."""
        follower = self._follower
        sources: list[OperationFollower | Launched] = (
            [follower] if launched.gone else [follower, launched]
        )
        ready, _, _ = select.select(sources, [], [], FRAME_S)
        if follower in ready:
            follower.take(_KNOCK_S)
        elif not ready:
            follower.progress.tick()
        if launched not in ready:
            return False
        told = list(launched.events())
        for event in told:
            if text_in(event, "event") == "progress":
                follower.progress.show(_waiting(text_in(event, "text")))
        return any(text_in(event, "event") == "ready" for event in told)

    def _cancel(self) -> int:
        """Cancel the operation after Ctrl-C before the command began."""
        self._let_go()
        self._follower.progress.end()
        self._say("cancelled: what served before comes back")
        conversation = Conversation(CONTROL, self._path, CancelRequest())
        follower = OperationFollower(
            conversation, self._path, progress=self._follower.progress, raw=self._follower.raw
        )
        while follower.closing is None:
            follower.take(FRAME_S)
        follower.close()
        self._say(follower.closing.message)
        return int(Exit.DETACHED)

    def _say(self, text: str) -> None:
        """Print a sentence, unless --json is given, whose last event has it."""
        if not self._as_json:
            self._err.line(text)

    def _let_go(self) -> None:
        if self._launched is not None:
            self._launched.close()

    def _conclude(self, status: int | None) -> int:
        """Follow the operation to its end. The command's failure outranks that of the roll-back."""
        follower = self._follower
        while follower.closing is None:
            follower.take(FRAME_S)
        follower.progress.end()
        self._say(follower.closing.message)
        return status or exit_status(follower.closing)

    def _not_begun(self) -> int:
        """Return the exit status of a command that was never run, however the operation ended."""
        status = self._conclude(None)
        if status == Exit.OK:
            self._say("the command was not run")
        return status or int(Exit.RESTORED)


def _attend(launched: Launched) -> int | None:
    """Wait until the command has ended; None: no report of how it ended."""
    launched.go()
    while not launched.gone:
        select.select([launched], [], [])
        for event in launched.events():
            if text_in(event, "event") == "ended":
                killed_by = number_in(event, "signal")
                ended = number_in(event, "exit") or 0.0
                return int(ended if killed_by is None else _SIGNALLED + killed_by)
    return None


def _waiting(text: str) -> PhaseEvent:
    """Return the phase event for what the launcher waits for."""
    return PhaseEvent(phase="release", state="progress", text=text)
