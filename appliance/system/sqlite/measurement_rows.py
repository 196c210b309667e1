"""Codec of measurements as rows: columns for numbers, JSON for evidence.

The columns are named as the fields of `appliance.model.measurements`, whose annotations check every
row that is read.
"""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Final

from appliance.model.json_reader import decode_json
from appliance.model.measurements import MeasurementEvent, Probe, RawTimings, TimingSource
from appliance.wire.typed_json import from_json

Row = sqlite3.Row | Mapping[str, Any]
RAW_COLUMNS: Final = tuple(field.name for field in fields(RawTimings))
_NUMBERS: Final = RAW_COLUMNS[1:]
_CLOCKS: Final[Mapping[str, TimingSource]] = {source.value: source for source in TimingSource}
_NESTED: Final = frozenset({"raw", "evidence"})
_PLAIN_COLUMNS: Final = tuple(field.name for field in fields(Probe) if field.name not in _NESTED)


def to_probe_row(probe: Probe) -> dict[str, Any]:
    """Return the columns of a probe; those of its times are NULL if nothing was measured."""
    evidence = asdict(probe.evidence, dict_factory=_told)
    return {
        **{name: getattr(probe, name) for name in _PLAIN_COLUMNS},
        **{name: getattr(probe.raw, name, None) for name in RAW_COLUMNS},
        "evidence": json.dumps(evidence, separators=(",", ":")),
    }


def to_probe(row: Row) -> Probe:
    """Return the probe of a row. Raises ValueError for a damaged one."""
    measured = row["source"] is not None
    document = {name: row[name] for name in _PLAIN_COLUMNS}
    document["raw"] = {name: row[name] for name in RAW_COLUMNS} if measured else None
    document["evidence"] = decode_json(row["evidence"])
    return from_json(Probe, document)


def to_raw(values: Sequence[Any]) -> RawTimings:
    """Return the times of the columns `RAW_COLUMNS`, unchecked, of which a history needs thousands.

    Raises ValueError for an unknown clock.
    """
    source, *numbers = values
    clock = _CLOCKS.get(source)
    if clock is None:
        raise ValueError(f"{source} is no clock")
    return RawTimings(source=clock, **dict(zip(_NUMBERS, numbers, strict=True)))


def to_event_row(event: MeasurementEvent) -> dict[str, Any]:
    """Return the columns of an event."""
    return {field.name: getattr(event, field.name) for field in fields(event)}


def to_event(row: Row) -> MeasurementEvent:
    """Return the event of a row. Raises ValueError for a damaged one."""
    return from_json(MeasurementEvent, dict(row))


def _told(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out what the driver did not tell: None is the default of those fields."""
    return {name: value for name, value in pairs if value is not None}
