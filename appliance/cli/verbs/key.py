"""Verb `appliance key`: keys for clients on other machines."""

from collections.abc import Sequence

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.conclusion import exit_status
from appliance.cli.credential_questions import ask_desk, day, table_lines
from appliance.cli.failures import CliError
from appliance.cli.terminal import Streams, Terminal
from appliance.protocol.control import Exit
from appliance.protocol.control_requests import (
    AddKeyRequest,
    KeyRequest,
    ListKeysRequest,
    RemoveKeyRequest,
)
from appliance.protocol.conversation.codec import ErrorEvent, RequestRefusedError
from appliance.protocol.json_values import Json, number_in, objects_in, text_in, texts_in

_HEADS = ("NAME", "ID", "MADE", "MAY SWITCH", "PROFILES")


def run(arguments: Arguments, streams: Streams) -> int:
    """Make, list or remove keys. A new key is printed once, alone on stdout."""
    closing, line = ask_desk(places_of(arguments).control_socket, _request(arguments))
    if arguments.json:
        streams.out.line(line)
        return exit_status(closing)
    if isinstance(closing, ErrorEvent):
        raise RequestRefusedError(closing)
    if arguments.action == "add":
        streams.err.line(closing.message)
        streams.out.line(text_in(closing.details, "key"))
    elif arguments.action == "ls":
        _list(objects_in(closing.details, "keys"), streams.out)
    else:
        streams.out.line(closing.message)
    return exit_status(closing)


def _request(arguments: Arguments) -> KeyRequest:
    action, name = arguments.action, arguments.name
    if (name is None) != (action == "ls"):
        what = "takes no NAME" if action == "ls" else "wants a NAME"
        raise CliError(f"key {action} {what}: appliance key --help", Exit.USAGE)
    if action != "add" and (arguments.may_switch or arguments.profiles is not None):
        raise CliError(f"key {action} takes no options: appliance key --help", Exit.USAGE)
    if action == "ls":
        return ListKeysRequest()
    if action == "rm":
        return RemoveKeyRequest(name)
    profiles = None if arguments.profiles is None else tuple(arguments.profiles)
    return AddKeyRequest(name, arguments.may_switch, profiles)


def _list(keys: Sequence[Json], out: Terminal) -> None:
    if not keys:
        out.line("no key yet: appliance key add NAME")
        return
    for line in table_lines([_HEADS, *map(_row, keys)]):
        out.line(line)


def _row(key: Json) -> tuple[str, ...]:
    made = day(number_in(key, "created_unix_s"))
    may = "yes" if key.get("may_switch") is True else "no"
    profiles = ", ".join(texts_in(key, "profiles")) or "all"
    return text_in(key, "name"), text_in(key, "id"), made, may, profiles
