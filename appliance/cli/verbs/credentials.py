"""Verbs `appliance key` and `appliance token`: credentials that the supervisor keeps."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of
from appliance.cli.failures import CliError
from appliance.cli.operation_follower import exit_status
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Streams, Terminal
from appliance.model.errors import UnreachableError
from appliance.wire.client import Conversation
from appliance.wire.control import Exit
from appliance.wire.control_requests import (
    CONTROL,
    AddKeyRequest,
    AddTokenRequest,
    KeyRequest,
    ListKeysRequest,
    ListTokensRequest,
    RemoveKeyRequest,
    RemoveTokenRequest,
    TokenRequest,
)
from appliance.wire.conversation import ErrorEvent, RequestRefusedError, ResultEvent
from appliance.wire.json_values import Json, number_in, objects_in, text_in, texts_in

DeskRequest = KeyRequest | TokenRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialVerb:
    """Verb with the actions `add`, `ls` and `rm` for one kind of credentials."""

    noun: str
    """Name of the verb, and of the text of a new one in the answer; with an s, of all of them."""
    listing: DeskRequest
    add: Callable[[Arguments], DeskRequest]
    remove: Callable[[str], DeskRequest]
    has_options: Callable[[Arguments], bool]
    """Tells whether the arguments have one of the options of `add`."""
    heads: tuple[str, ...]
    row: Callable[[Json], tuple[str, ...]]
    """Returns the cells of one, below `heads`."""

    def run(self, arguments: Arguments, streams: Streams) -> int:
        """Carry out one action; a new credential is printed once, alone on stdout."""
        closing, line = ask_desk(places_of(arguments).control_socket, self._request(arguments))
        if arguments.json:
            streams.out.verbatim(line)
            return exit_status(closing)
        if isinstance(closing, ErrorEvent):
            raise RequestRefusedError(closing)
        if arguments.action == "add":
            streams.err.line(closing.message)
            streams.out.verbatim(text_in(closing.details, self.noun))
        elif arguments.action == "ls":
            self._list(objects_in(closing.details, f"{self.noun}s"), streams.out)
        else:
            streams.out.line(closing.message)
        return exit_status(closing)

    def _request(self, arguments: Arguments) -> DeskRequest:
        action, name = arguments.action, arguments.name
        what = None
        if (name is None) != (action == "ls"):
            what = "takes no NAME" if action == "ls" else "wants a NAME"
        elif action != "add" and self.has_options(arguments):
            what = "takes no options"
        if what is not None:
            raise CliError(f"{self.noun} {action} {what}: appliance {self.noun} --help", Exit.USAGE)
        if action == "ls":
            return self.listing
        return self.remove(name) if action == "rm" else self.add(arguments)

    def _list(self, rows: Sequence[Json], out: Terminal) -> None:
        if not rows:
            out.line(f"no {self.noun} yet: appliance {self.noun} add NAME")
            return
        for line in table_lines([self.heads, *map(self.row, rows)], out):
            out.line(line)


def ask_desk(socket: str, request: DeskRequest) -> tuple[ResultEvent | ErrorEvent, str]:
    """Return the closing event of a request, and its line as received. Raises `UnreachableError`."""
    with Conversation(CONTROL, socket, request) as conversation:
        for event in conversation.events():
            if isinstance(event, ResultEvent | ErrorEvent):
                return event, conversation.last_line
    raise UnreachableError(CONTROL.not_running)


def table_lines(rows: Sequence[Sequence[str]], terminal: Terminal) -> Iterator[str]:
    """Yield the lines of a table whose first row has the heads and whose last column says the most."""
    heads, *others = rows
    last = len(heads) - 1
    columns = [
        Column(head, least=10 if at in {0, last} else None, spare=last - at if at > 1 else 0)
        for at, head in enumerate(heads)
    ]
    return fitted(columns, others, terminal).lines()


def day(unix_s: float | None, *, never: str = "never") -> str:
    """Return the local day of a time; `never` for None."""
    return never if unix_s is None else time.strftime("%Y-%m-%d", time.localtime(unix_s))


def run_key(arguments: Arguments, streams: Streams) -> int:
    """Make, list or remove keys."""
    return _KEY.run(arguments, streams)


def _key_of(arguments: Arguments) -> AddKeyRequest:
    profiles = None if arguments.profiles is None else tuple(arguments.profiles)
    return AddKeyRequest(arguments.name, arguments.may_switch, profiles)


def _key_row(key: Json) -> tuple[str, ...]:
    made = day(number_in(key, "created_unix_s"))
    may = "yes" if key.get("may_switch") is True else "no"
    profiles = ", ".join(texts_in(key, "profiles")) or "all"
    return text_in(key, "name"), text_in(key, "id"), made, may, profiles


_KEY: Final = CredentialVerb(
    noun="key",
    listing=ListKeysRequest(),
    add=_key_of,
    remove=RemoveKeyRequest,
    has_options=lambda given: given.may_switch or given.profiles is not None,
    heads=("NAME", "ID", "MADE", "MAY SWITCH", "PROFILES"),
    row=_key_row,
)


def run_token(arguments: Arguments, streams: Streams) -> int:
    """Make, list or remove tokens."""
    return _TOKEN.run(arguments, streams)


def _token_row(token: Json) -> tuple[str, ...]:
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
    row=_token_row,
)
