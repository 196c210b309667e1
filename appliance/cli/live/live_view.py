"""Documents from which a live screen is made, and how far they can be trusted."""

from __future__ import annotations

from appliance.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from appliance.model.events import AlertEvent, MeasuredEvent
    from appliance.status.document import StatusDocument
    from appliance.wire.control_events import AcceptedEvent, PhaseEvent
    from appliance.wire.conversation import ResultEvent
    from appliance.wire.json_values import Json


class OperationProgress(Record):
    """Running operation, as its events have told it so far."""

    accepted: AcceptedEvent
    ended: tuple[PhaseEvent, ...] = ()
    """Phases that are over, in their order."""
    running: PhaseEvent | None = None
    """Last event of the phase that runs; None: none does now."""
    since_s: float = 0.0
    """Monotonic time at which that phase began."""


class LiveView(Record):
    """Knowledge of the box at one moment; texts are printable."""

    document: StatusDocument | None = None
    """None: nothing is known yet."""
    received_s: float = 0.0
    """Monotonic time at which the document came."""
    lost_s: float | None = None
    """Monotonic time since which the supervisor is not heard; None: it is."""
    trouble: str = ""
    """Reason why it is not heard, and what to do; empty: it is."""
    operation: OperationProgress | None = None
    gpus: Sequence[Json] = ()
    """Health and evidence of each GPU (`appliance.model.measurements.BoxGpus`), joined by index."""
    events: Sequence[MeasuredEvent | AlertEvent] = ()
    """Last events, oldest first."""
    log: Sequence[str] = ()
    """Last lines of the log that is asked for."""
    plan: ResultEvent | None = None
    """Answer about what a switch that is to be confirmed would do; None: not answered."""
    answer: str = ""
    """Outcome of the last request to the supervisor; empty: nothing to say."""
