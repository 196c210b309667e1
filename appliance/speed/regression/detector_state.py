"""State of a regression detector, and its JSON: about 1 kB, exact to the last bit.

All times are minutes on the clock of the caller; None is a time that has not been.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from appliance.model.json_reader import decode_json
from appliance.speed.regression.benign import BenignModel
from appliance.speed.regression.sessions import SessionSpread

VERSION: Final = 1
_LARGEST: Final = 1e12
"""Bound of all numbers in a state: minutes since 1970 are below it for 1900 years, also in a trial that
runs ten thousand times faster."""


class DetectorPhase(StrEnum):
    UNSET = "unset"
    LEARNING = "learning"
    HEALTHY = "healthy"
    CONFIRMING = "confirming"
    DWELLING = "dwelling"
    REGRESSED = "regressed"
    RECOVERING = "recovering"


@dataclass(slots=True, kw_only=True)
class DetectorState:
    """State of one detector."""

    phase: DetectorPhase = DetectorPhase.UNSET
    wake_min: float | None = None
    """Minute at which a further reading is wanted; None: the schedule suffices."""
    now_min: float | None = None
    """Minute of the last call."""
    since_min: float = 0.0
    """Beginning of the burst, dwell or recovery, or of the soak of a baseline."""
    accepted_min: float | None = None
    start_min: float | None = None
    """Last start of the backend."""
    hint_min: float | None = None
    """Hint since which no reading has been good."""
    reading_min: float | None = None
    """Last reading."""
    low_min: float | None = None
    """First of the two low readings that end a dwell."""
    recovered_min: float | None = None
    patience: float = 1.0
    """Factor on the dwell and on the limit of the slow path while the speed flaps."""
    slow: bool = False
    """Whether the burst belongs to the slow path."""
    shortfall: float = 0.0
    """Sum of shortfalls of the slow path."""
    credit: float = 0.0
    """Sum of readings above the middle of a small loss."""
    drop: float = 0.0
    """Share of speed lost, as last reported."""
    recent: list[float] = field(default_factory=list)
    """Last healthy residuals."""
    readings: list[float] = field(default_factory=list)
    """Residuals of the burst and the dwell."""
    learning: dict[str, list[float]] = field(default_factory=dict)
    """Log rates of a baseline that is not complete, by prompt."""
    first_day: bool = True
    """Whether the baseline still waits for the correction after its first day."""
    day_readings: int = 0
    day_sum: float = 0.0
    benign: BenignModel = field(default_factory=BenignModel)
    sessions: SessionSpread = field(default_factory=SessionSpread)

    def shift(self, minutes: float) -> None:
        """Move all times, as after a clock was set."""
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name.endswith("_min") and value is not None:
                setattr(self, each.name, value + minutes)


def encode(state: DetectorState) -> str:
    """Return the state as JSON."""
    return json.dumps({"version": VERSION, **asdict(state)}, separators=(",", ":"))


def decode(text: str) -> DetectorState:
    """Return the state of its JSON.

    Raises:
        ValueError: The text is no state, or one of another version.
    """
    document = decode_json(text)
    if not isinstance(document, dict) or document.pop("version", None) != VERSION:
        raise ValueError(f"detector state: not of version {VERSION}")
    return DetectorState(**_checked(DetectorState(), document))


def _checked(like: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a dataclass after a check of names and types."""
    names = {each.name for each in fields(like)}
    if names != set(document):
        raise ValueError(f"detector state: fields differ: {sorted(names ^ set(document))}")
    return {name: _value(name, getattr(like, name), document[name]) for name in names}


def _value(name: str, like: object, value: Any) -> Any:
    """Return the value of a field, which must be of the kind that a new state has there."""
    if isinstance(like, BenignModel | SessionSpread) and isinstance(value, dict):
        return type(like)(**_checked(like, value))
    if isinstance(like, DetectorPhase):
        return DetectorPhase(value)
    if isinstance(like, dict) and isinstance(value, dict):
        many = list(value.values())
        fits = all(map(_are_numbers, many)) if name == "learning" else _are_numbers(many)
    elif isinstance(like, list):
        fits = _are_numbers(value)
    elif isinstance(like, bool):
        fits = isinstance(value, bool)
    elif isinstance(like, int):
        fits = type(value) is int and 0 <= value <= _LARGEST
    else:
        fits = _are_numbers([value]) or (like is None and value is None)
    if not fits:
        raise ValueError(f"detector state: {name} is {str(value)[:40]!r}")
    return value


def _are_numbers(values: object) -> bool:
    """Tell whether these are numbers that a state can have; NaN and infinity are none."""
    return isinstance(values, list) and all(
        type(value) in {int, float} and abs(value) <= _LARGEST for value in values
    )
