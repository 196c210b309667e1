"""Request for earlier operations, on each socket of the supervisor that tells of them."""

from typing import Annotated, Final

import msgspec

from appliance.model.record import Record

MOST_OPERATIONS: Final = 500
"""Most operations in an answer: a line of 1 MiB holds them."""


class OperationsRequest(Record):
    """Request for the operation that runs, and the newest that are over.

    Answer: `result` with the fields of `appliance.status.document.OperationsSection`.
    """

    most: Annotated[int, msgspec.Meta(ge=1, le=MOST_OPERATIONS)] = 50
    """At most 500."""
