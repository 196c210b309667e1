"""Answers of the API as the OpenAPI document describes them: types, examples and errors.

Documents pass as the daemons have sent them; no model is made of them, so their types
(`appliance.status`, `appliance.model`) are described here by reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from appliance.alerts.outbox import OutboxRow
from appliance.alerts.report import AlertRow, DeliveryReport
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.speeds import BaselineReport, SpeedReport
from appliance.model.status import (
    AlertSection,
    OperationsSection,
    ProfileRow,
    RecordedOperation,
    StatusDocument,
)
from appliance.web.problem import PROBLEM_TYPE, ProblemDocument
from appliance.wire.gateway import ClientRequestsDocument

JSON: Final = "application/json"
"""Media type of an answer."""
SCHEMAS: Final = "#/components/schemas/"
"""Place of the types' schemas in the OpenAPI document."""


class LivenessDocument(TypedDict):
    """Sign of life."""

    status: str


class ProfileDocument(ProfileRow):
    """One profile, as `appliance status NAME --json` prints it."""

    speed: SpeedReport | None
    """Measured speed; null: it is not measured, or the health agent does not answer."""
    alerts: list[AlertRow] | None
    """Alerts on it that are not over; null: the health agent does not answer."""


class ProfilesDocument(TypedDict):
    """Every profile."""

    profiles: list[ProfileDocument]


class GpusDocument(TypedDict):
    """State of the GPUs."""

    gpus: list[dict[str, object]]
    """Clocks, power, throttling, PCIe, errors and memory of each."""


class HistoryDocument(TypedDict):
    """Rates of one profile over time."""

    rows: dict[str, list[list[float]]]
    """By series: `[unix_s, count, low, median, high]`, oldest first."""
    baseline: BaselineReport | None
    """Present baseline; null: none is learned."""
    events: list[dict[str, object]]
    """Measurement events of the profile since then."""


class StatesDocument(TypedDict):
    """Record of the profiles' states."""

    profiles: dict[str, list[list[object]]]
    """By name: `[unix_s, state]`, each from its time on, the oldest first; a state is one of a profile,
    `degraded` (it serves without progress, or too slowly) or `unknown`."""
    until_unix_s: float | None
    """Time of the last observation; null: there was none."""


class EventsDocument(TypedDict):
    """Measurement events and transitions of alerts."""

    measured: list[MeasuredEvent]
    alerts: list[AlertEvent]


class OutboxDocument(TypedDict):
    """Newest rows of the outbox, and figures of the delivery."""

    rows: list[OutboxRow]
    delivery: DeliveryReport


class AlertsDocument(AlertSection):
    """Alerts that are not over, silences, planned windows and delivery."""

    windows: list[dict[str, object]]


class AlertDocument(TypedDict):
    """One alert with what became of it."""

    alert: AlertRow | None
    """Null: it is over."""
    changes: list[AlertEvent]
    rows: list[OutboxRow]
    """Rows of the outbox about the alert."""


class ActionDocument(TypedDict):
    """Outcome of a button."""

    message: str


TYPES: Final[Sequence[type]] = (
    LivenessDocument,
    StatusDocument,
    ProfileDocument,
    ProfilesDocument,
    GpusDocument,
    HistoryDocument,
    StatesDocument,
    EventsDocument,
    OutboxDocument,
    RecordedOperation,
    OperationsSection,
    ClientRequestsDocument,
    AlertsDocument,
    AlertDocument,
    ActionDocument,
    ProblemDocument,
)
"""Types of answers; types that they contain are described too."""

_PROBLEMS: Final[Mapping[int, str]] = {
    400: "The request is not HTTP/1.1, or its head is too long.",
    401: "Another machine asks without the token of an operator.",
    403: "The host name is none of this machine, or a page of another origin asks.",
    404: "There is no such resource.",
    405: "The path does not take this method.",
    408: "The body did not come in time.",
    409: "The daemon that is asked has no free connection: ask again.",
    413: "The body is too large.",
    422: "A value is outside of what this document allows.",
    429: "The token is wrong, and too many wrong ones with its id came lately.",
    502: "A daemon answers with a failure.",
    503: "A daemon does not answer, or the API is off.",
}


@dataclass(frozen=True, slots=True)
class AnswerExample:
    """Answer of a route with an example."""

    kind: type
    text: str
    example: Any = None


def responses_of(answer: AnswerExample, **statuses: str) -> dict[int | str, dict[str, Any]]:
    """Return the responses of a route: its own, and the problems that each route may have.

    Args:
        answer: Answer with status 200.
        statuses: Sentences for further problems, by `http_` and the status.
    """
    content: dict[str, Any] = {"schema": {"$ref": SCHEMAS + answer.kind.__name__}}
    if answer.example is not None:
        content["example"] = answer.example
    return {200: {"description": answer.text, "content": {JSON: content}}, **problems(**statuses)}


def problems(**statuses: str) -> dict[int | str, dict[str, Any]]:
    """Return the problems that each route may answer with; further ones as `responses_of` has them."""
    own = {int(status.removeprefix("http_")): text for status, text in statuses.items()}
    schema = {"$ref": SCHEMAS + ProblemDocument.__name__}
    return {
        status: {"description": text, "content": {PROBLEM_TYPE: {"schema": schema}}}
        for status, text in sorted({**_PROBLEMS, **own}.items())
    }
