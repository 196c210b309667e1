"""What a supervisor keeps on disk."""

from dataclasses import dataclass, field

from appliance.domain.errors import StoreError
from appliance.domain.operations import Finished, HoldUntil, Operation


@dataclass
class Disk:
    """What survives the supervisor."""

    committed: tuple[str, ...]
    hold_until: HoldUntil = None
    full: bool = False
    row: Operation | None = None
    """The operation that is not finished."""
    ended: list[Finished] = field(default_factory=list)
    repairs: dict[str, list[float]] = field(default_factory=dict)

    def write(self) -> None:
        """Every write of what is committed or held goes through here."""
        if self.full:
            raise StoreError("no space left on the device")
