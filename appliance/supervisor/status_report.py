"""Report of a running supervisor's status, made of what it knows at the moment of the request."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

import appliance
from appliance.model.memory import DeviceMemory
from appliance.model.observed import Observed
from appliance.model.operations import Finished, Operation, Outcome
from appliance.model.paths import BUILDS
from appliance.model.profile import Catalogue
from appliance.model.status import (
    EndedOperationRow,
    GatewayRow,
    NeedRow,
    OperationRow,
    OperationsSection,
    RecordedOperation,
    StatusDocument,
    SupervisorRow,
    VerificationRow,
)
from appliance.settings.tables import Settings
from appliance.status.box_status import InstalledForm, KnownRows, build_status
from appliance.status.gateway_row import gateway_row
from appliance.status.memory_rows import memory_row, need_rows, profile_memory
from appliance.status.stalls import Stall
from appliance.supervisor.memory_sampler import MemorySampler
from appliance.supervisor.operation_runner import Transaction
from appliance.supervisor.ownership import Supervisor
from appliance.supervisor.reconciler import OperationHistory
from appliance.supervisor.traffic_figures import Figures, TrafficFigures
from appliance.supervisor.unit_memory import StatusReader
from appliance.switch.goals import involved, phase_deadline_s
from appliance.switch.memory.peak import ObservedPeak
from appliance.switch.repair import stopped_by_choice
from appliance.system.applied.installed_units import InstalledUnits
from appliance.system.applied.manifest import EditWatch
from appliance.system.applied.pending_changes import STARTED_FILE, ProfileDirectory, StartedUnits
from appliance.system.build_records import current_builds
from appliance.system.ports import Clock, Host, Peaks, Store, Units

_KEPT_S: Final = 10.0


class FileComparison:
    """Comparison, for frequent callers.

    Args:
        settings: Directories of this box.
        monotonic_s: Clock.
    """

    def __init__(self, settings: Settings, monotonic_s: Callable[[], float]) -> None:
        unit_dir, applied_dir = settings.unit_dir, settings.applied_dir
        self._monotonic_s = monotonic_s
        self._started = StartedUnits(unit_dir, settings.runtime_dir / STARTED_FILE)
        self._installed = InstalledUnits(unit_dir, applied_dir)
        self._builds_dir = str(applied_dir / BUILDS)
        self._profiles = ProfileDirectory(settings.profiles_dir, applied_dir)
        self._kept = InstalledForm()
        self._key: object = None
        self._at_s = 0.0

    def compared(
        self, catalogue: Catalogue, observed: Observed, edited: frozenset[str]
    ) -> InstalledForm:
        """Return the comparison of these profiles.

        Args:
            catalogue: The applied profiles.
            observed: Their units with details.
            edited: Profiles whose file differs from what is applied.
        """
        started = {
            name: unit.started_unix_s
            for name in catalogue
            if (unit := observed.unit(name)).main_pid and unit.started_unix_s
        }
        key, now_s = (catalogue, started, edited), self._monotonic_s()
        if key != self._key or now_s - self._at_s > _KEPT_S:
            self._kept = InstalledForm(
                outdated=self._started.outdated(started),
                unit_changes=self._installed.drift(catalogue),
                profile_files=self._profiles.rows(catalogue, edited),
                builds=current_builds(catalogue, self._builds_dir),
            )
            self._key, self._at_s = key, now_s
        return self._kept


_MOST: Final = 5
"""Times that are looked at, the newest: a model that grew soon has another usual duration."""
_LEAST_S: Final = 1.0
"""Usual duration below which a share says nothing."""
MOST_SHARE: Final = 0.99
"""Share of a phase that has taken as long as usual, or longer, and still runs."""


def usual_phases_s(ended: Iterable[Finished], operation: Operation) -> Mapping[str, float]:
    """Return the median duration of each phase, by its name.

    Args:
        ended: Operations that are over, newest first.
        operation: Operation that runs; others with the same target that were done count.
    """
    like = [
        one.phases_ms
        for one in ended
        if one.outcome is Outcome.DONE
        and one.operation.target == operation.target
        and one.operation.id != operation.id
    ][:_MOST]
    phases = {phase for phases_ms in like for phase in phases_ms}
    return {
        phase: median(found[phase] for found in like if phase in found) / 1000 for phase in phases
    }


def phase_share(phase_s: float, usual_s: float | None) -> float | None:
    """Return the share of a phase that is over, 0 to 1; None: its usual duration is not known, or short."""
    if usual_s is None or usual_s < _LEAST_S:
        return None
    return round(min(phase_s / usual_s, MOST_SHARE), 3)


_MOST_LIKE: Final = 100
"""Operations among which those are that tell how long a phase usually takes, the newest."""


class _NeedCache:
    """Cache of the needs of all profiles, made anew once something that decides them has changed."""

    def __init__(self) -> None:
        self._catalogue: Catalogue | None = None
        self._figures: tuple[object, ...] = ()
        self._rows: Mapping[str, NeedRow] = {}

    def rows(
        self,
        catalogue: Catalogue,
        devices: Sequence[DeviceMemory],
        peaks: Mapping[str, ObservedPeak],
        ram_total_bytes: int,
    ) -> Mapping[str, NeedRow]:
        """Return what `need_rows` returns of the same arguments."""
        figures = (devices, peaks, ram_total_bytes)
        if catalogue is not self._catalogue or figures != self._figures:
            self._rows = need_rows(catalogue, *figures)
            self._catalogue, self._figures = catalogue, figures
        return self._rows


class BoxStatus:
    """Builder of the document that `appliance status` and the API show."""

    def __init__(
        self,
        supervisor: Supervisor,
        ledger: MemorySampler,
        traffic: TrafficFigures,
        *,
        host: Host,
        store: Store,
        peaks: Peaks,
        units: Units,
        clock: Clock,
        gateway_damage: Callable[[], str | None],
        stalls: Callable[[], Mapping[str, Stall]],
        verifications: Callable[[], Mapping[str, VerificationRow]],
        files: FileComparison,
    ) -> None:
        self._supervisor = supervisor
        self._ledger = ledger
        self._traffic = traffic
        self._host = host
        self._store = store
        self._peaks = peaks
        self._units = units
        self._clock = clock
        self._gateway_damage = gateway_damage
        """Damage of the gateway's file, for root; None: none."""
        self._stalls = stalls
        self._verifications = verifications
        self._files = files
        self._history = OperationHistory(store)
        self._edits = EditWatch()
        self._usual: tuple[int, Mapping[str, float]] = (0, {})
        """Number of the operation that ran last, and usual durations of its phases in seconds."""
        self._needs = _NeedCache()
        self._rows = KnownRows()
        self._began_s = clock.monotonic_s()

    async def document(self, reader: StatusReader = StatusReader.PERSON) -> StatusDocument:
        """Return the box as it is now.

        Args:
            reader: Reader, who decides what is read for the document. For a `WATCHER` it has what is known.
        """
        state = await self._supervisor.state(reader)
        now, now_s = self._clock.unix_s(), self._clock.monotonic_s()
        ram, refusals, marks = await asyncio.gather(
            self._host.ram(), self._host.gate_refusals(), self._store.marks()
        )
        change = await self._history.last_change(state.last)
        serving = state.observed.serving()
        ledger, figures = self._ledger.known(), self._traffic.known(serving)
        if reader is not StatusReader.WATCHER:
            ledger, figures = await asyncio.gather(
                self._ledger.latest(), self._traffic.latest(state.catalogue, serving, reader)
            )
        running = None
        if state.running is not None:
            usual = await self._usual_phases(state.running.operation)
            running = _running(state.running, state.catalogue, usual, now_s)
        edited = self._edits.edited(state.catalogue)
        devices = () if ledger is None else tuple(ledger.gpus.devices)
        peaks = self._peaks.peaks(state.catalogue)
        needs = self._needs.rows(state.catalogue, devices, peaks, ram.total_bytes)
        document = build_status(
            catalogue=state.catalogue,
            observed=state.observed,
            committed=state.committed,
            hold_until=state.hold_until,
            marks=marks,
            operation=running,
            last_operation=None if state.last is None else self._ended(state.last),
            last_change=None if change is None else self._ended(change),
            stopped=stopped_by_choice(
                state.committed,
                state.observed,
                await self._history.newest(state.last),
                self._units.boot_id,
            ),
            held_by=await self._history.held_by(state.hold_until),
            memory=memory_row(ram, ledger, now_s=now_s),
            supervisor=SupervisorRow(state="up", uptime_s=now_s - self._began_s),
            host=socket.gethostname(),
            version=appliance.__version__,
            now=now,
            now_s=now_s,
            edited=edited,
            installed=self._files.compared(state.catalogue, state.observed, edited),
            refusals=refusals,
            memory_of=profile_memory(state.catalogue, ledger, needs),
            gateway=None if figures is None else _gateway_row(figures),
            stalls=self._stalls(),
            verifications=self._verifications(),
            watches={name: marks.get(name, first) for name, first in state.watches.items()},
            known=self._rows,
        )
        damages = [state.damage, self._gateway_damage()]
        why = [*filter(None, damages), *document.verdict.why]
        return document.replaced(verdict=document.verdict.replaced(why=why))

    async def operations(self, most: int) -> OperationsSection:
        """Return the operation that runs, and the newest that are over."""
        running = self._running_record()
        over = [self._record(finished) for finished in await self._store.newest(most)]
        if running is not None and any(one.id == running.id for one in over):
            running = None  # it has ended while the store was read
        return OperationsSection(running=running, operations=over)

    async def operation(self, number: int) -> RecordedOperation | None:
        """Return one operation, also the one that runs; None: it is not on record."""
        running = self._running_record()
        if running is not None and running.id == number:
            return running
        finished = await self._store.finished(number)
        return None if finished is None else self._record(finished)

    async def _usual_phases(self, operation: Operation) -> Mapping[str, float]:
        """Return the usual durations of an operation's phases, read once for each operation."""
        known, found = self._usual
        if known != operation.id:
            found = usual_phases_s(await self._store.newest(_MOST_LIKE), operation)
            self._usual = operation.id, found
        return found

    def _running_record(self) -> RecordedOperation | None:
        running = self._supervisor.current()
        if running is None:
            return None
        catalogue, _ = self._supervisor.last_look()
        row = _running(running.transaction, catalogue, {}, self._clock.monotonic_s())
        return RecordedOperation(
            id=row.id,
            kind=row.kind,
            requested_by=row.requested_by,
            target=row.target,
            profiles=row.profiles,
            state="running",
            began_unix_s=running.transaction.operation.began_unix_s,
            ms=round(row.elapsed_s * 1000, 1),
            phase=row.phase,
            phase_s=row.phase_s,
            deadline_s=row.deadline_s,
            rolling_back=row.rolling_back,
            text=row.text,
            phases_ms=running.transaction.phases_ms,
        )

    def _record(self, finished: Finished) -> RecordedOperation:
        row = self._ended(finished)
        return RecordedOperation(
            **row.fields(),
            state="over",
            began_unix_s=finished.operation.began_unix_s,
            rolling_back=finished.operation.rolling_back,
            cause=finished.cause,
            phases_ms=dict(finished.phases_ms),
        )

    def _ended(self, finished: Finished) -> EndedOperationRow:
        operation, clock = finished.operation, self._clock
        return EndedOperationRow(
            id=operation.id,
            kind=operation.kind,
            target=list(operation.target),
            profiles=list(involved(operation)),
            outcome=finished.outcome,
            failed=finished.failed,
            message=finished.message,
            requested_by=operation.requested_by,
            finished_unix_s=finished.finished_unix_s,
            age_s=finished.age_s(
                now_s=clock.monotonic_s(),
                now_unix_s=clock.unix_s(),
                boot_id=self._units.boot_id,
            ),
            ms=round(finished.total_ms, 1),
        )


def _gateway_row(figures: Figures) -> GatewayRow:
    return gateway_row(
        figures.stats, figures.loads, age_s=figures.age_s, loads_age_s=figures.loads_age_s
    )


def _running(
    transaction: Transaction, catalogue: Catalogue, usual: Mapping[str, float], now_s: float
) -> OperationRow:
    operation = transaction.operation
    # A roll-back brings up another profile than the target.
    usual_s = None if operation.rolling_back else usual.get(operation.phase)
    return OperationRow(
        id=operation.id,
        kind=operation.kind,
        target=list(operation.target),
        profiles=list(involved(operation)),
        phase=operation.phase,
        phase_s=round(transaction.phase_s, 1),
        deadline_s=phase_deadline_s(operation, catalogue),
        usual_s=None if usual_s is None else round(usual_s, 1),
        progress=phase_share(transaction.phase_s, usual_s),
        rolling_back=operation.rolling_back,
        elapsed_s=round(now_s - operation.began_s, 1),
        text=transaction.text,
        requested_by=operation.requested_by,
    )
