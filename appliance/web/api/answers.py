"""Answers of the API as the OpenAPI document describes them: types, examples and errors.

Documents pass as the daemons have sent them; no model is made of them, so their types
(`appliance.status`, `appliance.model`) are described here by reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from msgspec import to_builtins

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
from appliance.wire.json_schemas import SchemaDeriver
from appliance.wire.typed_json import from_json

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


_SINCE: Final = 1795256172.0
_FIRED: Final = _SINCE + 300
_NOW: Final = _SINCE + 2100
_FACT: Final = "slow: 27.1 tok/s (was 41.0)"
_LIKELY: Final = "11 of 49 layers on the CPU"

_ALERT: Final[Mapping[str, Any]] = {
    "alert": "A17",
    "subject": "profile:genesis",
    "rule": "slow",
    "episode": 3,
    "severity": "warning",
    "fact": _FACT,
    "details": ["4 probes, -34 %"],
    "likely": _LIKELY,
    "command": "appliance status genesis",
    "since_unix_s": _SINCE,
    "fired_unix_s": _FIRED,
    "ended_unix_s": None,
    "over": "",
    "sent_unix_s": _FIRED + 12,
    "acked_by": "",
    "acked_unix_s": None,
    "gate": None,
    "reason": "",
    "flapping": False,
}
_CHANGE: Final[Mapping[str, Any]] = {
    "id": 34,
    "unix_s": _FIRED,
    "kind": "fired",
    "alert": "A17",
    "subject": "profile:genesis",
    "rule": "slow",
    "episode": 3,
    "severity": "warning",
    "fact": _FACT,
    "details": ["4 probes, -34 %"],
    "likely": _LIKELY,
    "command": "appliance status genesis",
    "since_unix_s": _SINCE,
    "over": "",
    "ended_unix_s": None,
    "by": "",
    "reason": "",
    "delivered": True,
}
_LOSS: Final[Mapping[str, Any]] = {
    "id": 12,
    "unix_s": _FIRED,
    "profile": "genesis",
    "kind": "regression",
    "series": "decode",
    "change": -0.34,
    "cause": "cpu-fallback",
    "text": _FACT,
    "rate": 27.1,
    "baseline": 41.0,
    "since_unix_s": _SINCE,
    "likely": _LIKELY,
}
_ROW: Final[Mapping[str, Any]] = {
    "id": 51,
    "key": "profile:genesis:slow:3:fired:phone",
    "target": "phone",
    "transition": {**_CHANGE, "subject": {"kind": "profile", "name": "genesis"}},
    "created_unix_s": _FIRED,
    "not_before_unix_s": _FIRED + 10,
    "is_digest": False,
    "state": "sent",
    "attempts": 1,
    "tried_unix_s": _FIRED + 12,
    "retry_unix_s": 0.0,
    "settled_unix_s": _FIRED + 12,
    "text": "",
}
_DELIVERY: Final[Mapping[str, Any]] = {
    "enabled": True,
    "targets": 1,
    "waiting": 0,
    "dead": 0,
    "oldest_s": None,
    "trouble": "",
    "heartbeat_set": True,
    "heartbeat_s": 14.0,
    "heartbeat_trouble": "",
    "attempts": {},
}
_ALERTS: Final[Mapping[str, Any]] = {
    "alerts": [_ALERT],
    "left_off": 0,
    "silences": [],
    "delivery": _DELIVERY,
}
_SPEED: Final[Mapping[str, Any]] = {
    "profile": "genesis",
    "series": [],
    "last_probe_unix_s": _NOW - 300,
    "last_outcome": "valid",
    "last_valid_unix_s": _NOW - 300,
    "next_probe_unix_s": _NOW + 600,
    "waiting": "",
    "ttft_s": 0.41,
    "cached_share": 0.62,
    "quality_pass_rate": 1.0,
    "last_canaries_unix_s": _NOW - 900,
    "silence": "",
    "trouble": "",
}
_PROFILE: Final[Mapping[str, Any]] = {
    "name": "genesis",
    "mark": "live",
    "description": "a model for code, on both GPUs",
    "engine": "vllm",
    "model": "/models/genesis",
    "served": ["genesis"],
    "endpoint": "127.0.0.1:8022",
    "claim": ["gpu-all"],
    "state": "serving",
    "committed": True,
    "since_unix_s": _SINCE - 86400,
    "uptime_s": 88500.0,
    "status_text": "serving on 127.0.0.1:8022, ready after 47.9 s",
    "restarts": 0,
    "main_pid": 4121,
    "edited_since_apply": False,
    "restart_pending": False,
    "unit_changes": [],
    "build": None,
    "memory": None,
    "stall": None,
    "verification": None,
    "note": None,
}
_OPERATION: Final[Mapping[str, Any]] = {
    "id": 18,
    "kind": "switch",
    "requested_by": "ana (token phone)",
    "target": ["genesis"],
    "profiles": ["aeon", "genesis"],
    "state": "over",
    "began_unix_s": _SINCE - 86460,
    "ms": 47900.0,
    "phase": None,
    "phase_s": None,
    "deadline_s": None,
    "rolling_back": False,
    "text": "",
    "outcome": "done",
    "failed": False,
    "cause": None,
    "message": "genesis is serving on :8022",
    "finished_unix_s": _SINCE - 86412,
    "age_s": 88512.0,
    "phases_ms": {"preflight": 200.0, "loading": 19700.0, "warm-up": 900.0},
}

_STATUS: Final[Mapping[str, Any]] = {
    "host": "garage",
    "version": "0.1.0",
    "supervisor": {"state": "up", "uptime_s": 1036800.0},
    "committed": ["genesis"],
    "hold": None,
    "run": None,
    "operation": None,
    "last_operation": None,
    "last_change": None,
    "memory": None,
    "gateway": None,
    "profiles": [_PROFILE],
    "profile_files": [],
    "watches": [],
    "verdict": {"state": "serving", "exit": 0, "why": []},
    "speed": {"note": None, "trouble": [], "profiles": {"genesis": _SPEED}},
    "alerts": _ALERTS,
}


def _whole(kind: type, example: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an example with the keys that it leaves out, as their defaults are."""
    found: Mapping[str, Any] = to_builtins(from_json(kind, example))
    return found


_WHOLE_PROFILE: Final = _whole(ProfileDocument, {**_PROFILE, "speed": _SPEED, "alerts": [_ALERT]})
REHEARSAL: Final[Mapping[str, Any]] = {
    "refused": False,
    "message": "the preflight finds no obstacle",
    "plan": {"stop": ["aeon"], "start": ["genesis"], "committed_after": ["genesis"]},
    "findings": [{"level": "ok", "text": "needs ≈18.6 GiB of VRAM (observed), 24.0 total"}],
    "estimates": {},
}
EXAMPLES: Final[Mapping[type, Mapping[str, Any]]] = {
    StatusDocument: _whole(StatusDocument, _STATUS),
    ProfileDocument: _WHOLE_PROFILE,
    ProfilesDocument: {"profiles": [_WHOLE_PROFILE]},
    HistoryDocument: {
        "rows": {"decode": [[_SINCE - 3600, 4, 40.2, 41.0, 41.9], [_SINCE, 4, 26.8, 27.1, 27.5]]},
        "baseline": None,
        "events": [_LOSS],
    },
    StatesDocument: {
        "profiles": {"genesis": [[_SINCE - 86412, "serving"], [_FIRED, "degraded"]]},
        "until_unix_s": _NOW,
    },
    EventsDocument: {"measured": [_LOSS], "alerts": [_CHANGE]},
    RecordedOperation: _OPERATION,
    OperationsSection: {"running": None, "operations": [_OPERATION]},
    OutboxDocument: {"rows": [_ROW], "delivery": _DELIVERY},
    AlertsDocument: {**_ALERTS, "windows": []},
    AlertDocument: {"alert": _ALERT, "changes": [_CHANGE], "rows": [_ROW]},
}
"""Example of each of these answers. They stand at the schemas: FastAPI leaves null out of a route's own example."""


def openapi_document(application: FastAPI) -> dict[str, Any]:
    """Return the document, which is made once, when somebody asks for it."""
    if application.openapi_schema is None:
        document = get_openapi(
            title=application.title,
            version=application.version,
            description=application.description,
            routes=application.routes,
        )
        deriver = SchemaDeriver(place=SCHEMAS, are_records_whole=True)
        for kind in TYPES:
            deriver.schema(kind)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas |= dict(sorted(deriver.definitions.items()))
        for kind, example in EXAMPLES.items():
            schemas[kind.__name__]["examples"] = [example]
        application.openapi_schema = document
    return application.openapi_schema
