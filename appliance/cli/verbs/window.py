"""Verb `appliance window`: recurring spans of local time in which nobody is told of alerts."""

from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError
from appliance.cli.health_questions import result_of
from appliance.cli.terminal import Streams
from appliance.presentation.alert_texts import window_text
from appliance.wire.alert_requests import AddWindowRequest, RemoveWindowRequest, WindowsRequest
from appliance.wire.control import Exit
from appliance.wire.json_values import objects_in

_OPTIONS: Final = ("days", "begin", "length_s", "profiles", "reason")
_MINUTE_S: Final = 60.0
_HINT: Final = "appliance window --help"


def run(arguments: Arguments, streams: Streams) -> int:
    """Add, list or remove planned windows."""
    result = result_of(arguments, _request(arguments))
    if arguments.json:
        message = {"message": result.message} if result.message else {}
        streams.out.document({**message, **result.details})
    elif arguments.action == "ls":
        windows = objects_in(result.details, "windows")
        for window in windows:
            streams.out.line(window_text(window))
        if not windows:
            streams.out.line("no window: appliance window add NAME --from 02:00 --for 90m")
    else:
        streams.out.line(result.message)
    return int(Exit.OK)


def _request(arguments: Arguments) -> AddWindowRequest | RemoveWindowRequest | WindowsRequest:
    action, name = arguments.action, arguments.name
    if (name is None) != (action == "ls"):
        what = "takes no NAME" if action == "ls" else "wants a NAME"
        raise CliError(f"window {action} {what}: {_HINT}", Exit.USAGE)
    if action != "add":
        if any(getattr(arguments, option) is not None for option in _OPTIONS):
            raise CliError(f"window {action} takes no options: {_HINT}", Exit.USAGE)
        return WindowsRequest() if action == "ls" else RemoveWindowRequest(name)
    if arguments.begin is None or arguments.length_s is None:
        raise CliError(f"window add wants --from and --for: {_HINT}", Exit.USAGE)
    return AddWindowRequest(
        name,
        arguments.begin,
        round(arguments.length_s / _MINUTE_S),
        tuple(arguments.days or ()),
        tuple(arguments.profiles or ()),
        arguments.reason or "",
    )
