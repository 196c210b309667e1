"""Verbs that make a request to the supervisor: switch, start, stop, restart, hold, cancel, mark and uncommit.

`switch -` alternates like ``cd -``: the targets of the newest switch that was done are where the box is, and the
newest other set before it, which that switch stopped or an earlier one served, is where the box was.
"""

from __future__ import annotations

from appliance.cli.arguments import Arguments
from appliance.cli.box import applied_of, places_of
from appliance.cli.failures import CliError
from appliance.cli.paths import Places, watch_names
from appliance.cli.terminal import Streams
from appliance.model.errors import StoreError, UnreachableError
from appliance.model.names import HOLD_UNIT, unit_of
from appliance.wire.client import Conversation, ask
from appliance.wire.control import Exit
from appliance.wire.control_events import MOST_OPERATIONS, OperationsRequest, operations_in
from appliance.wire.control_requests import (
    CONTROL,
    CancelRequest,
    ControlRequest,
    HoldRequest,
    MarkRequest,
    RestartRequest,
    StartRequest,
    StopRequest,
    SwitchRequest,
    UncommitRequest,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from appliance.model.status import RecordedOperation


def run_switch(arguments: Arguments, streams: Streams) -> int:
    """Switch to one profile or to several together, or print what a switch would do."""
    names = list(dict.fromkeys(arguments.names))
    if "-" in names:
        names = previous_profiles(names, places_of(arguments).control_socket)
    request = SwitchRequest.to(
        names,
        dry_run=arguments.dry_run,
        rollback=not arguments.no_rollback,
        drain_s=arguments.drain_s,
    )
    return _operate(request, arguments, streams, _by_hand("start", names))


def run_start(arguments: Arguments, streams: Streams) -> int:
    """Start profiles beside those that run."""
    request = StartRequest(names=tuple(arguments.names))
    return _operate(request, arguments, streams, _by_hand("start", arguments.names))


def run_stop(arguments: Arguments, streams: Streams) -> int:
    """Stop profiles."""
    request = StopRequest(names=tuple(arguments.names), drain_s=arguments.drain_s)
    return _operate(request, arguments, streams, _by_hand("stop", arguments.names))


def run_restart(arguments: Arguments, streams: Streams) -> int:
    """Stop profiles and start them again."""
    request = RestartRequest(names=tuple(arguments.names), drain_s=arguments.drain_s)
    return _operate(request, arguments, streams, _by_hand("restart", arguments.names))


def run_hold(arguments: Arguments, streams: Streams) -> int:
    """Stop every profile and hold the box."""
    request = HoldRequest(for_s=arguments.hold_s, drain_s=arguments.drain_s)
    return _operate(request, arguments, streams, f"sudo systemctl start {HOLD_UNIT}")


def run_cancel(arguments: Arguments, streams: Streams) -> int:
    """Cancel the running operation."""
    return _operate(CancelRequest(), arguments, streams)


def run_mark(arguments: Arguments, streams: Streams) -> int:
    """Mark profiles or watches, one after the other until one is refused."""
    for name in dict.fromkeys(arguments.names):
        status = _operate(MarkRequest(name, arguments.mark), arguments, streams)
        if status:
            return status
    return int(Exit.OK)


def run_uncommit(arguments: Arguments, streams: Streams) -> int:
    """Take one profile out of what a boot serves."""
    return _operate(UncommitRequest(arguments.name, arguments.exclusive), arguments, streams)


def _by_hand(verb: str, names: Sequence[str]) -> str:
    units = " ".join(_unit(n) for n in names) or "appliance-backend-NAME"
    return f"sudo systemctl {verb} {units}"


def _unit(name: str) -> str:
    return unit_of(name).removesuffix(".service")


def _operate(
    request: ControlRequest, arguments: Arguments, streams: Streams, by_hand: str = ""
) -> int:
    places = places_of(arguments)
    try:
        conversation = Conversation(CONTROL, places.control_socket, request)
    except UnreachableError as error:
        raise _without_supervisor(error, places, arguments, by_hand) from error
    # Only now: the supervisor works on the request meanwhile.
    from appliance.cli.operation_follower import show_operation  # noqa: PLC0415

    return show_operation(conversation, places.control_socket, arguments, streams)


def _without_supervisor(
    error: UnreachableError, places: Places, arguments: Arguments, by_hand: str
) -> UnreachableError:
    """Return the error with the command to use instead; a wrong name has an error of its own."""
    if arguments.verb == "uncommit":  # of a profile whose file may be gone
        return error
    watches = watch_names() if arguments.verb == "mark" else ()
    for name in [arguments.name] if arguments.name else arguments.names:
        if name in watches:
            continue
        try:
            applied_of(places, name)
        except StoreError:
            break
    if not by_hand:
        return error
    return UnreachableError(f"{error} (or, without it: {by_hand})")


def previous_profiles(words: Sequence[str], control_socket: str) -> list[str]:
    """Return the profiles that were switched from last, which ``-`` stands for among `words`.

    Raises:
        CliError: no such switch is on record, or there are names beside the ``-``.
        UnreachableError: the supervisor does not answer.
    """
    if len(words) > 1:
        text = '"-" stands for all that were switched from: appliance switch --help'
        raise CliError(text, Exit.USAGE)
    # Few switches need the type of the record.

    details = ask(CONTROL, control_socket, OperationsRequest(MOST_OPERATIONS)).details
    names = previous_set(operations_in(details).operations)
    if not names:
        raise CliError(
            "no switch from another profile is on record: appliance operations",
            Exit.NO_SUCH_PROFILE,
        )
    return list(names)


def previous_set(rows: Sequence[RecordedOperation]) -> Sequence[str]:
    """Return the profiles in the rows of operations, newest first; empty: there are none."""
    places = _sets(rows)
    here = next(places, ())
    return next((place for place in places if {*place} != {*here}), ())


def _sets(rows: Sequence[RecordedOperation]) -> Iterator[Sequence[str]]:
    """Yield the sets to which the box went, newest first, with that which each switch stopped."""
    for row in rows:
        if row.kind != "switch" or row.outcome != "done" or not row.target:
            continue
        yield row.target
        if stopped := [name for name in row.profiles if name not in row.target]:
            yield stopped
