"""Base of the shapes that cross sockets: frozen msgspec Structs, checked by their annotations on the way in."""

from typing import Annotated, Any, Self, dataclass_transform

import msgspec

from appliance.model.names import PROFILE_NAME

MAX_WHOLE = 2**63 - 1
"""Highest whole number in a request, as far as SQLite counts."""
Whole = Annotated[int, msgspec.Meta(ge=0, le=MAX_WHOLE)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]
"""Seconds up to thirty years: more is a mistake, and no clock may overflow."""
ProfileName = Annotated[str, msgspec.Meta(pattern=PROFILE_NAME)]
UnixTime = Annotated[float, msgspec.Meta(ge=0, lt=1e11)]
"""Unix time in seconds, below what overflows a clock."""


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True):
    """Frozen Struct of which a document is made."""

    def fields(self) -> dict[str, Any]:
        """Return the values by name, in the order of the fields."""
        return msgspec.structs.asdict(self)

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with other values."""
        return msgspec.structs.replace(self, **changes)


class Document(Record, kw_only=True):
    """Part of a document that is written whole: defaults are for what another release leaves out."""
