"""Questions about credentials that the supervisor keeps, and tables of what it answers."""

import time
from collections.abc import Iterator, Sequence

from appliance.domain.errors import UnreachableError
from appliance.protocol.control_requests import CONTROL, KeyRequest, TokenRequest
from appliance.protocol.conversation.client import Conversation
from appliance.protocol.conversation.codec import ErrorEvent, ResultEvent


def ask_desk(
    socket: str, request: KeyRequest | TokenRequest
) -> tuple[ResultEvent | ErrorEvent, str]:
    """Return the closing event of a request, and its line as received. Raises `UnreachableError`."""
    with Conversation(CONTROL, socket, request) as conversation:
        for event in conversation.events():
            if isinstance(event, ResultEvent | ErrorEvent):
                return event, conversation.last_line
    raise UnreachableError(CONTROL.not_running)


def table_lines(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table, its heads first, each column as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))


def day(unix_s: float | None, *, never: str = "never") -> str:
    """Return the local day of a time; `never` for None."""
    return never if unix_s is None else time.strftime("%Y-%m-%d", time.localtime(unix_s))
