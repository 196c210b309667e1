"""Report of the program that runs an operator's command (launch.run), for the supervisor.

The file has one JSON object::

    {"ran": true, "text": "with status 0 after 12 min", "who": "make of user ana",
     "operation": 12, "ticket": "…", "unix_s": 1700000000.0}

``ticket`` is the hash of the ticket's token where the command ran: a ticket is good for one.
"""

from __future__ import annotations

import json

from appliance.model.json_reader import decode_json
from appliance.model.paths import RUN_DIR

FILE_NAME = "last.json"
FILE = f"{RUN_DIR}/{FILE_NAME}"
MAX_BYTES = 64 << 10
"""Largest file in bytes."""
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)


class Report:
    """Report of the last command: how it ended, or why it was not begun."""

    __slots__ = ("operation", "ran", "text", "ticket_sha256")

    def __init__(self, *, ran: bool, text: str, operation: int | None, ticket_sha256: str) -> None:
        self.ran = ran
        self.text = text
        self.operation = operation
        """Number of the command's operation; None: the launcher ended before it had read its
        ticket."""
        self.ticket_sha256 = ticket_sha256
        """Hash of the ticket that was used; empty: none."""


def encoded(report: Report, *, who: str, unix_s: float) -> str:
    """Return the text of the file."""
    document = {
        "ran": report.ran,
        "text": report.text,
        "who": who,
        "operation": report.operation,
        "ticket": report.ticket_sha256,
        "unix_s": unix_s,
    }
    return json.dumps(document) + "\n"


def decoded(content: str | bytes) -> Report | None:
    """Return the report in the file's content; None: it is damaged."""
    try:
        document = decode_json(content)
        number = document.get("operation")
        return Report(
            ran=bool(document["ran"]),
            text=str(document["text"]),
            operation=number if isinstance(number, int) else None,
            ticket_sha256=str(document.get("ticket", "")),
        )
    except _DAMAGE:
        return None
