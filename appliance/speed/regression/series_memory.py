"""Memory of one series beside its detector, and the JSON of such memories."""

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from appliance.model.json_reader import decode_json
from appliance.model.words import Series
from appliance.speed.regression.circumstances import Circumstances
from appliance.speed.regression.restart_level import RestartLevel
from appliance.wire.typed_json import from_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesMemory:
    """State of a record beside that of its detector; None: not known, or not yet."""

    first: bool = True
    """Whether the baseline that is learned, or that will be, is the first one."""
    accepted_unix_s: float | None = None
    rates: tuple[float, ...] = ()
    """Last rates, freed of their prompts' offsets, the latest last."""
    good_unix_s: float | None = None
    """Last reading that spoke against a loss."""
    good_since_start: bool = True
    """Whether it was after the last start."""
    low_unix_s: float | None = None
    """First reading since that did not."""
    loss_since_unix_s: float | None = None
    """Beginning of the loss that is reported; None: none is."""
    cause: str | None = None
    likely: str = ""
    tokens_per_step: float = 1.0
    """Average of the last readings."""
    restart: RestartLevel = field(default_factory=RestartLevel)
    usual: Circumstances | None = None
    """Circumstances of the good readings."""
    doubtful: Circumstances | None = None
    """Circumstances of the low readings since the last good one."""


def memory_key(series: Series) -> str:
    """Return the second part of the key under which the store has a record's memory."""
    return f"{series}-record"


_Memory = TypeVar("_Memory")


def encode_memory(memory: "DataclassInstance") -> str:
    """Return a memory as JSON."""
    return json.dumps(asdict(memory, dict_factory=_known), separators=(",", ":"))


def decode_memory(kind: type[_Memory], text: str) -> _Memory:
    """Return the memory of its JSON. Raises ValueError for any other text."""
    return from_json(kind, decode_json(text))


def _known(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Leave out what is not known: None is the default of those fields."""
    return {name: value for name, value in pairs if value is not None}
