"""Contracts of the ports that need nothing booted, on each fake and on what it stands for.

======================  ====================  =================================================
port                    adapter               contract
======================  ====================  =================================================
``Clock``               `SystemClock`         here
``RunTickets``          `FileRunTickets`      here
``Profiles``            `ManifestProfiles`    here
``Backend``             `HttpBackend`         here, over HTTP
``Gateway``             `SocketGateway`       here, over gateway.sock
``Host``                `LinuxHost`           here, its GPUs under the pretend driver
``ProbeLane``           `SocketProbeLane`     with the tests of the gateway's lane (`either`)
``Commitment``          `FileCommitment`      with the tests of the adapter (`either`)
``Store``               `OperationStore`         with the tests of the adapter (`either`)
``Peaks``               `FilePeaks`           with the tests of the adapter (`peaks`)
``Units``, ``Change``   `SystemdUnits`        `units_contract`, on a booted box too
======================  ====================  =================================================
"""

import asyncio
import json
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from appliance.gateway.meter import Meter
from appliance.gateway.routing_table import RoutingTable
from appliance.gateway.supervisor_commands import GatewayServer, SupervisorCommands
from appliance.model.claims import claim_on
from appliance.model.errors import BackendError, StoreError
from appliance.model.gateway import Standing, State
from appliance.model.memory import GpuMemory, GpuState
from appliance.model.names import unit_of
from appliance.model.operations import RunCaller
from appliance.model.profile import Applied, Endpoint, WarmUp
from appliance.switch.preflight_facts import ProfileFacts
from appliance.system.applied.manifest import MANIFEST, ManifestProfiles, encode_manifest
from appliance.system.engine_http import HttpBackend
from appliance.system.gpus import reader
from appliance.system.host import LinuxHost, SystemClock
from appliance.system.launch_files import FileRunTickets
from appliance.system.ports import Backend, Clock, Gateway, Host, Profiles, RunTickets
from appliance.system.socket_gateway import SocketGateway
from appliance.wire import gate_verdict
from appliance.wire.run_ticket import Ticket
from tests.contracts.units_contract import CASES, ONE, RIVAL, Case
from tests.fakes.clock import FakeClock
from tests.fakes.engine_server import EngineServer, answering, sized
from tests.fakes.gateway_states import BOX, idle_requests
from tests.fakes.gpu_readings import card
from tests.fakes.ports import FakeBackend, FakeGateway, FakeHost, FakeRunTickets
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.systemd import FakeSystemd
from tests.fakes.unit_processes import UnitProcesses
from tests.fakes.units import FakeUnits
from tests.pretend import GIB, Gpus, build

either = pytest.mark.parametrize("real", [True, False], ids=["adapter", "fake"])
GENESIS = applied("genesis", "gpu-all")
AEON = applied("aeon", "gpu-all")
CALLER = RunCaller(uid=1000, token="t")  # noqa: S106


# --- the clock -------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [SystemClock(), FakeClock(FakeSystemd({}))])
def test_a_clock_never_goes_back(clock: Clock) -> None:
    """Monotonic time never goes back, and the wall clock gives seconds since the epoch."""
    assert 0 <= clock.monotonic_s() <= clock.monotonic_s()
    assert clock.unix_s() > 0


# --- tickets ---------------------------------------------------------------------------------


@either
def test_the_last_ticket_admits(tmp_path: Path, *, real: bool) -> None:
    """A ticket replaces the one before; revoking leaves none, as often as it is done."""
    file, fake = tmp_path / "ticket.json", FakeRunTickets()
    tickets: RunTickets = FileRunTickets(file) if real else fake

    def operation() -> int | None:
        if not real:
            return None if fake.issued is None else fake.issued[0]
        return Ticket(json.loads(file.read_text())).operation if file.exists() else None

    tickets.revoke()
    assert operation() is None
    for number in (1, 2):
        tickets.issue(number, CALLER, claim_on("all"))
        assert operation() == number
    tickets.revoke()
    tickets.revoke()
    assert operation() is None


@either
def test_a_ticket_that_cannot_be_written_is_told(tmp_path: Path, *, real: bool) -> None:
    """Where there is no room for a ticket, the operation learns it."""
    fake = FakeRunTickets()
    fake.full = True
    tickets: RunTickets = FileRunTickets(tmp_path / "absent" / "ticket.json") if real else fake
    with pytest.raises(StoreError):
        tickets.issue(1, CALLER, claim_on("all"))


# --- applied profiles ------------------------------------------------------------------------


@either
@pytest.mark.parametrize("profiles", [(), (GENESIS, AEON)], ids=["none", "two"])
def test_applied_profiles_are_loaded(
    tmp_path: Path, profiles: tuple[Applied, ...], *, real: bool
) -> None:
    """Applied profiles come back equal, by name, and none is damaged."""
    expected = catalogue(*profiles)
    if expected:
        (tmp_path / MANIFEST).write_text(encode_manifest(expected, "0.1.0"))
    port: Profiles = ManifestProfiles(tmp_path) if real else FakeProfiles(expected)
    assert port.load() == expected
    assert port.damage is None


# --- an engine -------------------------------------------------------------------------------


def engine(status: bytes) -> EngineServer:
    """Return an engine with one answer to everything."""
    return EngineServer(answering(sized(b'{"choices": [{}]}', status)))


@either
async def test_a_warm_engine_answers(*, real: bool) -> None:
    """A warm-up says what to show; a profile that wants none is asked nothing."""
    backend: Backend = HttpBackend() if real else FakeBackend()
    async with engine(b"200 OK") as server:
        profile = replace(GENESIS, endpoint=Endpoint(port=server.port))
        assert (await backend.warm_up(profile, timeout_s=20)).startswith("answered in ")
    silent = replace(profile, warm_up=WarmUp.NONE)
    assert await backend.warm_up(silent, timeout_s=20) == "not asked for"


@either
async def test_a_cold_engine_is_a_backend_error(*, real: bool) -> None:
    """An engine that refuses fails its warm-up and has no load to tell."""
    fake = FakeBackend()
    fake.cold.add("genesis")
    backend: Backend = HttpBackend() if real else fake
    async with engine(b"500 Oops") as server:
        profile = replace(GENESIS, endpoint=Endpoint(port=server.port))
        with pytest.raises(BackendError):
            await backend.warm_up(profile, timeout_s=20)
        assert await backend.load(profile) is None


# --- the gateway -----------------------------------------------------------------------------


class Traffic:
    """No requests."""

    def in_flight(self, names: object) -> int:  # noqa: ARG002
        return 0

    async def drain(self, names: object, timeout_s: float) -> tuple[int, int]:  # noqa: ARG002
        return 0, 0


@dataclass
class GatewayEnds:
    """The port, and the state that the gateway goes by."""

    port: Gateway
    state: Callable[[], State]


@asynccontextmanager
async def gateway_ends(
    folder: Path, *, real: bool, away: bool = False
) -> AsyncIterator[GatewayEnds]:
    """A gateway behind its socket, or the fake; `away`: nobody answers."""
    if not real:
        fake = FakeGateway()
        fake.away = away
        yield GatewayEnds(fake, lambda: fake.state)
        return
    table, path = RoutingTable(BOX), folder / "gateway.sock"
    gateway = SocketGateway(path, patience_s=20, figures_s=20)
    if away:
        yield GatewayEnds(gateway, lambda: table.state)
        return
    server = GatewayServer(
        SupervisorCommands(table, Traffic(), Meter(), idle_requests(table), reload=lambda: None).do
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        running = [asyncio.create_task(server.serve(listener)), asyncio.create_task(gateway.run())]
        try:
            yield GatewayEnds(gateway, lambda: table.state)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await server.close()


@either
async def test_a_gateway_goes_by_what_it_is_told(tmp_path: Path, *, real: bool) -> None:
    """Hold, drain and release say what to show, and it serves by the last state from then on."""
    serving = State(standings={"genesis": Standing.SERVING}, committed=("genesis",))
    async with gateway_ends(tmp_path, real=real) as gateway:
        gateway.port.reload()
        assert await gateway.port.hold(["genesis"]) is not None
        assert await gateway.port.drain(["genesis"], 20.0) is not None
        assert await gateway.port.release(serving) is not None
        assert gateway.state() == serving
        stats = await gateway.port.stats()
        assert stats is None or "profiles" in stats  # None: a busy machine took too long
        nothing = {"requests": [], "left_off": 0}
        assert await gateway.port.requests() in (nothing, None)
        assert not (await gateway.port.cut("ab-1") or {}).get("requests")


@either
async def test_a_gateway_that_is_away_is_done_without(tmp_path: Path, *, real: bool) -> None:
    """Without an answer of the gateway every step is skipped, and no error is raised."""
    async with gateway_ends(tmp_path, real=real, away=True) as gateway:
        gateway.port.route(State())
        gateway.port.reload()
        assert await gateway.port.hold(["genesis"]) is None
        assert await gateway.port.drain(["genesis"], 20.0) is None
        assert await gateway.port.release(State()) is None
        assert await gateway.port.stats() is None
        assert await gateway.port.requests() is None
        assert await gateway.port.cut("ab-1") is None


# --- the machine -----------------------------------------------------------------------------


@either
async def test_a_machine_is_read(tmp_path: Path, *, real: bool) -> None:
    """Memory adds up, the gate's last words are found, and what is not there is unknown."""
    processes = UnitProcesses(FakeSystemd(catalogue(GENESIS, AEON)))
    fake = FakeHost(processes)
    processes.refusals["aeon"] = "memory is not back"
    fake.admitted["genesis"] = "2.0 → 1.0 GiB in 1.0 s"
    fake.installed["aeon"] = None
    for name, verdict, reason in (
        ("aeon", gate_verdict.LATE, "memory is not back"),
        ("genesis", gate_verdict.ADMITTED, "2.0 → 1.0 GiB in 1.0 s"),
    ):
        text = gate_verdict.encoded(verdict, reason, unix_s=1, invocation_id="", figures={})
        (tmp_path / f"{name}{gate_verdict.SUFFIX}").write_text(text)
    (tmp_path / unit_of("genesis")).touch()
    report = tmp_path / "report"
    host: Host = LinuxHost(gate_dir=tmp_path, unit_dir=tmp_path, report=report) if real else fake

    ram, box = await host.ram(), await host.box(with_gpus=False)
    assert 0 < ram.available_bytes <= ram.total_bytes == box.ram_total_bytes
    assert await host.gate_refusals() == {"aeon": "memory is not back"}
    assert await host.admissions() == {"genesis": "2.0 → 1.0 GiB in 1.0 s"}
    assert await host.group("/appliance.slice/absent.service") is None
    assert await host.run_report() is None
    assert await host.installed_unix_s("genesis") is not None
    assert await host.installed_unix_s("aeon") is None
    assert len(await host.log_tail("genesis", 1, since_unix_s=0)) <= 1
    assert isinstance(await host.facts(GENESIS), ProfileFacts)


@pytest.fixture
def pretend_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two empty GPUs under the real binding; skipped without a compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; the GPUs of LinuxHost stay unproved")
    gpus = Gpus(tmp_path / "gpus")
    gpus.replace({"count": 2, "*.total": 16 * GIB})
    for name, value in gpus.environment(build()).items():
        monkeypatch.setenv(name, value)
    yield
    reader._READER.close()


@either
@pytest.mark.usefixtures("pretend_gpus")
async def test_gpus_are_read(tmp_path: Path, *, real: bool) -> None:
    """Each GPU is read once, with its holders; who needs no GPU is told of none."""
    fake = FakeHost(UnitProcesses(FakeSystemd({})))
    fake.gpu_memory = GpuMemory(devices=(card(0, ()), card(1, ())))
    host: Host = LinuxHost(gate_dir=tmp_path, unit_dir=tmp_path) if real else fake
    memory = await host.gpus()
    assert (memory.state, memory.reason) == (GpuState.OK, None)
    assert [device.index for device in memory.devices] == [0, 1]
    assert all(device.total_bytes == 16 * GIB for device in memory.devices)
    assert all(device.holders == () for device in memory.devices)
    needed, unneeded = await host.box(with_gpus=True), await host.box(with_gpus=False)
    assert needed.devices.keys() == {0, 1}
    assert (needed.gpu_state, needed.gpu_error) == (memory.state, memory.reason)
    assert unneeded.devices == {}


# --- units -----------------------------------------------------------------------------------


class FakeHands:
    """Acts of people and accidents on the units of a fake systemd."""

    def __init__(self, units: FakeUnits) -> None:
        self._units = units

    async def kill(self, name: str, number: int) -> None:
        killed = 0 if number == signal.SIGTERM else number
        self._units.systemd.main_exited(name, signal=killed)
        self._units.version += 1

    async def start_alone(self, name: str) -> None:
        self._units.systemd.start(name, alone=True)
        self._units.version += 1


@pytest.mark.parametrize("check", CASES, ids=[check.__name__ for check in CASES])
async def test_units_of_the_fake(check: Callable[[Case], Awaitable[None]]) -> None:
    """The fake systemd keeps the contract that a booted one keeps (tests/system)."""
    systemd = FakeSystemd(catalogue(applied(ONE, "cpu"), applied(RIVAL, "cpu")))
    processes = UnitProcesses(systemd)
    for behaviour in processes.behaviour.values():
        behaviour.gate_s = 0.2
    units = FakeUnits(systemd)
    case = Case(units, FakeHands(units))
    await check(case)
    await case.clean_up()
