"""Ticket of the supervisor for one operator's command: its user and its claim.

The supervisor sends the operator a random token, and writes the token's hash into this file, in a
directory that only the supervisor can write, before it starts the unit of the command::

    {"operation": 12, "uid": 1000, "gpus": "all", "token_sha256": "…"}

The token proves to root that the caller is the one that the supervisor admitted; the kernel tells
the caller's user. So an attacker in the supervisor can choose claims and refuse commands, but cannot
run a command as a user who did not send it.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from appliance.model.json_reader import parse_object
from appliance.model.paths import SUPERVISOR_RUNTIME_DIR
from appliance.wire.run_request import BadRequest, gpus_of, text_of, whole_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from appliance.wire.json_values import Json

FILE = f"{SUPERVISOR_RUNTIME_DIR}/run-ticket.json"
MAX_BYTES = 16 << 10
"""Largest file in bytes."""
_MOST = 2**63 - 1
_MOST_UID = 2**32 - 2


class Ticket:
    """Permission for one command."""

    __slots__ = ("gpus", "operation", "token_sha256", "uid")

    def __init__(self, document: Json) -> None:
        """Check the types of everything. Raises `BadRequest`."""
        self.operation = whole_of(document.get("operation"), "operation", _MOST)
        self.uid = whole_of(document.get("uid"), "uid", _MOST_UID)
        self.gpus = gpus_of(document.get("gpus"))
        self.token_sha256 = text_of(document.get("token_sha256"), "token_sha256")

    def admits(self, uid: int, token: str) -> bool:
        """Tell whether a caller with this user and token is the one that the supervisor admitted."""
        return uid == self.uid and hmac.compare_digest(digest(token), self.token_sha256)


def digest(token: str) -> str:
    """Return the hash that the file has of a token."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def encoded(*, operation: int, uid: int, gpus: Iterable[int] | None, token: str) -> str:
    """Return the text of the file; `gpus`: indexes, None for all."""
    document = {
        "operation": operation,
        "uid": uid,
        "gpus": "all" if gpus is None else sorted(gpus),
        "token_sha256": digest(token),
    }
    return json.dumps(document) + "\n"


def parse(text: str) -> Ticket:
    """Return the ticket in the text of the file. Raises `BadRequest`."""
    try:
        return Ticket(parse_object(text))
    except ValueError as error:
        raise BadRequest(f"the ticket is {error}") from error
