"""Runs one operation: observe, decide, do, until it is finished.

Every decision is `planning.switch.next_action.next_action`; this module only does what it says and
remembers that it did. Its memory may be lost at any time: the row in the store is enough to
go on, because each step is harmless when repeated.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, assert_never

from appliance.domain.claims import Claim
from appliance.domain.errors import ApplianceError, BackendError, StoreError
from appliance.domain.gateway import State
from appliance.domain.memory import GroupMemory
from appliance.domain.observed import Observed, RunReport
from appliance.domain.operations import (
    Cause,
    Finished,
    Kind,
    Operation,
    Phase,
    RunCaller,
    has_run_out,
)
from appliance.domain.profile import Applied, Catalogue
from appliance.planning.admission.preflight import Finding, Level, findings, leaving_of, refusal
from appliance.planning.admission.run import run_findings
from appliance.planning.status.log_excerpt import LINES_READ, excerpt
from appliance.planning.switch.actions import (
    Action,
    BeginRestore,
    BeginRollback,
    Check,
    Commit,
    DrainRequests,
    Finish,
    HoldRequests,
    Start,
    StartRun,
    Steps,
    Stop,
    StopRun,
    Wait,
    WarmUp,
)
from appliance.planning.switch.boot_choice import Writes, writes_of
from appliance.planning.switch.closing_event import closing_event
from appliance.planning.switch.next_action import next_action, reverse_operation
from appliance.planning.switch.placement import misplaced, unlocked
from appliance.supervisor.event_feed import Feed
from appliance.supervisor.gateway_routes import route_state
from appliance.supervisor.outside import Outside
from appliance.supervisor.phase_times import PhaseTimer

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0
_LOOK_AT_GATE_S = 0.25
"""Memory comes back within a second or two, and people watch it do so."""
_LOOK_AT_COMMAND_S = 5.0
"""A command may run for days, and its end is signalled: the watchdog is all that looks need."""
_LOOK_AGAIN_AFTER_S = {Phase.RELEASE: _LOOK_AT_GATE_S, Phase.RUN: _LOOK_AT_COMMAND_S}
T = TypeVar("T")


async def preflight(
    operation: Operation, catalogue: Catalogue, observed: Observed, outside: Outside
) -> tuple[Finding, ...]:
    """Every finding on `operation` as the box is now. Changes nothing."""
    goal = operation.goal
    host = outside.host
    claim = Claim(devices=frozenset(goal.claim))
    with_gpus = bool(claim.gpus) or any(catalogue[n].gpus for n in goal.start)
    involved = {*goal.start, *observed.busy()}
    peaks = {n: p for n in involved if (p := outside.peaks.peak(n)) is not None}
    box, groups, marks, facts = await asyncio.gather(
        host.box(with_gpus=with_gpus),
        _groups(leaving_of(goal, catalogue, observed).running, outside),
        outside.store.marks(),
        asyncio.gather(*(host.facts(catalogue[name]) for name in goal.start)),
    )
    found = findings(
        operation.kind,
        goal,
        catalogue=catalogue,
        observed=observed,
        marks=marks,
        facts=dict(zip(goal.start, facts, strict=True)),
        box=box,
        peaks=peaks,
        groups=groups,
    )
    return (*found, *run_findings(operation.kind, goal, observed, box))


async def _groups(leaving: Sequence[Applied], outside: Outside) -> Mapping[str, GroupMemory]:
    """Main memory of what leaves, by profile; those that cannot be read are absent."""
    found: dict[str, GroupMemory] = {}
    if any(applied.gpus for applied in leaving):
        return found  # what a driver pins for them would be missing
    for applied in leaving:
        path = await outside.units.control_group(applied.name)
        group = await outside.host.group(path) if path else None
        if group is not None:
            found[applied.name] = group
    return found


class Transaction:
    """One operation on its way. `feed` tells its story; `run` lives it."""

    def __init__(
        self,
        operation: Operation,
        catalogue: Catalogue,
        outside: Outside,
        *,
        caller: RunCaller | None = None,
        on_look: Callable[[Observed], None] = lambda _observed: None,
    ) -> None:
        self.operation = operation
        self.feed = Feed()
        self._catalogue = catalogue
        self._out = outside
        self._caller = caller
        self._on_look = on_look
        self._steps = Steps()
        self._timer = PhaseTimer(self.feed, outside.clock)
        self._cancel = asyncio.Event()
        self._log_lines: tuple[str, ...] = ()
        self._cleared: set[str] = set()

    @property
    def text(self) -> str:
        """What the current phase says."""
        return self._timer.text

    def gateway_state(self, observed: Observed) -> State:
        """What clients meet while this runs."""
        operation = None if self._steps.committed else self.operation
        return route_state(
            self._out, self._catalogue, observed, operation, started=self._steps.started
        )

    def cancel(self) -> bool:
        """Ask for a roll-back; False: it is too late, or it is rolling back already."""
        if self.operation.rolling_back or self._steps.committed:
            return False
        self._cancel.set()
        return True

    async def run(self) -> Finished:
        """Live the operation to its end. Raises `UnitError` when systemd cannot be read."""
        look_closer = False
        while True:
            change = self._out.units.change()
            observed = await self._out.units.observe(self._catalogue, full=look_closer)
            self._on_look(observed)
            refusals = await self._out.host.refusals() if self._steps.started else {}
            self._steps = replace(
                self._steps,
                cancelled=self._cancel.is_set(),
                # Seen running: when it is gone it is over, whoever started it.
                run_started=self._steps.run_started or not observed.run.idle,
            )
            action = next_action(
                self.operation,
                self._steps,
                observed,
                self._catalogue,
                refusals,
                report=await self._report(observed),
            )
            if isinstance(action, Finish):
                return await self._finish(action, observed)
            if isinstance(action, Wait):
                await self._enter(action.phase, action.text)
                # What an engine says about itself is asked for only while nothing happens.
                pause_s = _LOOK_AGAIN_AFTER_S.get(action.phase, _LOOK_AGAIN_S)
                look_closer = await self._unless_cancelled(change.wait(pause_s)) is False
                continue
            look_closer = False
            try:
                await self._do(action, observed)
            except ApplianceError as error:
                self._steps = replace(self._steps, failure=str(error))

    async def _report(self, observed: Observed) -> RunReport | None:
        """What a command that is over has left."""
        if self.operation.kind is not Kind.RUN or not observed.run.idle:
            return None
        return await self._out.host.run_report()

    async def _do(self, action: Action, observed: Observed) -> None:
        match action:
            case Check():
                await self._check(observed)
            case HoldRequests():
                await self._enter(Phase.HOLD)
                held = sorted(self.gateway_state(observed).held)
                self._told(await self._out.gateway.hold(held))
                self._steps = replace(self._steps, held=True)
            case DrainRequests(names):
                await self._drain(names)
            case Stop() | Start() | StartRun() | StopRun():
                await self._queue(action)
            case WarmUp(name):
                await self._warm_up(name)
            case Commit():
                await self._commit(observed)
            case BeginRollback(reason, cause, phase):
                await self._begin_rollback(reason, cause, phase or self.operation.phase)
            case BeginRestore(reason):
                await self._enter(Phase.RUN, reason)
                self._timer.end()
                self._reverse(Cause.COMMAND_ENDED, reason)
            case Wait() | Finish():
                pass  # the loop's own
            case never:
                assert_never(never)

    async def _queue(self, action: Stop | Start | StartRun | StopRun) -> None:
        """Ask systemd for a job."""
        units, steps = self._out.units, self._steps
        match action:
            case Stop(name):
                await self._enter(Phase.STOP, f"{name}: SIGTERM")
                await units.stop(name)
                self._steps = replace(steps, stopped=steps.stopped | {name})
            case Start(name):
                await self._enter(Phase.RELEASE, f"{name}: waiting for the gate")
                await self._clear_start_limits((name,))
                await units.start(name)
                self._steps = replace(steps, started=steps.started | {name})
            case StartRun():
                await self._enter(Phase.RELEASE, "waiting for the command")
                await units.start_run()
                self._steps = replace(steps, run_started=True)
            case StopRun():
                await self._enter(Phase.STOP, "the command: SIGTERM")
                await units.stop_run()
                self._steps = replace(steps, run_stopped=True)

    async def _check(self, observed: Observed) -> None:
        self._timer.enter(Phase.PREFLIGHT)
        if self._caller is not None:
            claim = Claim(devices=frozenset(self.operation.goal.claim))
            self._out.tickets.issue(self.operation.id, self._caller, claim)
        found = await preflight(self.operation, self._catalogue, observed, self._out)
        for finding in found:
            if finding.level is not Level.REFUSE:
                self._timer.tell(finding.text)
        refused = refusal(found)
        if not refused:
            refused = await self._reserve()
        if not refused:  # else a unit that systemd gave up on would no longer look like one
            await self._clear_start_limits(self.operation.goal.start)
        self._steps = replace(self._steps, checked=True, failure=refused)

    async def _reserve(self) -> str:
        """Make sure that the commit can be written; returns why it cannot, empty: it can."""
        try:
            await self._out.commitment.reserve(self._writes())
        except StoreError as error:
            return str(error)
        return ""

    def _writes(self) -> Writes:
        return writes_of(self.operation, self._out.commitment.committed())

    async def _clear_start_limits(self, names: tuple[str, ...]) -> None:
        """Once for each profile and direction; early, while there is something to wait for."""
        names = tuple(name for name in names if name not in self._cleared)
        self._cleared |= set(names)
        await asyncio.gather(*(self._out.units.clear_start_limit(name) for name in names))

    async def _drain(self, names: tuple[str, ...]) -> None:
        await self._enter(Phase.DRAIN)
        asked = self.operation.drain_s
        limit = max((self._catalogue[n].deadlines.drain_s for n in names), default=0.0)
        drained = self._out.gateway.drain(names, limit if asked is None else asked)
        told = await self._unless_cancelled(drained)
        if not self._cancel.is_set():
            self._told(told)
        self._steps = replace(self._steps, drained=True)

    async def _warm_up(self, name: str) -> None:
        await self._enter(Phase.WARM_UP, f"{name}: one real request")
        applied = self._catalogue[name]
        asked = self._out.backend.warm_up(applied, timeout_s=applied.deadlines.warm_up_s)
        told = await self._unless_cancelled(asked)
        if told is None:
            return
        self._timer.tell(told)
        if problem := await self._misplacement(applied):
            raise BackendError(problem)
        self._steps = replace(self._steps, warm=self._steps.warm | {name})

    async def _misplacement(self, applied: Applied) -> str | None:
        """Why a model that answers is not where its profile says."""
        host = self._out.host
        problem = None
        if applied.gpus:
            problem = misplaced(applied, await host.box(with_gpus=True))
        if problem is None and applied.locks_memory:
            group = await host.group(await self._out.units.control_group(applied.name))
            facts = await host.facts(applied)
            problem = unlocked(applied, group, model_bytes=facts.model_bytes)
        return problem

    async def _commit(self, observed: Observed) -> None:
        await self._enter(Phase.COMMIT)
        if self.operation.rolling_back:
            until, now = self._out.commitment.hold_until(), self._out.clock.unix_s()
            held = until is not None and not has_run_out(until, now)
            if held and not observed.hold_active:
                await self._out.units.start_hold()
        else:
            await self._write(self._writes())
        self._steps = replace(self._steps, committed=True)
        self._timer.tell(await self._out.gateway.release(self.gateway_state(observed)) or "")

    async def _write(self, writes: Writes) -> None:
        """Make all of `writes`, or leave what the next boot follows as it was."""
        commitment = self._out.commitment
        names, until = commitment.committed(), commitment.hold_until()
        try:
            if writes.names is not None:
                await commitment.commit(writes.names)
            if writes.sets_hold:
                await commitment.set_hold(writes.hold)
            if writes.hold is not None:
                await self._out.units.start_hold()
        except ApplianceError:
            # Where this fails too, a boot follows the new names, and the status says so.
            with contextlib.suppress(StoreError):
                if commitment.committed() != names:
                    await commitment.commit(names)
                if commitment.hold_until() != until:
                    await commitment.set_hold(until)
            raise

    async def _begin_rollback(self, reason: str, cause: Cause, failed: Phase) -> None:
        await self._enter(failed)
        _log.warning("operation %d rolls back: %s", self.operation.id, reason)
        self._timer.end(failed=reason)
        for name in self.operation.goal.start:
            if name in self._steps.started:
                tail = self._out.host.log_tail(
                    name, LINES_READ, since_unix_s=self.operation.began_unix_s
                )
                self._log_lines = excerpt(await tail)
        self._reverse(cause, reason)

    def _reverse(self, cause: Cause, reason: str) -> None:
        """Work from now on towards what served before."""
        steps, self._steps = self._steps, Steps(held=True, drained=True)
        self._cleared.clear()
        self.operation = reverse_operation(self.operation, steps, cause, reason)
        self._out.store.update(self.operation)

    async def _enter(self, phase: Phase, text: str = "") -> None:
        """Be in `phase`; a new one is stored before its first step is taken."""
        if self._timer.current is Phase.RELEASE and phase is not Phase.RELEASE:
            self._timer.tell(await self._released())
        self._timer.enter(phase, text, rolling_back=self.operation.rolling_back)
        if phase is not self.operation.phase:
            self.operation = replace(self.operation, phase=phase)
            self._out.store.update(self.operation)

    async def _released(self) -> str:
        """What the gate waited for; empty: for nothing, or nobody knows."""
        admissions = await self._out.host.admissions()
        words = {n: admissions[n] for n in sorted(self._steps.started) if n in admissions}
        several = len(self._steps.started) > 1
        return "; ".join(f"{n}: {word}" if several else word for n, word in words.items())

    def _told(self, text: str | None) -> None:
        if text is None:
            self._timer.skip("no gateway")
        else:
            self._timer.tell(text)

    async def _unless_cancelled(self, awaited: Coroutine[Any, Any, T]) -> T | None:
        """The result, or None when somebody cancels the operation first."""
        if self.operation.rolling_back:
            return await awaited
        work = asyncio.ensure_future(awaited)
        cancelled = asyncio.ensure_future(self._cancel.wait())
        try:
            await asyncio.wait({work, cancelled}, return_when=asyncio.FIRST_COMPLETED)
            return await work if work.done() else None
        finally:
            for task in (work, cancelled):
                task.cancel()
            await asyncio.gather(work, cancelled, return_exceptions=True)

    async def _finish(self, action: Finish, observed: Observed) -> Finished:
        # What failed before a roll-back has been told already; the last step itself worked.
        self._timer.end(failed="" if self._steps.committed else action.message)
        finished = Finished(
            operation=self.operation,
            outcome=action.outcome,
            message=action.message,
            cause=action.cause,
            finished_unix_s=self._out.clock.unix_s(),
            finished_s=self._out.clock.monotonic_s(),
            phases_ms=self._timer.milliseconds,
        )
        await self._out.commitment.release()
        if self.operation.kind is Kind.RUN:
            self._out.tickets.revoke()
        await self._out.store.finish(finished)
        self.feed.publish(
            closing_event(
                finished,
                serving=observed.serving(),
                committed=self._out.commitment.committed(),
                log=self._log_lines,
            )
        )
        return finished
