"""Verb `appliance token`: tokens with which programs and pages act as an operator."""

from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.credential_questions import CredentialVerb, day
from appliance.cli.terminal import Streams
from appliance.wire.control_requests import (
    AddTokenRequest,
    ListTokensRequest,
    RemoveTokenRequest,
)
from appliance.wire.json_values import Json, number_in, text_in


def run(arguments: Arguments, streams: Streams) -> int:
    """Make, list or remove tokens."""
    return _TOKEN.run(arguments, streams)


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


_TOKEN: Final = CredentialVerb(
    noun="token",
    listing=ListTokensRequest(),
    add=lambda given: AddTokenRequest(given.name, given.user, given.valid_s),
    remove=RemoveTokenRequest,
    has_options=lambda given: given.user is not None or given.valid_s is not None,
    heads=("NAME", "ID", "ACTS AS", "MADE", "EXPIRES", "LAST USED"),
    row=_row,
)
