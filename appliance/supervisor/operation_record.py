"""Record of one operation: its row in the store, its phases with their times, its events."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace

from appliance.model.operations import Cause, Finished, Operation, Outcome, Phase, PhaseState
from appliance.system.ports import Clock, Store
from appliance.wire.control_events import EndedEvent, OperationChange, PhaseEvent


class EventFeed:
    """Events of one operation for any number of followers, late ones included.

    Progress events are not kept: a follower that comes late is sent the phases, not each step, and of the
    phase that runs its present time and text.

    Args:
        present: Returns the phase that runs, as it is now; None: none does.
    """

    def __init__(self, present: Callable[[], PhaseEvent | None]) -> None:
        self._present = present
        self._kept: list[OperationChange] = []
        self._followers: set[asyncio.Queue[OperationChange]] = set()

    def publish(self, event: OperationChange) -> None:
        """Hand an event to every follower. Never blocks."""
        if not (isinstance(event, PhaseEvent) and event.state == PhaseState.PROGRESS):
            self._kept.append(event)
        for queue in self._followers:
            queue.put_nowait(event)

    async def follow(self) -> AsyncIterator[OperationChange]:
        """Yield every event from the first on; ends after the operation's end."""
        queue: asyncio.Queue[OperationChange] = asyncio.Queue()
        *past, last = self._kept or (None,)
        for event in (*past, self._as_now(last)):
            if event is not None:
                queue.put_nowait(event)
        self._followers.add(queue)
        try:
            while True:
                event = await queue.get()
                yield event
                if isinstance(event, EndedEvent):
                    return
        finally:
            self._followers.discard(queue)

    def _as_now(self, last: OperationChange | None) -> OperationChange | None:
        """Return the last event that was kept, with the present figures if its phase still runs."""
        runs = isinstance(last, PhaseEvent) and last.state == PhaseState.STARTED
        return (self._present() or last) if runs else last


class OperationRecord:
    """Record of one operation and its present phase. Entering a phase ends the one before.

    Args:
        operation: The row, as it was begun or left open.
        store: Where the row is kept.
        clock: For the times.
    """

    def __init__(self, operation: Operation, *, store: Store, clock: Clock) -> None:
        self.feed = EventFeed(lambda: self._change_to(PhaseState.STARTED))
        self._operation = operation
        self._store = store
        self._clock = clock
        self._phase: Phase | None = None
        self._began_s = 0.0
        self._text = ""
        self._log = ""
        self._skipped = False
        self._rolling_back = False
        self._ms: dict[str, float] = {}

    @property
    def operation(self) -> Operation:
        """Return the row as it is now."""
        return self._operation

    @property
    def phase(self) -> Phase | None:
        """Return the phase that was entered last and has not ended."""
        return self._phase

    @property
    def text(self) -> str:
        """Return the last text about the present phase."""
        return self._text

    @property
    def phase_s(self) -> float:
        """Return how long the present phase has lasted; 0: there is none."""
        return 0.0 if self._phase is None else self._clock.monotonic_s() - self._began_s

    @property
    def phases_ms(self) -> Mapping[str, float]:
        """Return the milliseconds in each phase that has ended."""
        return dict(self._ms)

    def enter(self, phase: Phase, text: str = "") -> None:
        """Enter `phase`, or publish `text` about it; store a new phase before its first step."""
        rolling_back = self._operation.rolling_back
        if phase is self._phase and rolling_back == self._rolling_back:
            self.tell(text)
        else:
            self.end_phase()
            self._phase, self._began_s, self._text = phase, self._clock.monotonic_s(), text
            self._log = ""
            self._rolling_back, self._skipped = rolling_back, False
            self._publish(PhaseState.STARTED)
        if phase is not self._operation.phase:
            self.change(replace(self._operation, phase=phase))

    def tell(self, text: str) -> None:
        """Publish a text about the present phase, unless it repeats the last one."""
        if text and text != self._text:
            self._text = text
            self._publish(PhaseState.PROGRESS)

    def tell_log(self, line: str) -> None:
        """Publish the last line of the engine's log, unless it repeats the last one."""
        if line and line != self._log:
            self._log = line
            self._publish(PhaseState.PROGRESS)

    def skip(self, why: str) -> None:
        """Note that the present phase needs no step."""
        self._text, self._skipped = why, True

    def end_phase(self, *, failed: str = "") -> None:
        """End the present phase, if any; `failed`: why it failed, empty: it did not."""
        if self._phase is None:
            return
        state = PhaseState.SKIPPED if self._skipped else PhaseState.DONE
        if failed:
            state, self._text = PhaseState.FAILED, failed
        name = f"roll-back {self._phase}" if self._rolling_back else self._phase.value
        self._ms[name] = round(self._ms.get(name, 0.0) + self._elapsed_ms(), 1)
        self._publish(state)
        self._phase = None

    def change(self, operation: Operation) -> None:
        """Replace the row."""
        self._operation = operation
        self._store.update(operation)

    async def finish(self, outcome: Outcome, message: str, cause: Cause | None) -> Finished:
        """Close the row."""
        finished = Finished(
            operation=self._operation,
            outcome=outcome,
            message=message,
            cause=cause,
            finished_unix_s=self._clock.unix_s(),
            finished_s=self._clock.monotonic_s(),
            phases_ms=self.phases_ms,
        )
        await self._store.finish(finished)
        return finished

    def _elapsed_ms(self) -> float:
        return (self._clock.monotonic_s() - self._began_s) * 1000

    def _publish(self, state: PhaseState) -> None:
        if change := self._change_to(state):
            self.feed.publish(change)

    def _change_to(self, state: PhaseState) -> PhaseEvent | None:
        """Return the present phase in `state`, as it is now; None: there is none."""
        if self._phase is None:
            return None
        return PhaseEvent(
            phase=self._phase,
            state=state,
            text=self._text,
            ms=round(self._elapsed_ms(), 1),
            rolling_back=self._rolling_back,
            log=self._log if state is PhaseState.PROGRESS else "",
        )
