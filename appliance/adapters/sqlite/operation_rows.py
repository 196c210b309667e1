"""Operations as rows: JSON for what is a set, columns for what is asked about."""

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from appliance.domain.operations import Finished, Goal, Kind, Operation, Outcome, Phase


def to_row(operation: Operation) -> dict[str, Any]:
    """The columns of an operation, without its id."""
    return {
        "kind": operation.kind.value,
        "target": json.dumps(operation.target),
        "goal": json.dumps(asdict(operation.goal)),
        "boot_id": operation.boot_id,
        "requested_by": operation.requested_by,
        "began": operation.began_unix_s,
        "began_s": operation.began_s,
        "rollback": int(operation.rollback),
        "drain_s": operation.drain_s,
        "phase": operation.phase.value,
        "rolling_back": int(operation.rolling_back),
        "reason": operation.reason,
    }


def to_finished_row(finished: Finished) -> dict[str, Any]:
    """Every column of an operation that is over."""
    return {
        **to_row(finished.operation),
        "id": finished.operation.id,
        "outcome": finished.outcome.value,
        "message": finished.message,
        "finished": finished.finished_unix_s,
        "finished_s": finished.finished_s,
        "phases_ms": json.dumps(dict(finished.phases_ms)),
    }


Row = sqlite3.Row | Mapping[str, Any]


def to_operation(row: Row) -> Operation:
    """The operation of a row. Raises ValueError, KeyError or TypeError on a damaged one."""
    return Operation(
        id=row["id"],
        kind=Kind(row["kind"]),
        target=tuple(json.loads(row["target"])),
        goal=_goal(json.loads(row["goal"])),
        boot_id=row["boot_id"],
        requested_by=row["requested_by"],
        began_unix_s=row["began"],
        began_s=_monotonic(row, "began_s"),
        rollback=bool(row["rollback"]),
        drain_s=row["drain_s"],
        phase=Phase(row["phase"]),
        rolling_back=bool(row["rolling_back"]),
        reason=row["reason"],
    )


def to_finished(row: Row) -> Finished:
    """The closed operation of a row. Raises like `to_operation`."""
    return Finished(
        operation=to_operation(row),
        outcome=Outcome(row["outcome"]),
        message=row["message"],
        finished_unix_s=row["finished"],
        finished_s=_monotonic(row, "finished_s"),
        phases_ms=json.loads(row["phases_ms"]),
    )


def _monotonic(row: Row, column: str) -> float:
    """Rows of older releases have none."""
    return float((row[column] if column in row.keys() else None) or 0.0)  # noqa: SIM118 - a sqlite3.Row


def _goal(raw: dict[str, Any]) -> Goal:
    commit = raw["commit"]
    return Goal(
        stop=tuple(raw["stop"]),
        start=tuple(raw["start"]),
        restore=tuple(raw["restore"]),
        kept=tuple(raw.get("kept", ())),  # absent in rows of older releases
        commit=None if commit is None else tuple(commit),
        hold_until=raw["hold_until"],
        claim=tuple(raw.get("claim", ())),  # likewise
    )
