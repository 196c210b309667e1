"""Verb `appliance token`: tokens with which programs and pages act as an operator."""

from collections.abc import Sequence

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.conclusion import exit_status
from appliance.cli.credential_questions import ask_desk, day, table_lines
from appliance.cli.failures import CliError
from appliance.cli.terminal import Streams, Terminal
from appliance.protocol.control import Exit
from appliance.protocol.control_requests import (
    AddTokenRequest,
    ListTokensRequest,
    RemoveTokenRequest,
    TokenRequest,
)
from appliance.protocol.conversation.codec import ErrorEvent, RequestRefusedError
from appliance.protocol.json_values import Json, number_in, objects_in, text_in

_HEADS = ("NAME", "ID", "ACTS AS", "MADE", "EXPIRES", "LAST USED")


def run(arguments: Arguments, streams: Streams) -> int:
    """Make, list or remove tokens. A new token is printed once, alone on stdout."""
    closing, line = ask_desk(places_of(arguments).control_socket, _request(arguments))
    if arguments.json:
        streams.out.line(line)
        return exit_status(closing)
    if isinstance(closing, ErrorEvent):
        raise RequestRefusedError(closing)
    if arguments.action == "add":
        streams.err.line(closing.message)
        streams.out.line(text_in(closing.details, "token"))
    elif arguments.action == "ls":
        _list(objects_in(closing.details, "tokens"), streams.out)
    else:
        streams.out.line(closing.message)
    return exit_status(closing)


def _request(arguments: Arguments) -> TokenRequest:
    action, name = arguments.action, arguments.name
    if (name is None) != (action == "ls"):
        what = "takes no NAME" if action == "ls" else "wants a NAME"
        raise CliError(f"token {action} {what}: appliance token --help", Exit.USAGE)
    if action != "add" and (arguments.user is not None or arguments.valid_s is not None):
        raise CliError(f"token {action} takes no options: appliance token --help", Exit.USAGE)
    if action == "ls":
        return ListTokensRequest()
    if action == "rm":
        return RemoveTokenRequest(name)
    return AddTokenRequest(name, arguments.user, arguments.valid_s)


def _list(tokens: Sequence[Json], out: Terminal) -> None:
    if not tokens:
        out.line("no token yet: appliance token add NAME")
        return
    for line in table_lines([_HEADS, *map(_row, tokens)]):
        out.line(line)


def _row(token: Json) -> tuple[str, ...]:
    expires = day(number_in(token, "expires_unix_s"))
    return (
        text_in(token, "name"),
        text_in(token, "id"),
        text_in(token, "user"),
        day(number_in(token, "created_unix_s")),
        f"{expires}, over" if token.get("expired") is True else expires,
        day(number_in(token, "used_unix_s")),
    )
