"""`appliance key`: who may use the models from other machines."""

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence

from appliance.cli.box import places_of
from appliance.cli.control_client import Conversation, closing_status
from appliance.cli.failures import CliError
from appliance.cli.terminal import Streams, Terminal
from appliance.protocol.control import Exit, Verb
from appliance.protocol.json_fields import Json, number_in, objects_in, text_in, texts_in

_HEADS = ("NAME", "ID", "MADE", "MAY SWITCH", "PROFILES")


def run(arguments: Namespace, streams: Streams) -> int:
    """Make, list or take away keys. A new one is printed once, alone on stdout."""
    closing, line = _asked(places_of(arguments).control_socket, _request(arguments))
    if arguments.json:
        streams.out.line(line)
        return closing_status(closing)
    if text_in(closing, "event") == "error":
        raise CliError(text_in(closing, "message"), closing_status(closing))
    if arguments.action == "add":
        streams.err.line(text_in(closing, "message"))
        streams.out.line(text_in(closing, "key"))
    elif arguments.action == "ls":
        _list(objects_in(closing, "keys"), streams.out)
    else:
        streams.out.line(text_in(closing, "message"))
    return closing_status(closing)


def _request(arguments: Namespace) -> Mapping[str, object]:
    action, name = arguments.action, arguments.name
    if (name is None) != (action == "ls"):
        what = "takes no NAME" if action == "ls" else "wants a NAME"
        raise CliError(f"key {action} {what}: appliance key --help", Exit.USAGE)
    if action != "add" and (arguments.may_switch or arguments.profiles is not None):
        raise CliError(f"key {action} takes no options: appliance key --help", Exit.USAGE)
    if action == "ls":
        return {"action": action}
    if action == "rm":
        return {"action": action, "name": name}
    return {
        "action": action,
        "name": name,
        "may_switch": arguments.may_switch,
        "profiles": arguments.profiles,
    }


def _asked(socket: str, request: Mapping[str, object]) -> tuple[Json, str]:
    with Conversation(socket, Verb.KEY, request) as conversation:
        *_, closing = conversation.events()
        return closing, conversation.last_line


def _list(keys: Sequence[Json], out: Terminal) -> None:
    if not keys:
        out.line("no key yet: appliance key add NAME")
        return
    rows = [_HEADS, *map(_row, keys)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADS))]
    for row in rows:
        out.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


def _row(key: Json) -> tuple[str, ...]:
    made = time.strftime("%Y-%m-%d", time.localtime(number_in(key, "created_unix_s") or 0))
    may = "yes" if key.get("may_switch") is True else "no"
    profiles = ", ".join(texts_in(key, "profiles")) or "all"
    return text_in(key, "name"), text_in(key, "id"), made, may, profiles
