"""Boot choice, read and written for operations: the names that a boot serves, or the hold."""

import contextlib

from appliance.model.errors import ApplianceError, StoreError
from appliance.model.observed import Observed
from appliance.model.operations import HoldUntil, Operation, has_run_out
from appliance.switch.goals import writes_of
from appliance.system.ports import Clock, Commitment, Units


class BootChoice:
    """Boot choice: the commitment's two files, and the hold's unit that agrees with one of them."""

    def __init__(self, *, commitment: Commitment, units: Units, clock: Clock) -> None:
        self._commitment = commitment
        self._units = units
        self._clock = clock

    def committed(self) -> tuple[str, ...]:
        """Return the names to serve after a boot, sorted."""
        return self._commitment.committed()

    def hold_until(self) -> HoldUntil:
        """Return the hold that a boot shall keep."""
        return self._commitment.hold_until()

    def holds(self) -> bool:
        """Tell whether a boot now would hold. The hold's unit may start a moment later."""
        until = self.hold_until()
        return until is not None and not has_run_out(until, self._clock.unix_s())

    async def reserve(self, operation: Operation) -> str:
        """Reserve room for what `operation` writes; returns why there is none, empty: reserved."""
        try:
            await self._commitment.reserve(writes_of(operation, self.committed()))
        except StoreError as error:
            return str(error)
        return ""

    async def release(self) -> None:
        """Release reserved room that was not used."""
        await self._commitment.release()

    async def write(self, operation: Operation) -> None:
        """Write all changes of a finished `operation`, or leave the boot's files as they were.

        Raises:
            StoreError: a file could not be written.
            UnitError: the hold's unit could not be started.
        """
        writes = writes_of(operation, self.committed())
        names, until = self.committed(), self.hold_until()
        try:
            if writes.names is not None:
                await self._commitment.commit(writes.names)
            if writes.sets_hold:
                await self._commitment.set_hold(writes.hold)
            if writes.hold is not None:
                await self._units.start_hold()
        except ApplianceError:
            # Where this fails too, a boot follows the new names, and the status says so.
            with contextlib.suppress(StoreError):
                if self.committed() != names:
                    await self._commitment.commit(names)
                if self.hold_until() != until:
                    await self._commitment.set_hold(until)
            raise

    async def leave_out(self, name: str) -> None:
        """Take one of the names out of what a boot serves. Raises `StoreError`; the names then stay."""
        await self._commitment.commit(n for n in self.committed() if n != name)

    async def restore_hold(self, observed: Observed) -> None:
        """Start the hold's unit again where an operation that goes back has ended it."""
        if self.holds() and not observed.hold_active:
            await self._units.start_hold()
