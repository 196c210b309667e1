"""Events of the control socket; those of every socket are in `appliance.protocol.conversation.codec`.

Their words (kinds, phases, outcomes) are text, because the other side may be of a release that knows
more of them.
"""

from __future__ import annotations

from appliance.protocol.conversation.codec import CommonEvent, ErrorEvent, ResultEvent
from appliance.protocol.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from appliance.protocol.conversation.codec import ExitStatus
    from appliance.protocol.json_values import Json

_NO_PHASES: Final[Mapping[str, float]] = {}


class AcceptedEvent(Record):
    """Event `accepted`: an operation runs; fields as in `appliance.domain.operations.Accepted`."""

    operation: int
    kind: str
    target: tuple[str, ...] = ()
    evicts: tuple[str, ...] = ()
    joined: bool = False
    usual_ms: float | None = None
    requested_by: str = ""


class TicketEvent(Record):
    """Permission for the command of a run, sent only to the client that asked for it."""

    token: str


class PhaseEvent(Record):
    """Event `phase`; fields as in `appliance.domain.operations.PhaseChanged`."""

    phase: str
    state: str
    text: str = ""
    ms: float = 0.0
    rolling_back: bool = False
    log: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the values by name; `log` only where there is a line."""
        fields = super().fields()
        if not fields["log"]:
            del fields["log"]
        return fields


class EndedEvent(Record):
    """Event `result` of an operation; fields as in `appliance.domain.operations.Ended`."""

    operation: int
    kind: str
    target: tuple[str, ...]
    outcome: str
    cause: str | None
    exit: ExitStatus
    message: str
    serving: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    log: tuple[str, ...] = ()
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

    status: Json


ClosingEvent = EndedEvent | ResultEvent | ErrorEvent
ControlEvent = CommonEvent | AcceptedEvent | TicketEvent | PhaseEvent | EndedEvent | StatusEvent
