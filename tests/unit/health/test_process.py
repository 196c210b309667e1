"""Process of the health agent: its parts together, without a box around it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.health.clock import SystemHealthClock
from appliance.health.measuring.quality_monitor import STATE_KEY
from appliance.health.process import DATABASE, WatchMaker, run
from appliance.model.words import Series
from appliance.settings.tables import HealthSettings, Settings
from appliance.speed.canaries import standard_canaries
from appliance.speed.canary_verdict import CanaryOutcome, CanaryVerdict
from appliance.speed.quality_record import QualityRecord, count_verdict, encode_quality
from appliance.system.lane_client import SocketProbeLane
from appliance.system.sqlite.measurement_store import MeasurementStore
from tests.fakes.notify_socket import NotifySocket
from tests.programs import PATIENCE_S

NOBODY = "the supervisor does not answer: systemctl status appliance-supervisor"


def settings_in(directory: Path, *, enabled: bool = True) -> Settings:
    return Settings(
        applied_dir=directory / "applied",
        control_socket=directory / "control.sock",
        health=HealthSettings(enabled=enabled, state_dir=directory),
    )


@pytest.fixture(autouse=True)
def environment(manager: NotifySocket, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that systemd gives, without a listening socket."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(manager.path))
    monkeypatch.delenv("LISTEN_FDNAMES", raising=False)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(run(settings))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def told(manager: NotifySocket, settings: Settings) -> str:
    """The first status that an agent sends; it is to go on then."""
    async with running(settings) as task, asyncio.timeout(PATIENCE_S):
        message = await asyncio.to_thread(manager.wait_for, "STATUS=")
        assert not task.done()
    assert manager.messages[0] == "READY=1"
    return message.partition("STATUS=")[2]


async def test_an_agent_waits_for_a_supervisor(tmp_path: Path, manager: NotifySocket) -> None:
    """Without a supervisor, a gateway and a profile the agent is ready, and says what is missing."""
    assert await told(manager, settings_in(tmp_path)) == f"0 profiles watched · {NOBODY}"


async def test_an_agent_can_be_switched_off(tmp_path: Path, manager: NotifySocket) -> None:
    """An agent that may not measure is ready all the same, and answers who asks."""
    status = await told(manager, settings_in(tmp_path, enabled=False))
    assert status == "0 profiles watched · nothing is measured: health.enabled is false"


async def test_a_store_of_a_newer_release_is_left_alone(
    tmp_path: Path, manager: NotifySocket
) -> None:
    """The agent runs on without measuring, says why, and does not touch the file."""
    path = tmp_path / DATABASE
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version=999")
    newer.close()
    before = path.read_bytes()
    status = await told(manager, settings_in(tmp_path))
    assert "nothing is measured: " in status
    assert "newer" in status
    assert path.read_bytes() == before


async def test_the_watchdog_looks_and_feeds_systemd(tmp_path: Path, manager: NotifySocket) -> None:
    """A look at a box on which nothing answers is a whole look, after which systemd's watchdog is fed."""
    async with running(settings_in(tmp_path)) as task, asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(manager.wait_for, "WATCHDOG=1")
        assert not task.done()
    assert (tmp_path / "alerts.sqlite").exists()


async def test_alerts_of_a_newer_release_are_left_alone(
    tmp_path: Path, manager: NotifySocket
) -> None:
    """The watchdog looks all the same, and the agent says that its alerts are in memory alone."""
    with sqlite3.connect(tmp_path / "alerts.sqlite") as newer:
        newer.execute("PRAGMA user_version=999")
    newer.close()
    before = (tmp_path / "alerts.sqlite").read_bytes()
    async with running(settings_in(tmp_path)), asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(manager.wait_for, "WATCHDOG=1")
    assert any("alerts.sqlite was written by a newer" in text for text in manager.messages)
    assert (tmp_path / "alerts.sqlite").read_bytes() == before


async def test_monitors_go_on_where_they_were(tmp_path: Path) -> None:
    """Each monitor gets the states of its own profile, also one that was applied again."""
    record = QualityRecord()
    for canary in standard_canaries(0, tools=True):
        count_verdict(record, "a", canary, CanaryVerdict(outcome=CanaryOutcome.PASSED), 1.0)
    store = MeasurementStore(tmp_path / DATABASE)
    await store.open()
    try:
        await store.add(states={("a", STATE_KEY): encode_quality(record)})
        settings = settings_in(tmp_path)
        maker = WatchMaker(
            settings.health,
            Path(settings.status_socket),
            SocketProbeLane(Path(settings.lane_socket)),
            store,
            SystemHealthClock(),
        )
        watches = await maker.watches(["a", "b"])
        assert watches["a"][1].pass_rate == 1.0
        assert watches["b"][1].pass_rate is None
        decode = watches["b"][0].report().of(Series.DECODE)
        assert decode is None or decode.baseline is None
    finally:
        await store.close()
