"""Request for earlier operations, on each socket of the supervisor that tells of them.

The module is short, because the sockets' tables are in modules of their own and the command imports one of them.
"""

from __future__ import annotations

from appliance.protocol.conversation.codec import read_whole
from appliance.protocol.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.protocol.json_values import Json

MOST_OPERATIONS: Final = 500
"""Most operations in an answer: a line of 1 MiB holds them."""


class OperationsRequest(Record):
    """Request for the operation that runs, and the newest that are over.

    Answer: `result` with the fields of `appliance.planning.status.document.OperationsSection`.
    """

    most: int = 50
    """At most 500."""


def read_most(args: Json, field: str) -> int:
    """Return the number of operations that are wanted. Raises `BadRequestError`."""
    return read_whole(args, field, 1, MOST_OPERATIONS)
