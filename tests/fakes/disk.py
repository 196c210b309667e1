"""What a supervisor keeps on disk."""

from dataclasses import dataclass, field

from appliance.domain.errors import StoreError
from appliance.domain.operations import Finished, HoldUntil, Operation
from appliance.planning.switch.goals import Writes


@dataclass
class Disk:
    """What survives the supervisor."""

    committed: tuple[str, ...]
    hold_until: HoldUntil = None
    full: bool = False
    """Nothing can be written but what was reserved before."""
    failing: bool = False
    """No write succeeds, though what it needs may be reserved."""
    reserved: Writes = field(default_factory=Writes)
    row: Operation | None = None
    """The operation that is not finished."""
    ended: list[Finished] = field(default_factory=list)
    repairs: dict[str, list[float]] = field(default_factory=dict)

    def reserve(self, writes: Writes) -> None:
        """Take the room for `writes`. Raises `StoreError`."""
        if self.full and (writes.names is not None or writes.hold is not None):
            raise StoreError("no space left on the device")
        self.reserved = writes

    def commit(self, names: tuple[str, ...]) -> None:
        """Replace the committed names. Raises `StoreError`."""
        if self.failing or (self.full and self.reserved.names != names):
            raise StoreError("the names cannot be written")
        self.committed = names

    def set_hold(self, until: HoldUntil) -> None:
        """Replace the hold. Raises `StoreError`."""
        if until == self.hold_until:
            return
        if self.failing or (self.full and until is not None and self.reserved.hold != until):
            raise StoreError("the hold cannot be written")
        self.hold_until = until
