"""Only writer of ownership: takes requests, runs one operation at a time, reconciles in between.

Level-triggered: every look at the box leads to the same decision whatever happened before,
so a supervisor that was killed goes on where the box is. An operation of this boot that was
left open goes on; one of an earlier boot is closed, because that boot's choice was followed.

The module is long, because one class alone may change what runs.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from appliance.model.claims import NOTHING, Claim
from appliance.model.errors import (
    BusyError,
    PermissionDeniedError,
    StoreError,
    UnknownProfileError,
)
from appliance.model.gateway import State as GatewayState
from appliance.model.journal_events import JournalEvent, JournalField, event_fields
from appliance.model.observed import Observed
from appliance.model.operations import (
    Cause,
    Finished,
    HoldUntil,
    Kind,
    Operation,
    Outcome,
    RunCaller,
)
from appliance.model.profile import Catalogue
from appliance.model.wording import joined, no_such_profile, requester_name
from appliance.model.words import Mark
from appliance.routing.gateway_state import state_of
from appliance.settings.tables import Settings
from appliance.status.journal_fields import end_fields, operation_fields
from appliance.status.summary import changes, crashes, described, summary
from appliance.supervisor.access_policy import Requester
from appliance.supervisor.boot_choice import BootChoice
from appliance.supervisor.engine_verifier import EngineVerifier
from appliance.supervisor.model_checks import Preflight
from appliance.supervisor.operation_hub import OperationHub
from appliance.supervisor.operation_runner import (
    TimedObservation,
    Transaction,
    observe,
    transaction_factory,
)
from appliance.supervisor.reconciler import Reconciler
from appliance.supervisor.traffic_figures import OperationTally
from appliance.supervisor.unit_memory import StatusReader, UnitMemory
from appliance.switch.goals import check_left_out, goal_of
from appliance.switch.need import EstimateRow
from appliance.switch.next_action import left_in_order, taken_up
from appliance.switch.outcomes import closing_event
from appliance.switch.preflight_facts import PreflightFinding, refuse
from appliance.system.ports import (
    Backend,
    Change,
    Clock,
    Commitment,
    Gateway,
    Host,
    Peaks,
    Profiles,
    RunTickets,
    Store,
    Units,
)
from appliance.wire.control_events import AcceptedEvent, EndedEvent, OperationChange

_log = logging.getLogger(__name__)

_REPAIR_ENDS_WITHIN_S = 30.0
"""Time for a repair to end that gives way; a driver that hangs may take longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRequest:
    """Request for an operation, already checked."""

    kind: Kind
    names: tuple[str, ...] = ()
    by: Requester | None = None
    """Requester; None: the supervisor itself."""
    rollback: bool = True
    drain_s: float | None = None
    hold_until: HoldUntil = None
    command: str = ""
    """Name of a run's command, without its arguments."""
    claim: Claim = NOTHING
    """Claim of a run."""

    @property
    def on_request(self) -> bool:
        """Tell whether the gateway asks, because a client's request needs the profile."""
        return self.by is not None and self.by.on_behalf is not None

    @property
    def requester(self) -> str:
        """Return the requester for log and history."""
        return "supervisor" if self.by is None else str(self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """Accepted request: its operation, and the operation's first event."""

    transaction: Transaction
    accepted: AcceptedEvent
    token: str = field(default="", repr=False)
    """Token of a run, for its requester alone, which the launcher demands. Empty: no run, or
    another requester."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Snapshot of the box and its ownership, for the status."""

    catalogue: Catalogue
    observed: Observed
    committed: tuple[str, ...]
    hold_until: HoldUntil
    running: Transaction | None
    last: Finished | None
    damage: str | None
    """Damage of the manifest, for root; None: none."""
    watches: Mapping[str, Mark]
    """First marks of the ``[[watch]]`` entries of the settings, by name."""


class Supervisor:
    """Owner of the one running operation.

    Args:
        profiles: Where the applied profiles come from.
        units: What is looked at.
        memory: Of the units, for the status.
        backend: Proves that a model answers.
        gateway: Routes by what serves.
        host: For the checks before an operation.
        commitment: What a boot serves or holds.
        store: Operations and marks.
        peaks: Observed memory, for the checks.
        tickets: For commands in place of models.
        clock: For the times of operations.
        settings: Of the box.
        on_look: Called after each look, with a line about the box: feeds the watchdog.
    """

    def __init__(
        self,
        profiles: Profiles,
        *,
        units: Units,
        memory: UnitMemory,
        backend: Backend,
        gateway: Gateway,
        host: Host,
        commitment: Commitment,
        store: Store,
        peaks: Peaks,
        tickets: RunTickets,
        clock: Clock,
        settings: Settings,
        on_look: Callable[[str], None],
    ) -> None:
        self._profiles = profiles
        self._units = units
        self._memory = memory
        self._store = store
        self._gateway = gateway
        self._clock = clock
        self._settings = settings
        self._on_look = on_look
        self._boot_choice = BootChoice(commitment=commitment, units=units, clock=clock)
        self.verifier = EngineVerifier(
            self.last_look, backend=backend, host=host, units=units, clock=clock
        )
        """Verifier of the engines that serve."""
        self._preflight = Preflight(host=host, units=units, store=store, peaks=peaks)
        self._reconciler = Reconciler(
            units=units, host=host, store=store, commitment=commitment, clock=clock
        )
        self._new_transaction = transaction_factory(
            units=units,
            backend=backend,
            gateway=gateway,
            host=host,
            store=store,
            tickets=tickets,
            clock=clock,
            preflight=self._preflight,
            verifier=self.verifier,
            boot_choice=self._boot_choice,
        )
        self.tally = OperationTally()
        """Tally of the operations that ended since the start of this process."""
        self._watches = {watch.name: watch.mark for watch in settings.watch}
        self._marked = 0
        """Number of marks that were set by this process."""
        self._marks: Mapping[str, Mark] = {}
        """Marks as the store has them."""
        self._damage: str | None = None
        self._catalogue: Catalogue = self._load()
        self._running: Transaction | None = None
        self._is_on_request = False
        """Whether clients' requests alone have asked for the running operation."""
        self._tasks: asyncio.TaskGroup | None = None
        self._serving: tuple[str, ...] = ()
        self._failed_starts: frozenset[str] = frozenset()
        """Profiles that are down since an operation failed to start them."""
        self._seen = Observed(units={})
        self._hub = OperationHub()
        self._accepting = asyncio.Lock()
        self._ended = asyncio.Event()
        self._resumed = asyncio.Event()

    async def run(self) -> None:
        """Run operations and reconcile for ever. Raises `UnitError` when systemd cannot be reached."""
        async with asyncio.TaskGroup() as self._tasks:
            self._marks = await self._store.marks()
            await self._resume()
            self._resumed.set()
            while True:
                change = self._units.change()
                observed = await self._units.observe(self._catalogue)
                self._look_at(observed)
                if self._running is None and not observed.going_down:
                    await self._reconcile(observed)
                await self._wait(change)

    async def _wait(self, change: Change) -> None:
        """Wait for a change; while an operation runs, which looks itself, for its end."""
        if self._running is None:
            await change.wait(self._settings.look_every_s)
        if self._running is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.look_every_s):
                    await self._ended.wait()

    # --- requests --------------------------------------------------------------------

    async def resumed(self) -> None:
        """Wait until an operation that another process left open goes on, or is closed.

        Before that nobody can be told what runs, and an operation that began would be a second one.
        """
        await self._resumed.wait()

    async def submit(self, request: OperationRequest) -> Running:
        """Begin an operation, or join the running one if its target is the same.

        Raises:
            BusyError: Another operation runs.
            PermissionDeniedError: The gateway asks for a profile that no request may switch to.
            UnknownProfileError: A name is not applied.
        """
        await self.resumed()
        async with self._accepting:
            self.check_names(request.names)
            if request.on_request:
                self._check_on_request(request.names)
            if self._running is not None and self._gives_way(self._running, request):
                await self._supersede(self._running, request)
            if self._running is not None:
                return self._join(request, self._running)
            latest = await observe(self._units, self._catalogue, self._clock)
            if request.on_request and self._gateway_state(latest.observed).paused:
                raise BusyError("an operator holds the box: appliance status")
            operation = await self._store.begin(self._operation(request, latest.observed))
            _log.info(
                "operation %d: %s %s for %s",
                operation.id,
                operation.kind,
                " ".join(operation.target) or "all",
                request.requester,
                extra=operation_fields(
                    JournalEvent.OPERATION_BEGUN,
                    operation,
                    (JournalField.REQUESTER, request.requester),
                ),
            )
            is_run = operation.kind is Kind.RUN  # a run's duration says nothing of the next one
            uid = 0 if request.by is None else request.by.uid
            caller = RunCaller(uid=uid, token=secrets.token_hex()) if is_run else None
            transaction = self._launch(operation, caller, latest)
            self._is_on_request = request.on_request
            # Asked afterwards: only the text about the usual duration needs the figure.
            usual_ms = None if is_run else await self._store.usual_ms(operation)
        return Running(
            transaction=transaction,
            accepted=_accepted(operation, joined=False, usual_ms=usual_ms),
            token="" if caller is None else caller.token,
        )

    async def rehearse(
        self, request: OperationRequest
    ) -> tuple[Operation, Sequence[PreflightFinding]]:
        """Return what `submit` would do, and every finding on it. Changes nothing.

        Raises:
            UnknownProfileError: A name is not applied.
        """
        self.check_names(request.names)
        observed = await self._units.observe(self._catalogue)
        operation = self._operation(request, observed)
        found = await self._preflight.findings(operation, self._catalogue, observed)
        return operation, (*found, *await self._room(operation))

    async def estimates(self, operation: Operation) -> Mapping[str, EstimateRow]:
        """Return the parts of the estimated need of each profile that `operation` would start."""
        return await self._preflight.estimates(operation, self._catalogue)

    async def _room(self, operation: Operation) -> Sequence[PreflightFinding]:
        """Refuse if there is no room for what `operation` writes; skipped while one runs."""
        await self.resumed()
        async with self._accepting:  # so that none begins, which would reserve the same files
            if self._running is not None:
                return ()
            if refusal := await self._boot_choice.reserve(operation):
                return (refuse(refusal),)
            await self._boot_choice.release()
            return ()

    def current(self) -> Running | None:
        """Return the running operation, to be followed; None: none runs."""
        if self._running is None:
            return None
        operation = self._running.operation
        return Running(
            transaction=self._running, accepted=_accepted(operation, joined=True, usual_ms=None)
        )

    async def events(self) -> AsyncIterator[tuple[int, OperationChange]]:
        """Yield the events of the running operation and of each later one, with its number, for ever.

        The first one of each is its acceptance.
        """
        last: Transaction | None = None
        async for transaction, event in self._hub.follow(self._running):
            number = transaction.operation.id
            if transaction is not last:
                last = transaction
                yield number, _accepted(transaction.operation, joined=False, usual_ms=None)
            yield number, event

    async def ended(self, operation_id: int) -> EndedEvent | None:
        """Return the closing event of an operation; None: not over, or not on record."""
        finished = await self._store.finished(operation_id)
        if finished is None:
            return None
        observed = await self._units.observe(self._catalogue)
        committed = self._boot_choice.committed()
        return closing_event(finished, serving=observed.serving(), committed=committed)

    def cancel(self, *, by: str) -> Transaction | None:
        """Roll the running operation back for `by`; None: none runs, or too late."""
        running = self._running
        return running if running is not None and running.cancel(by=by) else None

    def abandon(self, operation: int) -> bool:
        """Roll back a switch on request whose clients have left; False: it is over, or a person's too."""
        running = self._running
        if running is None or running.operation.id != operation or not self._is_on_request:
            return False
        return running.cancel(by="the gateway, since nobody waits for it any more")

    async def mark(self, name: str, mark: Mark, *, by: str) -> None:
        """Set the mark of a profile or of a ``[[watch]]`` entry.

        Raises:
            UnknownProfileError: It is not applied, and no entry.
            BusyError: It serves or is committed, and shall be retired.
            StoreError: The mark could not be kept.
        """
        self._refresh()
        is_profile = name in self._catalogue
        if not is_profile and name not in self._watches:
            text = no_such_profile(name, self._catalogue, watches=self._watches)
            raise UnknownProfileError(text)
        if mark is Mark.RETIRED and is_profile:
            observed = await self._units.observe(self._catalogue)
            if not observed.unit(name).idle or name in self._boot_choice.committed():
                raise BusyError(
                    f"{name} serves or would after a boot: switch to another profile first,"
                    f" or stop it and appliance uncommit {name}"
                )
        await self._store.set_mark(name, mark, by=by)
        self._marks = await self._store.marks()
        self._marked += 1
        marked = event_fields(
            JournalEvent.PROFILE_MARKED, profiles=(name,), others=((JournalField.REQUESTER, by),)
        )
        _log.info("%s is marked %s by %s", name, mark, by, extra=marked)

    async def uncommit(self, name: str, *, exclusive: bool, by: str) -> tuple[str, Sequence[str]]:
        """Take a profile out of what a boot serves; what runs goes on.

        Returns:
            A sentence about it, and what a boot serves then.

        Raises:
            BusyError: An operation runs, which may commit.
            PreconditionError: It owns devices alone, and `exclusive` does not say that this is meant.
            StoreError: The names could not be written, and stay.
            UnknownProfileError: It is neither applied nor committed.
        """
        await self.resumed()
        async with self._accepting:
            self._refresh()
            committed = self._boot_choice.committed()
            if name not in committed:
                if name not in self._catalogue:
                    text = no_such_profile(name, {*self._catalogue, *committed})
                    raise UnknownProfileError(text)
                return f"{name} is not committed: a boot serves {joined(committed)}", committed
            if self._running is not None:
                raise self._busy(self._running.operation)
            if not exclusive:
                check_left_out(name, self._catalogue)
            await self._boot_choice.leave_out(name)
            left = self._boot_choice.committed()
            uncommitted = event_fields(
                JournalEvent.PROFILE_UNCOMMITTED,
                profiles=(name,),
                others=((JournalField.REQUESTER, by),),
            )
            _log.info("%s is not committed any more, by %s", name, by, extra=uncommitted)
            observed = await self._units.observe(self._catalogue)
            until = f"; {name} serves until it is stopped" * observed.unit(name).serving
            text = f"{name} is not committed any more: a boot serves {joined(left)}{until}"
            return text, left

    async def live(self, names: Sequence[str]) -> Sequence[str]:
        """Return those of some applied profiles that are marked live."""
        marks = await self._store.marks()
        known = [name for name in names if name in self._catalogue]
        return [n for n in known if marks.get(n, self._catalogue[n].first_mark) is Mark.LIVE]

    async def state(self, reader: StatusReader = StatusReader.PERSON) -> Snapshot:
        """Return the facts for the status, with every signalled change included.

        Args:
            reader: Reader of the status; for a `WATCHER` details of units may be older.
        """
        self._refresh()
        glance = self._seen if reader is StatusReader.WATCHER else None
        observed = await self._memory.latest(self._catalogue, reader, glance=glance)
        return Snapshot(
            catalogue=self._catalogue,
            observed=observed,
            committed=self._boot_choice.committed(),
            hold_until=self._boot_choice.hold_until(),
            running=self._running,
            last=await self._store.last(),
            damage=self._damage,
            watches=self._watches,
        )

    def signature(self) -> object:
        """Return a value that is another one when the status has changed, ages and figures aside."""
        operation = None if self._running is None else self._running.operation
        return (
            self._catalogue,  # the same object until the manifest has changed
            self._seen,
            operation and (operation.id, operation.phase, operation.rolling_back),
            self._boot_choice.committed(),
            self._boot_choice.hold_until(),
            self._marked,
            self.verifier.count,
        )

    def reload(self) -> int:
        """Read the applied profiles again; returns how many there are. Raises `StoreError`."""
        self._catalogue = self._load()
        self._gateway.reload()
        _log.info("%d profiles are applied", len(self._catalogue))
        return len(self._catalogue)

    # --- operations ------------------------------------------------------------------

    def check_names(self, names: Sequence[str]) -> None:
        """Check that all of these are applied. Raises `UnknownProfileError`."""
        self._refresh()
        for name in names:
            if name not in self._catalogue:
                raise UnknownProfileError(no_such_profile(name, self._catalogue))

    def _check_on_request(self, names: Sequence[str]) -> None:
        for name in names:
            if not self._catalogue[name].handling.on_request:
                raise PermissionDeniedError(
                    f'no request may switch to {name}: its profile lacks switch = "on-request"'
                )

    def _refresh(self) -> None:
        """Read the applied profiles again: an apply may have ended whose signal is not here yet."""
        # The reload reports a damaged manifest: the profiles read before still hold.
        before = self._catalogue
        with contextlib.suppress(StoreError):
            self._catalogue = self._load()
        if self._catalogue is not before:
            # The signal may never come: systemd drops one for a unit that is being reloaded.
            self._gateway.reload()

    def _load(self) -> Catalogue:
        catalogue, damage = self._profiles.load(), self._profiles.damage
        if damage is not None and damage != self._damage:
            _log.error("%s", damage)
        self._damage = damage
        return catalogue

    def _gives_way(self, running: Transaction, request: OperationRequest) -> bool:
        """Tell whether a request ends the running operation: a person's that of the supervisor's own."""
        is_person = request.by is not None and not request.on_request
        return running.operation.kind is Kind.REPAIR and is_person

    async def _supersede(self, repair: Transaction, request: OperationRequest) -> None:
        """End a repair as it is, for a request whose goal follows from what is then there.

        Raises:
            BusyError: It does not end soon: its preflight waits for a driver.
        """
        what = f"{request.kind} {' '.join(request.names)}".strip()
        if not repair.supersede(f"{what} by {requester_name(request.requester)}"):
            return
        try:
            async with asyncio.timeout(_REPAIR_ENDS_WITHIN_S):
                while self._running is repair:
                    await self._ended.wait()
        except TimeoutError as error:
            raise BusyError("a repair is ending: try again") from error

    def _join(self, request: OperationRequest, running: Transaction) -> Running:
        operation = running.operation
        same = operation.kind is request.kind and {*operation.target} == {*request.names}
        if not same or operation.rolling_back or request.kind in {Kind.HOLD, Kind.RUN}:
            raise self._busy(operation)
        self._is_on_request = self._is_on_request and request.on_request
        return Running(
            transaction=running, accepted=_accepted(operation, joined=True, usual_ms=None)
        )

    def _busy(self, operation: Operation) -> BusyError:
        elapsed_s = self._clock.monotonic_s() - operation.began_s
        # A repair that is cancelled is followed by the next; a stop ends it, and holds.
        ends = "cancel"
        if operation.kind is Kind.REPAIR:
            ends = " ".join(("stop", *operation.target))
        return BusyError(
            f"{described(operation)} by {requester_name(operation.requested_by)} is running"
            f" ({operation.phase}, {elapsed_s:.0f} s):"
            f" appliance wait, or appliance {ends}"
        )

    def _operation(self, request: OperationRequest, observed: Observed) -> Operation:
        goal = goal_of(
            request.kind,
            request.names,
            catalogue=self._catalogue,
            observed=observed,
            committed=self._boot_choice.committed(),
            hold_until=request.hold_until,
            claim=request.claim,
        )
        return Operation(
            id=0,
            kind=request.kind,
            target=(request.command,) if request.kind is Kind.RUN else request.names,
            goal=goal,
            boot_id=self._units.boot_id,
            requested_by=request.requester,
            began_unix_s=self._clock.unix_s(),
            began_s=self._clock.monotonic_s(),
            rollback=request.rollback,
            drain_s=request.drain_s,
        )

    def _launch(
        self,
        operation: Operation,
        caller: RunCaller | None = None,
        latest: TimedObservation | None = None,
        failure: str = "",
    ) -> Transaction:
        transaction = self._running = self._new_transaction(
            operation, self._catalogue, caller, self._look_at, self._completed
        )
        if failure:
            transaction.fail(failure)
        self._hub.begin(transaction)
        self._ended.clear()
        if self._tasks is None:
            raise RuntimeError("the supervisor does not run")
        self._tasks.create_task(self._live(transaction, latest))
        return transaction

    async def _live(self, transaction: Transaction, latest: TimedObservation | None) -> None:
        finished = await transaction.run(latest)
        if finished.outcome in {Outcome.ROLLED_BACK, Outcome.FAILED} and (
            finished.cause is Cause.FAILURE
        ):
            self._failed_starts |= {*finished.operation.goal.start}
        self.tally.add(finished)
        # Not after an error: the process then ends, and no operation may begin beside this one.
        self._running = None
        self._ended.set()
        level = logging.INFO if finished.outcome is Outcome.DONE else logging.WARNING
        _log.log(
            level,
            "operation %d %s in %.1f s: %s",
            finished.operation.id,
            finished.outcome,
            finished.total_ms / 1000,
            finished.message,
            extra=end_fields(finished.operation, finished.outcome),
        )

    async def _resume(self) -> None:
        operation = await self._store.unfinished()
        if operation is None:
            return
        if operation.boot_id == self._units.boot_id and self._is_known(operation):
            operation, failure = taken_up(operation)
            self._store.update(operation)
            how = failure or f"goes on from {operation.phase}"
            _log.warning("operation %d: %s", operation.id, how)
            self._launch(operation, failure=failure)
            return
        cut = operation_fields(JournalEvent.OPERATION_CUT, operation)
        _log.warning(
            "operation %d was cut in %s by a reboot", operation.id, operation.phase, extra=cut
        )
        finished = Finished(
            operation=operation,
            outcome=Outcome.INTERRUPTED,
            message=f"cut in {operation.phase} by a reboot",
            finished_unix_s=self._clock.unix_s(),
        )
        self.tally.add(finished)
        await self._store.finish(finished)

    def leave(self) -> None:
        """Note in the running operation's row that this process ends in order."""
        if self._running is not None:
            self._store.update(left_in_order(self._running.operation))

    def _is_known(self, operation: Operation) -> bool:
        goal = operation.goal
        return all(n in self._catalogue for n in (*goal.start, *goal.restore))

    def last_look(self) -> tuple[Catalogue, Observed]:
        """Return the applied profiles, and their units when they were last observed."""
        return self._catalogue, self._seen

    def _gateway_state(self, observed: Observed) -> GatewayState:
        """Return the standing of profiles for clients while no operation runs."""
        boot_choice = self._boot_choice
        return state_of(
            self._catalogue,
            observed,
            boot_choice.committed(),
            None,
            on_hold=boot_choice.holds(),
        )

    def _completed(self, state: GatewayState, observed: Observed) -> GatewayState:
        """Return a state with what units do not show: failed starts and retired profiles."""
        running = self._running
        failed = self._failed_starts | (running.operation.failed_starts if running else frozenset())
        # A roll-back stops the unit, which then looks like any that was stopped.
        down = {name for name in failed & self._catalogue.keys() if observed.unit(name).idle}
        return replace(state, failed=state.failed | down, retired=self._retired())

    def _retired(self) -> frozenset[str]:
        marks = self._marks
        return frozenset(
            name
            for name, applied in self._catalogue.items()
            if marks.get(name, applied.first_mark) is Mark.RETIRED
        )

    # --- looking ---------------------------------------------------------------------

    async def _reconcile(self, observed: Observed) -> None:
        names = await self._reconciler.reconcile(observed, self._catalogue)
        if names:
            with contextlib.suppress(BusyError):  # a request came meanwhile and goes first
                await self.submit(OperationRequest(kind=Kind.REPAIR, names=names))

    def _look_at(self, observed: Observed) -> None:
        """Send the gateway the state, and log and report to systemd what is new."""
        before, self._seen = self._seen, observed
        committed = self._boot_choice.committed()
        running = self._running
        operation = None if running is None else running.operation
        state = (
            self._gateway_state(observed) if running is None else running.gateway_state(observed)
        )
        self._failed_starts = frozenset(
            name for name in self._failed_starts if observed.unit(name).idle
        )
        self._gateway.route(self._completed(state, observed))
        serving = observed.serving()
        operating = operation is not None
        for news in changes(self._serving, serving, committed, operating=operating):
            _log.info("%s", news.sentence, extra=event_fields(news.event, profiles=(news.profile,)))
        for news in crashes(before, observed):
            crash = event_fields(news.event, profiles=(news.profile,))
            _log.warning("%s", news.sentence, extra=crash)
        self._serving = serving
        self._on_look(summary(observed, committed, operation))


def _accepted(operation: Operation, *, joined: bool, usual_ms: float | None) -> AcceptedEvent:
    return AcceptedEvent(
        operation=operation.id,
        kind=operation.kind,
        target=operation.target or operation.goal.start or operation.goal.stop,
        evicts=operation.goal.stop,
        joined=joined,
        usual_ms=usual_ms,
        requested_by=operation.requested_by,
    )
