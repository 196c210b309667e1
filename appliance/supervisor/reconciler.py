"""Reconciler of the box while no operation runs: holds begin and end, crashed profiles restart.

======================================  =============================================
what it finds                           what it does
======================================  =============================================
a timed hold that has passed            ends it and starts the committed profiles
a hold kept on disk, its unit inactive  starts the unit, unless a profile serves
a profile that serves during a hold     ends the hold: somebody has started it past the conflict
a committed profile that crashed        starts it, with growing pauses (switch.repair)
one evicted by hand by a rival that is  likewise
lost by accident
anything started or stopped by hand     nothing
a command of an operator runs           nothing until it has ended
======================================  =============================================
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from appliance.model.errors import StoreError
from appliance.model.journal_events import JournalEvent, event_fields
from appliance.model.observed import ActiveState, Observed
from appliance.model.operations import Finished, HoldUntil, Kind, Outcome
from appliance.model.profile import Catalogue
from appliance.switch.goals import in_the_way
from appliance.switch.repair import (
    WINDOW_S,
    evicted_in_vain,
    left_by_choice,
    left_by_hold,
    stopped_by_choice,
    to_repair,
)
from appliance.system.ports import Clock, Commitment, Host, Store, Units

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


_log = logging.getLogger(__name__)

_HOLD_ENDED: Final = event_fields(JournalEvent.HOLD_ENDED)


class Reconciler:
    """Reconciler that makes units agree with the hold and the committed names."""

    def __init__(
        self, *, units: Units, host: Host, store: Store, commitment: Commitment, clock: Clock
    ) -> None:
        self._units = units
        self._host = host
        self._store = store
        self._commitment = commitment
        self._clock = clock
        self._history = OperationHistory(store)
        self._hold_seen = False

    async def reconcile(self, observed: Observed, catalogue: Catalogue) -> tuple[str, ...]:
        """Make the hold agree with its file; return profiles to start now. Raises `UnitError`."""
        if not observed.run.idle:
            return ()  # a command has the devices, though its operation is no longer known
        committed = tuple(n for n in self._commitment.committed() if n in catalogue)
        now = self._clock.unix_s()
        until = self._commitment.hold_until()
        if isinstance(until, float) and until <= now:
            left = left_by_hold(
                until,
                committed=committed,
                observed=observed,
                catalogue=catalogue,
                attempts=await self._store.repairs(until),
            )
            await self._end_hold(observed, left)
        else:
            left = ()
            await self._keep_hold(observed, until)
        if all(observed.unit(name).serving for name in committed):
            return ()
        newest = await self._history.newest()
        stopped = stopped_by_choice(committed, observed, newest, self._units.boot_id)
        committed = tuple(name for name in committed if name not in stopped)
        if not committed:
            return ()
        refusals = await self._host.gate_refusals()
        evicted = await self._evicted(committed, observed, catalogue, refusals)
        return to_repair(
            committed=committed,
            observed=observed,
            catalogue=catalogue,
            refusals=refusals,
            attempts=await self._store.repairs(now - WINDOW_S),
            now_unix_s=now,
            left=(*left, *evicted),
        )

    async def _evicted(
        self,
        committed: Sequence[str],
        observed: Observed,
        catalogue: Catalogue,
        refusals: Mapping[str, str],
    ) -> tuple[str, ...]:
        """Return the committed profiles that a rival evicted in vain; reads the units' details."""
        idle = [name for name in committed if observed.unit(name).idle]
        rivals = frozenset[str]().union(*(in_the_way(name, catalogue) for name in idle))
        if not any(n in refusals or observed.unit(n).active is ActiveState.FAILED for n in rivals):
            return ()
        found = evicted_in_vain(
            committed=idle,
            observed=await self._units.observe((*idle, *rivals), full=True),
            catalogue=catalogue,
            refusals=refusals,
        )
        by_choice = left_by_choice(await self._store.last(), self._units.boot_id)
        return tuple(name for name in found if name not in by_choice)

    async def _keep_hold(self, observed: Observed, until: HoldUntil) -> None:
        """Make the hold's unit and its file agree: an act by hand prevails."""
        if observed.hold_active and observed.serving():
            # Started past the conflict with the hold (--job-mode=ignore-dependencies).
            _log.info("the hold was ended by a start by hand", extra=_HOLD_ENDED)
            await self._units.stop_hold()
            await self._forget_hold()
        elif observed.hold_active:
            self._hold_seen = True
        elif until is not None and (self._hold_seen or observed.busy()):
            _log.info("the hold was ended by hand", extra=_HOLD_ENDED)
            await self._forget_hold()
        elif until is not None:
            await self._units.start_hold()

    async def _end_hold(self, observed: Observed, left: tuple[str, ...]) -> None:
        """End a hold; its file stays until the profiles that the hold stopped are back."""
        if observed.hold_active:
            _log.info("the hold has ended", extra=_HOLD_ENDED)
            await self._units.stop_hold()
        elif not left:
            await self._forget_hold()

    async def _forget_hold(self) -> None:
        self._hold_seen = False
        try:
            await self._commitment.set_hold(None)
        except StoreError as error:
            _log.error("%s", error)
