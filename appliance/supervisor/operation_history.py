"""Questions about earlier operations, for the status and for the reconciler.

The store is read again only after another operation has ended, because every status asks.
"""

from collections.abc import Sequence
from typing import Final

from appliance.model.operations import Finished, HoldUntil, Kind, Outcome
from appliance.system.ports import Store

_MOST: Final = 100
"""Number of operations that are looked through, newest first."""


class OperationHistory:
    """Reader of the operations on record."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._last_id: int | None = None
        self._newest: Sequence[Finished] = ()

    async def last_change(self, last: Finished | None) -> Finished | None:
        """Return the newest operation that was not refused; `last` is the newest of all."""
        if last is None or last.outcome is not Outcome.REFUSED:
            return last
        found = await self.newest(last)
        return next((one for one in found if one.outcome is not Outcome.REFUSED), None)

    async def held_by(self, until: HoldUntil) -> str | None:
        """Return the requester of the hold that is in force; None: there is none, or it is not known."""
        if until is None:
            return None
        found = await self.newest()
        holds = (one for one in found if one.operation.kind is Kind.HOLD)
        newest = next((one for one in holds if one.outcome is Outcome.DONE), None)
        is_this = newest is not None and _is_same(newest.operation.goal.hold_until, until)
        return newest.operation.requested_by if newest is not None and is_this else None

    async def newest(self, last: Finished | None = None) -> Sequence[Finished]:
        """Return the newest operations, newest first; `last` is the newest, None: it is read."""
        last = last or await self._store.last()
        last_id = None if last is None else last.operation.id
        if last_id != self._last_id:
            self._newest, self._last_id = await self._store.newest(_MOST), last_id
        return self._newest


def _is_same(one: HoldUntil, other: HoldUntil) -> bool:
    """Tell whether two holds are the same: the file of a hold has whole seconds."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        return abs(one - other) <= 1.0
    return one == other
