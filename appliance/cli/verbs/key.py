"""Verb `appliance key`: keys for clients on other machines."""

from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.credential_questions import CredentialVerb, day
from appliance.cli.terminal import Streams
from appliance.wire.control_requests import AddKeyRequest, ListKeysRequest, RemoveKeyRequest
from appliance.wire.json_values import Json, number_in, text_in, texts_in


def run(arguments: Arguments, streams: Streams) -> int:
    """Make, list or remove keys."""
    return _KEY.run(arguments, streams)


def _add(arguments: Arguments) -> AddKeyRequest:
    profiles = None if arguments.profiles is None else tuple(arguments.profiles)
    return AddKeyRequest(arguments.name, arguments.may_switch, profiles)


def _row(key: Json) -> tuple[str, ...]:
    made = day(number_in(key, "created_unix_s"))
    may = "yes" if key.get("may_switch") is True else "no"
    profiles = ", ".join(texts_in(key, "profiles")) or "all"
    return text_in(key, "name"), text_in(key, "id"), made, may, profiles


_KEY: Final = CredentialVerb(
    noun="key",
    listing=ListKeysRequest(),
    add=_add,
    remove=RemoveKeyRequest,
    has_options=lambda given: given.may_switch or given.profiles is not None,
    heads=("NAME", "ID", "MADE", "MAY SWITCH", "PROFILES"),
    row=_row,
)
