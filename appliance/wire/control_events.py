"""Events of the control socket; those of every socket are in `appliance.wire.conversation`.

Their words (kinds, phases, outcomes) are text, because the other side may be of a release that knows
more of them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from appliance.model.errors import UnreachableError
from appliance.model.record import Record
from appliance.model.status import OperationsSection, StatusDocument
from appliance.wire.conversation import CommonEvent, ErrorEvent, ResultEvent
from appliance.wire.json_values import Json
from appliance.wire.typed_json import JsonValueError, from_strict_json

_NO_PHASES: Final[Mapping[str, float]] = {}


class AcceptedEvent(Record):
    """Event `accepted`: an operation was accepted, or the one that runs was joined."""

    operation: int
    kind: str
    target: tuple[str, ...] = ()
    evicts: tuple[str, ...] = ()
    """Profiles that are stopped for the operation."""
    joined: bool = False
    """Whether the operation ran already, with the same target."""
    usual_ms: float | None = None
    """Median duration of earlier operations of the kind; None: there were none."""
    requested_by: str = ""
    """Requester as recorded; of a joined operation the one who began it."""


class TicketEvent(Record):
    """Permission for the command of a run, sent only to the client that asked for it."""

    token: str


class PhaseEvent(Record):
    """Event `phase`: a phase began, made progress or ended."""

    phase: str
    state: str
    text: str = ""
    ms: float = 0.0
    """Milliseconds since the phase began."""
    rolling_back: bool = False
    log: str = ""
    """Last line that the engine has logged, while one is started; empty: not read."""

    def fields(self) -> dict[str, Any]:
        """Return the values by name; `log` only where there is a line."""
        fields = super().fields()
        if not fields["log"]:
            del fields["log"]
        return fields


class EndedEvent(Record):
    """Event `result` of an operation that is over."""

    operation: int
    kind: str
    target: tuple[str, ...]
    outcome: str
    cause: str | None
    """Cause of a refusal, a failure or a roll-back; None: it was done, superseded or interrupted."""
    exit: int
    message: str
    serving: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    """Profiles that serve again after a roll-back."""
    log: tuple[str, ...] = ()
    """Last lines of the log of the backend that failed."""
    phases_ms: Mapping[str, float] = _NO_PHASES
    ms: float = 0.0
    hold: Json | None = None
    """Row of the status document for a hold; None: of any other operation."""

    def fields(self) -> dict[str, Any]:
        """Return the values by name; `hold` of a hold alone."""
        fields = super().fields()
        if fields["hold"] is None:
            del fields["hold"]
        return fields


class StatusEvent(Record):
    """Event `status`: the status document of this moment."""

    status: StatusDocument


def status_in(details: Json) -> StatusDocument:
    """Return the status document in the details of a result. Raises `UnreachableError` for one that is none."""
    try:
        return from_strict_json(StatusDocument, details.get("status"))
    except JsonValueError as error:
        raise UnreachableError(
            f"the supervisor's status document cannot be read: {error}"
        ) from None


def operations_in(details: Json) -> OperationsSection:
    """Return the operations in the details of a result. Raises `UnreachableError` for details that are none."""
    try:
        return from_strict_json(OperationsSection, details)
    except JsonValueError as error:
        raise UnreachableError(f"the supervisor's operations cannot be read: {error}") from None


OperationChange = AcceptedEvent | PhaseEvent | EndedEvent
"""Event of an operation, in the supervisor and on its sockets."""
ClosingEvent = EndedEvent | ResultEvent | ErrorEvent
ControlEvent = CommonEvent | AcceptedEvent | TicketEvent | PhaseEvent | EndedEvent | StatusEvent


MOST_OPERATIONS: Final = 500
"""Most operations in an answer: a line of 1 MiB holds them."""


class OperationsRequest(Record):
    """Request for the operation that runs, and the newest that are over.

    Answer: `result` with the fields of `appliance.model.status.OperationsSection`.
    """

    most: Annotated[int, msgspec.Meta(ge=1, le=MOST_OPERATIONS)] = 50
    """At most 500."""
