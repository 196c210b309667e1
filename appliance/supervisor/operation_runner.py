"""Runner of one operation: observe, decide, act, until the operation is finished.

Every decision is made by `switch.next_action.next_action`; this module carries it out and
remembers that it did. This memory may be lost at any time: the row in the store is enough to go on,
because each step is harmless when repeated. The module is long, because all actions change this one
memory.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, assert_never

from appliance.model.claims import Claim
from appliance.model.errors import ApplianceError, BackendError
from appliance.model.gateway import State
from appliance.model.journal_events import JournalEvent
from appliance.model.observed import Observed, RunReport
from appliance.model.operations import Cause, Finished, Kind, Operation, Phase, RunCaller
from appliance.model.profile import Catalogue
from appliance.routing.gateway_state import state_of
from appliance.status.journal_fields import operation_fields
from appliance.status.log_excerpt import LINES_READ, excerpt, short_line
from appliance.status.verification import failure_text, phase_text
from appliance.supervisor.boot_choice import BootChoice
from appliance.supervisor.engine_verifier import EngineVerifier
from appliance.supervisor.model_checks import ModelProof, Preflight
from appliance.supervisor.operation_record import EventFeed, OperationRecord
from appliance.switch.actions import (
    Action,
    BeginRestore,
    BeginRollback,
    Commit,
    DrainRequests,
    Finish,
    HoldRequests,
    RunPreflight,
    Start,
    StartRun,
    Steps,
    Stop,
    StopRun,
    VerifyEngine,
    Wait,
    WarmUpModel,
)
from appliance.switch.next_action import next_action, reverse_operation
from appliance.switch.outcomes import closing_event
from appliance.switch.preflight import phase_texts, refusal
from appliance.system.ports import Backend, Change, Clock, Gateway, Host, RunTickets, Store, Units

_log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 1.0
"""Pause between two looks; a signal of systemd's that is lost costs no more than this."""
_LOOK_AT_GATE_S = 0.25
"""Pause between looks at the gate: memory comes back within a second or two, and people watch."""
_LOOK_AT_COMMAND_S = 5.0
"""Pause between looks at a command: it may run for days, and its end is signalled; the watchdog
alone needs looks."""
_LOOK_AGAIN_AFTER_S = {Phase.RELEASE: _LOOK_AT_GATE_S, Phase.RUN: _LOOK_AT_COMMAND_S}
_ENGINE_PHASES = (Phase.START, Phase.LOAD)
_LOG_EVERY_S = 3.0
"""Pause between two readings of an engine's log, each of which starts a journalctl; and the age of a phase
from which on people wonder."""
_CHANGES_NO_UNIT = (
    RunPreflight,
    HoldRequests,
    DrainRequests,
    WarmUpModel,
    VerifyEngine,
    Commit,
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedObservation:
    """Observation of the units, which holds until something changes them."""

    observed: Observed
    change: Change
    """Next change, taken before the observation."""
    at_s: float

    def holds(self, now_s: float) -> bool:
        """Tell whether nothing has been signalled since, and the observation is not old."""
        return not self.change.has_happened() and now_s - self.at_s < _LOOK_AGAIN_S


async def observe(
    units: Units, catalogue: Catalogue, clock: Clock, *, full: bool = False
) -> TimedObservation:
    """Observe the units of `catalogue`; `full` as in `Units.observe`. Raises `UnitError`."""
    change, at_s = units.change(), clock.monotonic_s()
    observed = await units.observe(catalogue, full=full)
    return TimedObservation(observed=observed, change=change, at_s=at_s)


class Transaction:
    """Runner of one operation until its end.

    Args:
        record: The operation's row, phases and events.
        catalogue: Every applied profile.
        clock: For the age of observations.
        units: Where jobs are asked for.
        host: What the gate, launchers and engines have left to read.
        gateway: Holds and drains requests.
        tickets: Admit the caller of a run.
        preflight: Collects the findings.
        proof: Proves a started model.
        verifier: Compares its engine with its profile.
        boot_choice: What the commit writes.
        caller: Of a run whose command waits for its ticket; None: of none, or it has been issued.
        on_look: Called with every look at the box.
        completed: Returns a state for the gateway with what only the supervisor remembers.
    """

    def __init__(
        self,
        record: OperationRecord,
        catalogue: Catalogue,
        *,
        clock: Clock,
        units: Units,
        host: Host,
        gateway: Gateway,
        tickets: RunTickets,
        preflight: Preflight,
        proof: ModelProof,
        verifier: EngineVerifier,
        boot_choice: BootChoice,
        caller: RunCaller | None,
        on_look: Callable[[Observed], None],
        completed: Callable[[State, Observed], State],
    ) -> None:
        self._record = record
        self._catalogue = catalogue
        self._clock = clock
        self._units = units
        self._host = host
        self._gateway = gateway
        self._tickets = tickets
        self._preflight = preflight
        self._proof = proof
        self._verifier = verifier
        self._boot_choice = boot_choice
        self._caller = caller
        self._on_look = on_look
        self._completed = completed
        self._steps = Steps()
        self._cancel = asyncio.Event()
        """Set when the operation is cancelled, or gives way to another one."""
        self._cancelled_by = ""
        self._superseded_by = ""
        self._log_read_s = float("-inf")
        self._log_lines: tuple[str, ...] = ()

    @property
    def operation(self) -> Operation:
        """Return the operation's row as it is now."""
        return self._record.operation

    @property
    def feed(self) -> EventFeed:
        """Return the operation's events."""
        return self._record.feed

    @property
    def text(self) -> str:
        """Return the last text about the present phase."""
        return self._record.text

    @property
    def phase_s(self) -> float:
        """Return how long the present phase has lasted."""
        return self._record.phase_s

    @property
    def phases_ms(self) -> Mapping[str, float]:
        """Return the milliseconds in each phase that has ended."""
        return self._record.phases_ms

    def gateway_state(self, observed: Observed) -> State:
        """Return how profiles stand for clients while this operation runs."""
        return state_of(
            self._catalogue,
            observed,
            self._boot_choice.committed(),
            None if self._steps.committed else self.operation,
            started=self._steps.started,
            on_hold=self._boot_choice.holds(),
        )

    def cancel(self, *, by: str) -> bool:
        """Ask for a roll-back for `by`; False: too late, or already rolling back."""
        if self._is_decided():
            return False
        self._cancelled_by = by
        self._cancel.set()
        return True

    def fail(self, why: str) -> None:
        """Have the operation begin with a failure that happened before this process."""
        self._steps = replace(self._steps, failure=why)

    def supersede(self, what: str) -> bool:
        """Ask for an end that leaves everything as it is, because of `what`; False: too late."""
        if self._is_decided():
            return False
        self._superseded_by = what
        self._cancel.set()
        return True

    def _is_decided(self) -> bool:
        return self.operation.rolling_back or self._steps.committed

    async def run(self, latest: TimedObservation | None = None) -> Finished:
        """Run the operation to its end. Raises `UnitError` when systemd cannot be read.

        A look costs 2 ms, and checks, requests and files change no unit: one look serves every
        decision up to the next job. What is signalled meanwhile makes another one due, and so does
        its age, so that a decision never rests on what was done before, only on what was seen.

        Args:
            latest: What was observed before this began; None: nothing yet.
        """
        look_closer = False
        while True:
            if latest is None or not latest.holds(self._clock.monotonic_s()):
                latest = await observe(self._units, self._catalogue, self._clock, full=look_closer)
            observed = latest.observed
            self._on_look(observed)  # also of one that still holds: the phase may be another
            refusals = await self._host.gate_refusals() if self._steps.started else {}
            self._steps = replace(
                self._steps,
                cancelled=self._cancel.is_set(),
                cancelled_by=self._cancelled_by,
                superseded_by=self._superseded_by,
                # A command was seen running: when it is absent it is over, whoever started it.
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
                await self._tell_log(observed)
                # An engine's own text is asked for only while nothing happens.
                pause_s = _LOOK_AGAIN_AFTER_S.get(action.phase, _LOOK_AGAIN_S)
                waited = self._unless_cancelled(latest.change.wait(pause_s))
                latest, look_closer = None, await waited is False
                continue
            look_closer = False
            try:
                await self._do(action, observed)
            except ApplianceError as error:
                self._steps = replace(self._steps, failure=str(error))
            if not isinstance(action, _CHANGES_NO_UNIT):
                latest = None

    async def _report(self, observed: Observed) -> RunReport | None:
        """Return the report that a command has left; None: it still runs, or left none."""
        if self.operation.kind is not Kind.RUN or not observed.run.idle:
            return None
        return await self._host.run_report()

    async def _do(self, action: Action, observed: Observed) -> None:
        match action:
            case RunPreflight():
                await self._check(observed)
            case HoldRequests():
                await self._enter(Phase.HOLD)
                held = sorted(self.gateway_state(observed).held)
                self._told(await self._gateway.hold(held))
                self._steps = replace(self._steps, held=True)
            case DrainRequests(names):
                await self._drain(names)
            case Stop() | Start() | StartRun() | StopRun():
                await self._queue(action)
            case WarmUpModel() | VerifyEngine():
                await self._prove(action)
            case Commit():
                await self._commit(observed)
            case BeginRollback(reason, cause, phase):
                await self._begin_rollback(reason, cause, phase or self.operation.phase)
            case BeginRestore(reason):
                await self._enter(Phase.RUN, reason)
                self._record.end_phase()
                self._reverse(Cause.COMMAND_ENDED, reason)
            case Wait() | Finish():
                pass  # left to the loop
            case never:
                assert_never(never)

    async def _queue(self, action: Stop | Start | StartRun | StopRun) -> None:
        """Queue a job of systemd."""
        units, steps = self._units, self._steps
        match action:
            case Stop(name):
                await self._enter(Phase.STOP, f"{name}: SIGTERM")
                await units.stop(name)
                self._steps = replace(steps, stopped=steps.stopped | {name})
            case Start(name):
                await self._enter(Phase.RELEASE, f"{name}: waiting for the gate")
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
        self._record.enter(Phase.PREFLIGHT)
        if self._caller is not None:
            claim = Claim(devices=frozenset(self.operation.goal.claim))
            self._tickets.issue(self.operation.id, self._caller, claim)
        # Done together, because the disk takes 4 ms; a refused operation gives its reservation
        # back.
        found, no_room = await asyncio.gather(
            self._preflight.findings(self.operation, self._catalogue, observed),
            self._boot_choice.reserve(self.operation),
        )
        for text in phase_texts(found):
            self._record.tell(text)
        refused = refusal(found) or no_room
        self._steps = replace(self._steps, checked=True, failure=refused)

    async def _drain(self, names: tuple[str, ...]) -> None:
        await self._enter(Phase.DRAIN)
        asked = self.operation.drain_s
        limit = max((self._catalogue[n].deadlines.drain_s for n in names), default=0.0)
        drained = self._gateway.drain(names, limit if asked is None else asked)
        told = await self._unless_cancelled(drained)
        if not self._cancel.is_set():
            self._told(told)
        self._steps = replace(self._steps, drained=True)

    async def _prove(self, action: WarmUpModel | VerifyEngine) -> None:
        """Prove that a started model answers, and is what its profile declares."""
        match action:
            case WarmUpModel(name):
                await self._warm_up(name)
            case VerifyEngine(name):
                await self._verify(name)

    async def _warm_up(self, name: str) -> None:
        await self._enter(Phase.WARM_UP, f"{name}: one real request")
        applied = self._catalogue[name]
        told = await self._unless_cancelled(self._proof.warm_up(applied))
        if told is None:
            return
        self._record.tell(told)
        if problem := await self._proof.misplacement(applied):
            raise BackendError(problem)
        self._steps = replace(self._steps, warm=self._steps.warm | {name})

    async def _verify(self, name: str) -> None:
        await self._enter(Phase.VERIFY, f"{name}: what its engine reports")
        row = await self._unless_cancelled(self._verifier.verify(self._catalogue[name]))
        if row is None:
            return
        self._record.tell(phase_text(name, row))
        # What served before, or is needed back, serves better otherwise than declared than not at all.
        is_needed = self.operation.rolling_back or self.operation.kind is Kind.REPAIR
        if not is_needed and (problem := failure_text(name, row)):
            raise BackendError(problem)
        self._steps = replace(self._steps, verified=self._steps.verified | {name})

    async def _commit(self, observed: Observed) -> None:
        await self._enter(Phase.COMMIT)
        if self.operation.rolling_back:
            await self._boot_choice.restore_hold(observed)
        else:
            await self._boot_choice.write(self.operation)
        self._steps = replace(self._steps, committed=True)
        # Complete: the requests that were held are answered by this state, not by a later one.
        state = self._completed(self.gateway_state(observed), observed)
        self._record.tell(await self._gateway.release(state) or "")

    async def _begin_rollback(self, reason: str, cause: Cause, failed: Phase) -> None:
        await self._enter(failed)
        fields = operation_fields(JournalEvent.OPERATION_ROLLS_BACK, self.operation)
        _log.warning("operation %d rolls back: %s", self.operation.id, reason, extra=fields)
        self._record.end_phase(failed=reason)
        for name in self.operation.goal.start:
            if name in self._steps.started:
                tail = self._host.log_tail(
                    name, LINES_READ, since_unix_s=self.operation.began_unix_s
                )
                self._log_lines = excerpt(await tail)
        self._reverse(cause, reason)

    def _reverse(self, cause: Cause, reason: str) -> None:
        """Work from now on towards the profiles that served before."""
        steps, self._steps = self._steps, Steps(held=True, drained=True)
        self._record.change(reverse_operation(self.operation, steps, cause, reason))

    async def _enter(self, phase: Phase, text: str = "") -> None:
        """Enter `phase`, after publishing what the gate waited for before."""
        if self._record.phase is Phase.RELEASE and phase is not Phase.RELEASE:
            self._record.tell(await self._released())
        self._record.enter(phase, text)

    async def _tell_log(self, observed: Observed) -> None:
        """Publish what the engine that comes up has logged last, where it takes longer than usual ones."""
        now_s = self._clock.monotonic_s()
        is_slow = self._record.phase in _ENGINE_PHASES and self.phase_s >= _LOG_EVERY_S
        coming = [n for n in sorted(self._steps.started) if not observed.unit(n).serving]
        if not is_slow or not coming or now_s - self._log_read_s < _LOG_EVERY_S:
            return
        self._log_read_s = now_s
        tail = self._host.log_tail(coming[0], 1, since_unix_s=self.operation.began_unix_s)
        for line in await self._unless_cancelled(tail) or ():
            self._record.tell_log(short_line(line))

    async def _released(self) -> str:
        """Return what the gate waited for; empty: for nothing, or not known."""
        admissions = await self._host.admissions()
        words = {n: admissions[n] for n in sorted(self._steps.started) if n in admissions}
        several = len(self._steps.started) > 1
        return "; ".join(f"{n}: {word}" if several else word for n, word in words.items())

    def _told(self, text: str | None) -> None:
        if text is None:
            self._record.skip("no gateway")
        else:
            self._record.tell(text)

    async def _unless_cancelled(self, awaited: Coroutine[Any, Any, T]) -> T | None:
        """Return the result, or None when a caller cancels the operation first."""
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
        # The failure before a roll-back has been published already; the last step itself worked.
        self._record.end_phase(failed="" if self._steps.committed else action.message)
        await self._boot_choice.release()
        if self.operation.kind is Kind.RUN:
            self._tickets.revoke()
        finished = await self._record.finish(action.outcome, action.message, action.cause)
        self.feed.publish(
            closing_event(
                finished,
                serving=observed.serving(),
                committed=self._boot_choice.committed(),
                log=self._log_lines,
            )
        )
        return finished


NewTransaction = Callable[
    [
        Operation,
        Catalogue,
        RunCaller | None,
        Callable[[Observed], None],
        Callable[[State, Observed], State],
    ],
    Transaction,
]
"""Factory of transactions, from an operation's row, the applied profiles, the caller of a run, a
callback for every look at the box, and a function that completes a state for the gateway."""


def transaction_factory(
    *,
    units: Units,
    backend: Backend,
    gateway: Gateway,
    host: Host,
    store: Store,
    tickets: RunTickets,
    clock: Clock,
    preflight: Preflight,
    verifier: EngineVerifier,
    boot_choice: BootChoice,
) -> NewTransaction:
    """Return a factory of transactions on these ports."""
    proof = ModelProof(backend=backend, host=host, units=units)

    def new_transaction(
        operation: Operation,
        catalogue: Catalogue,
        caller: RunCaller | None,
        on_look: Callable[[Observed], None],
        completed: Callable[[State, Observed], State],
    ) -> Transaction:
        return Transaction(
            OperationRecord(operation, store=store, clock=clock),
            catalogue,
            clock=clock,
            units=units,
            host=host,
            gateway=gateway,
            tickets=tickets,
            preflight=preflight,
            proof=proof,
            verifier=verifier,
            boot_choice=boot_choice,
            caller=caller,
            on_look=on_look,
            completed=completed,
        )

    return new_transaction
