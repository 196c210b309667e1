"""Observer of the box, on sources in memory."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.alerts.snapshot import (
    ProfileLook,
    UnitLook,
)
from appliance.health.box_view import NOT_CONNECTED, BoxView
from appliance.health.watching.box_observer import BoxObserver, disk_looks
from appliance.health.watching.checks import EngineChecks, WatchChecks, ask_no_url
from appliance.model.errors import LaneBusyError, StoreError, UnitError
from appliance.model.gpus import ForeignProcess, GpuHealth
from appliance.model.measurements import BoxGpus
from appliance.model.memory import GpuState
from appliance.model.names import GATEWAY_UNIT, SUPERVISOR_UNIT, unit_of
from appliance.model.observed import ActiveState
from appliance.model.profile import Catalogue
from appliance.model.status import EndedOperationRow, OperationRow
from appliance.model.words import Mark
from appliance.settings.tables import WatchSettings
from appliance.system.systemd.unit_reader import UnitReading
from appliance.wire.helpers import Listener
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer, LaneRequest
from tests.fakes.profiles import applied, catalogue
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

BOOTED_UNIX_S = 1_760_000_000.0
OLD = WatchSettings(name="old", url=None, unit="vllm.service", mark=Mark.LIVE, every=30.0)
LISTENER = Listener(address="0.0.0.0", port=80, pid=7, process="x")  # noqa: S104


class Box:
    """Sources of an observer; any of them may fail or hang."""

    def __init__(self) -> None:
        self.clock = VirtualHealthClock()
        self.catalogue: Catalogue | None = catalogue(applied("a", "gpu-0"))
        self.states: dict[str, ActiveState] = {}
        self.is_hung = False
        self.is_broken = False
        self.gpu_state = GpuState.LOST
        self.asked: list[str] = []
        self.pids: Sequence[int] = ()
        self.view = BoxView(
            connected=True, committed=frozenset({"a"}), read_s=self.clock.monotonic_s()
        )
        self.lane = FakeProbeLane(self._lane)
        self.observer = BoxObserver(
            clock=self.clock,
            view=lambda: self.view,
            catalogue=self._catalogue,
            units=self._units,
            booted_unix_s=lambda: BOOTED_UNIX_S,
            engines=EngineChecks(self.lane, self.clock, asyncio.Lock()),
            watches=WatchChecks([OLD], ask_no_url, self.clock),
            gpus=self._gpus,
            listeners=self._listeners,
            drift=lambda names: dict.fromkeys(names, ()),
            directories=("/proc", "/nowhere"),
            stores=lambda: ("no room",),
        )

    def _catalogue(self) -> Catalogue:
        if self.catalogue is None:
            raise StoreError("damaged")
        return self.catalogue

    async def _source(self, name: str) -> None:
        self.asked.append(name)
        if self.is_broken:
            raise UnitError("gone")
        if self.is_hung:
            await advance(3600)

    def _lane(self, request: LaneRequest) -> LaneAnswer:
        if request.profile != "a":
            raise LaneBusyError("it is not applied")
        return LaneAnswer()

    async def _units(self, names: Sequence[str]) -> Mapping[str, UnitReading]:
        await self._source("units")
        return {
            name: UnitReading(
                look=UnitLook(
                    unit=name,
                    active=self.states.get(name, ActiveState.ACTIVE),
                    main_pid=7,
                    active_since_unix_s=BOOTED_UNIX_S + 5,
                )
            )
            for name in names
        }

    async def _gpus(self) -> BoxGpus:
        await self._source("gpus")
        health = GpuHealth(
            index=0,
            uuid="GPU-0",
            foreign=(ForeignProcess(pid=9, name="x", user="bob", held_bytes=1),),
        )
        return BoxGpus(taken_s=0.0, state=self.gpu_state, problem="lost", health=(health,))

    async def _listeners(self, pids: Sequence[int]) -> tuple[Listener, ...]:
        await self._source("listeners")
        self.pids = pids
        return (LISTENER,)


async def test_a_look_has_what_every_source_tells() -> None:
    """Units, engines, GPUs, sockets, watches, disks and stores come together in one look."""
    box = Box()
    look = await box.observer.look()
    assert look.supervisor_answers
    assert look.supervisor is not None
    assert look.gateway is not None
    assert (look.supervisor.unit, look.gateway.unit) == (SUPERVISOR_UNIT, GATEWAY_UNIT)
    a = look.profiles["a"]
    assert (look.gateway_answers, a.answers, a.desired, a.drift) == (True, True, True, ())
    assert look.gpus is not None
    assert [gpu.uuid for gpu in look.gpus] == ["GPU-0"]
    assert (look.gpu_state, look.gpu_problem) == ("lost", "lost")
    assert (look.listeners, box.pids) == ((LISTENER,), (9,))
    assert [(w.name, w.is_up) for w in look.watches] == [("old", True)]
    assert [disk.path for disk in look.disks] == ["/proc"]
    assert look.stores == ("no room",)


async def test_sources_are_asked_at_their_own_pace() -> None:
    """Units are read at each look, sockets at every second, GPUs at every third."""
    box = Box()
    for _ in range(6):
        await box.observer.look()
        await advance(10.0)
    counts = {name: box.asked.count(name) for name in ("units", "listeners", "gpus")}
    assert counts == {"units": 6, "listeners": 3, "gpus": 2}


async def test_a_box_without_a_driver_is_asked_ever_less() -> None:
    """Each reading without a driver starts a program; one that has come is read as usual at once."""
    box = Box()
    box.gpu_state = GpuState.NO_DRIVER
    asked_s = []
    began_s = asyncio.get_running_loop().time()
    for _ in range(200):
        before = box.asked.count("gpus")
        await box.observer.look()
        if box.asked.count("gpus") > before:
            asked_s.append(round(asyncio.get_running_loop().time() - began_s))
        await advance(10.0)
    assert asked_s == [0, 60, 180, 420, 900, 1500]
    box.gpu_state = GpuState.OK
    await advance(600.0)
    box.asked.clear()
    for _ in range(7):
        await box.observer.look()
        await advance(10.0)
    assert box.asked.count("gpus") == 3


async def test_a_box_of_which_nothing_can_be_seen_is_unknown() -> None:
    """Sources that fail give None, and no look fails with them."""
    box = Box()
    box.is_broken, box.view = True, NOT_CONNECTED
    look = await box.observer.look()
    assert not look.supervisor_answers
    assert (look.supervisor, look.gateway, look.gpus, look.gpu_state) == (None,) * 4
    assert (look.listeners, look.watches[0].is_up) == (None, None)
    assert look.profiles == {"a": ProfileLook(name="a", drift=())}


async def test_a_look_is_bounded() -> None:
    """With every source hanging a look ends within seconds."""
    box = Box()
    box.is_hung = True
    began_s = asyncio.get_running_loop().time()
    look = await box.observer.look()
    assert asyncio.get_running_loop().time() - began_s <= 7.0
    assert (look.supervisor, look.gpus, look.listeners) == (None, None, None)


async def test_an_old_status_is_no_answer() -> None:
    """A supervisor whose last document is older than half a minute does not answer."""
    box = Box()
    running = OperationRow(
        id=1, kind="stop", target=(), profiles=(), phase="stop", phase_s=0.0, deadline_s=None
    )
    ended = EndedOperationRow(
        id=0, kind="stop", target=(), outcome="done", failed=False, finished_unix_s=1.0
    )
    box.view = replace(box.view, running=running, ended=ended)
    look = await box.observer.look()
    assert (look.operation, look.last_operation) == (running, ended)
    await advance(30.5)
    look = await box.observer.look()
    assert not look.supervisor_answers
    assert (look.operation, look.last_operation) == (None, ended)


async def test_profiles_outlive_a_damaged_manifest() -> None:
    """Profiles that were read last stay when the manifest cannot be read."""
    box = Box()
    await box.observer.look()
    box.catalogue = None
    assert list((await box.observer.look()).profiles) == ["a"]


async def test_engines_that_are_not_up_are_not_asked() -> None:
    """Only an engine whose unit is up is asked for its health."""
    box = Box()
    box.states[unit_of("a")] = ActiveState.ACTIVATING
    look = await box.observer.look()
    assert (look.gateway_answers, look.profiles["a"].answers) == (True, None)


def test_a_file_system_is_told_once(tmp_path: Path) -> None:
    """Directories of one file system share a row; those that are missing have none."""
    (disk,) = disk_looks([str(tmp_path), str(tmp_path), "/nowhere"])
    assert disk.path == str(tmp_path)
    assert 0 < disk.free_bytes <= disk.total_bytes
