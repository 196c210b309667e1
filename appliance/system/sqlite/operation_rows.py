"""Codec of operations as rows: JSON for sets, columns for values that queries need.

The database and the spool file both hold these rows, in the form of one schema version. Versions:

1  `rolling_back` 0 or 1, and the reason's text told why; `began_s` and `finished_s` were added later
2  `cause` and `finish_cause` (`appliance.model.operations.Cause`); `rolling_back` is gone
3  `ends`
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from appliance.model.json_reader import decode_json
from appliance.model.operations import Cause, Finished, Goal, Kind, Operation, Outcome
from appliance.wire.typed_json import from_json

SCHEMA_VERSION: Final = 3
Row = sqlite3.Row | Mapping[str, Any]


_PLAIN_COLUMNS: Final = (
    *("id", "kind", "boot_id", "requested_by", "drain_s", "phase", "cause", "reason"),
)


def to_row(operation: Operation) -> dict[str, Any]:
    """Return the columns of an operation, without its id."""
    return {
        "kind": operation.kind.value,
        "target": json.dumps(operation.target),
        # Not asdict: it copies every value, which took half of the time of a row.
        "goal": json.dumps({name: getattr(operation.goal, name) for name in Goal.__slots__}),
        "boot_id": operation.boot_id,
        "requested_by": operation.requested_by,
        "began": operation.began_unix_s,
        "began_s": operation.began_s,
        "rollback": int(operation.rollback),
        "drain_s": operation.drain_s,
        "phase": operation.phase.value,
        "ends": json.dumps(dict(operation.ends)),
        "cause": operation.cause,
        "reason": operation.reason,
    }


def to_finished_row(finished: Finished) -> dict[str, Any]:
    """Return every column of an operation that is over."""
    return {
        **to_row(finished.operation),
        "id": finished.operation.id,
        "outcome": finished.outcome.value,
        "message": finished.message,
        "finish_cause": finished.cause,
        "finished": finished.finished_unix_s,
        "finished_s": finished.finished_s,
        "phases_ms": json.dumps(dict(finished.phases_ms)),
    }


def to_operation(row: Row) -> Operation:
    """Return the operation of a row. Raises an error of `database.DAMAGE` for a damaged one."""
    return from_json(Operation, _operation_document(row))


def _operation_document(row: Row) -> Mapping[str, object]:
    return {
        **{name: row[name] for name in _PLAIN_COLUMNS},
        "target": decode_json(row["target"]),
        "goal": decode_json(row["goal"]),
        "began_unix_s": row["began"],
        "began_s": row["began_s"] or 0.0,
        "rollback": bool(row["rollback"]),
        "ends": {phase: int(times) for phase, times in decode_json(row["ends"]).items()},
    }


def to_finished(row: Row) -> Finished:
    """Return the closed operation of a row. Raises like `to_operation`."""
    document = {
        "operation": _operation_document(row),
        "outcome": row["outcome"],
        "message": row["message"],
        "cause": row["finish_cause"],
        "finished_unix_s": row["finished"],
        "finished_s": row["finished_s"] or 0.0,
        "phases_ms": decode_json(row["phases_ms"]),
    }
    finished = from_json(Finished, document)
    if not all(isinstance(value, float | int) for value in finished.phases_ms.values()):
        raise ValueError("the time of a phase is no number")
    return finished


def brought_up(row: Row, version: int) -> dict[str, Any]:
    """Return a row of an earlier version in the form of this one. Raises like `to_operation`."""
    found = from_version_1(row) if version == 1 else dict(row)
    found.setdefault("ends", "{}")
    return found


# --- version 1 -----------------------------------------------------------------------

_CANCELLED_1: Final = "cancelled"
_COMMAND_ENDED_1: Final = "the command ended"
"""Beginning of the reason of a run whose command was over, in version 1."""
_WITH_CAUSE: Final = frozenset({Outcome.ROLLED_BACK, Outcome.FAILED, Outcome.REFUSED})


def from_version_1(old: Row) -> dict[str, Any]:
    """Return a row of version 1 in the form of version 2. Raises like `to_operation`."""
    row = dict(old)
    row["cause"] = _cause_1(row["kind"], row["reason"]) if row.pop("rolling_back") else None
    row.setdefault("began_s", None)
    if row.get("outcome") is not None:
        is_undone = row["outcome"] in _WITH_CAUSE
        # Where the roll-back failed, the message is longer than the reason.
        is_cancelled = row["message"] == _CANCELLED_1
        cause = Cause.CANCELLED if is_cancelled else Cause.FAILURE
        row["finish_cause"] = cause if is_undone else None
        row.setdefault("finished_s", None)
    return row


def _cause_1(kind: str, reason: str) -> Cause:
    """Return the cause that a reason of version 1 stands for."""
    if kind == Kind.RUN and reason.startswith(_COMMAND_ENDED_1):
        return Cause.COMMAND_ENDED
    return Cause.CANCELLED if reason == _CANCELLED_1 else Cause.FAILURE
