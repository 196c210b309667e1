"""A supervisor on fake ports around one fake systemd."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from appliance.model.observed import Observed
from appliance.model.operations import Operation, RunCaller
from appliance.model.profile import Catalogue
from appliance.settings.tables import Settings
from appliance.status.box_status import InstalledForm
from appliance.status.stalls import Stall
from appliance.supervisor.boot_choice import BootChoice
from appliance.supervisor.engine_verifier import EngineVerifier
from appliance.supervisor.memory_sampler import LastLook, MemorySampler
from appliance.supervisor.model_checks import Preflight
from appliance.supervisor.operation_runner import (
    Transaction,
    transaction_factory,
)
from appliance.supervisor.ownership import Supervisor
from appliance.supervisor.stall_watch import StallWatch
from appliance.supervisor.status_report import BoxStatus, FileComparison
from appliance.supervisor.traffic_figures import TrafficFigures
from appliance.supervisor.unit_memory import UnitMemory
from appliance.system.ports import (
    Gateway,
    Profiles,
)
from tests.fakes.clock import FakeClock
from tests.fakes.ports import (
    FakeBackend,
    FakeCommitment,
    FakeGateway,
    FakeHost,
    FakePeaks,
    FakeRunTickets,
    FakeStore,
)
from tests.fakes.systemd import FakeSystemd
from tests.fakes.unit_processes import UnitProcesses
from tests.fakes.units import FakeUnits

S = TypeVar("S", bound=Supervisor)
_NO_FILES: Final = Settings(
    unit_dir=Path("/nonexistent"),
    applied_dir=Path("/nonexistent"),
    profiles_dir=Path("/nonexistent"),
)
_SETTINGS: Final = Settings(look_every_s=1.0)


class FakeFileComparison(FileComparison):
    """Comparison with the files on disk whose result a test sets."""

    def __init__(self) -> None:
        super().__init__(_NO_FILES, lambda: 0.0)
        self.form = InstalledForm()

    def compared(
        self, catalogue: Catalogue, observed: Observed, edited: frozenset[str]
    ) -> InstalledForm:
        """Return the result that was set."""
        del catalogue, observed, edited
        return self.form


class FakePorts:
    """Fakes of all ports together; tests adjust the parts."""

    def __init__(self, catalogue: Catalogue, *committed: str) -> None:
        self.systemd = FakeSystemd(catalogue)
        self.processes = UnitProcesses(self.systemd)
        self.units = FakeUnits(self.systemd)
        self.backend = FakeBackend()
        self.gateway = FakeGateway()
        self.host = FakeHost(self.processes, self.units.starts)
        self.commitment = FakeCommitment(*committed)
        self.store = FakeStore()
        self.peaks = FakePeaks()
        self.tickets = FakeRunTickets()
        self.clock = FakeClock(self.systemd)

    def supervisor(
        self,
        profiles: Profiles,
        *,
        settings: Settings = _SETTINGS,
        gateway: Gateway | None = None,
    ) -> Supervisor:
        """A supervisor on these ports; `gateway`: another one than the fake."""
        return self.supervisor_as(Supervisor, profiles, settings=settings, gateway=gateway)

    def supervisor_as(
        self,
        kind: type[S],
        profiles: Profiles,
        *,
        settings: Settings = _SETTINGS,
        gateway: Gateway | None = None,
    ) -> S:
        """A supervisor of a class of the test's own."""
        return kind(
            profiles,
            units=self.units,
            memory=UnitMemory(self.units, self.clock),
            backend=self.backend,
            gateway=gateway or self.gateway,
            host=self.host,
            commitment=self.commitment,
            store=self.store,
            peaks=self.peaks,
            tickets=self.tickets,
            clock=self.clock,
            settings=settings,
            on_look=lambda _line: None,
        )

    def transaction(
        self, operation: Operation, catalogue: Catalogue, *, caller: RunCaller | None = None
    ) -> Transaction:
        """The transaction of one operation."""
        new_transaction = transaction_factory(
            units=self.units,
            backend=self.backend,
            gateway=self.gateway,
            host=self.host,
            store=self.store,
            tickets=self.tickets,
            clock=self.clock,
            preflight=Preflight(
                host=self.host, units=self.units, store=self.store, peaks=self.peaks
            ),
            verifier=self.verifier(lambda: (catalogue, Observed(units={}))),
            boot_choice=BootChoice(commitment=self.commitment, units=self.units, clock=self.clock),
        )
        return new_transaction(
            operation, catalogue, caller, lambda _observed: None, lambda state, _observed: state
        )

    def memory_sampler(self, look: LastLook, *, settings: Settings = _SETTINGS) -> MemorySampler:
        """A sampler of what `look` says runs."""
        return MemorySampler(
            look,
            units=self.units,
            host=self.host,
            peaks=self.peaks,
            clock=self.clock,
            settings=settings,
        )

    def verifier(self, look: LastLook) -> EngineVerifier:
        """A verifier of what `look` says serves."""
        return EngineVerifier(
            look, backend=self.backend, host=self.host, units=self.units, clock=self.clock
        )

    def stall_watch(self, look: LastLook) -> StallWatch:
        """A watch over what `look` says serves."""
        return StallWatch(look, units=self.units, stats=self.gateway.stats, clock=self.clock)

    def traffic(self, supervisor: Supervisor) -> TrafficFigures:
        """Return the reader of the figures of gateway and engines."""
        return TrafficFigures(
            supervisor.last_look, gateway=self.gateway, backend=self.backend, clock=self.clock
        )

    def status(
        self,
        supervisor: Supervisor,
        ledger: MemorySampler,
        traffic: TrafficFigures | None = None,
        *,
        gateway_damage: Callable[[], str | None] = lambda: None,
        stalls: Callable[[], Mapping[str, Stall]] = dict,
        files: FileComparison | None = None,
    ) -> BoxStatus:
        """Return the object that answers ``appliance status``."""
        return BoxStatus(
            supervisor,
            ledger,
            traffic or self.traffic(supervisor),
            host=self.host,
            store=self.store,
            peaks=self.peaks,
            units=self.units,
            clock=self.clock,
            gateway_damage=gateway_damage,
            stalls=stalls,
            verifications=supervisor.verifier.known,
            files=files or FakeFileComparison(),
        )

    def serve(self, *names: str) -> None:
        """Bring profiles up by hand and forget that it was done."""
        for name in names:
            self.systemd.start(name)
        while self.systemd.next_due_s() < float("inf"):
            self.systemd.advance(self.systemd.now_s + 60)
