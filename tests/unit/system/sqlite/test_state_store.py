"""Store of states: over restarts, within its bounds, and with faults of the file."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.status.state_record import KEPT_S, MOST_OF_A_PROFILE, StateChange
from appliance.system.sqlite.state_store import StateStore


@asynccontextmanager
async def opened(directory: Path) -> AsyncIterator[StateStore]:
    """A store that is closed in the end."""
    store = StateStore(directory / "states.sqlite", retry_after_s=0.0)
    try:
        yield store
    finally:
        await store.close()


async def told(store: StateStore) -> list[tuple[float, str, str]]:
    """Every change."""
    return [(one.unix_s, one.profile, one.state) for one in (await store.changes())[0]]


async def test_a_restart_goes_on_where_the_record_ended(tmp_path: Path) -> None:
    """A short one adds nothing; the time of a long one is not known."""
    async with opened(tmp_path) as store:
        await store.observe({"aeon": "serving"}, 1000.0)
        await store.observe({"aeon": "serving"}, 1030.0)
    async with opened(tmp_path) as store:
        assert await store.changes() == (
            [StateChange(unix_s=1000.0, profile="aeon", state="serving")],
            1030.0,
        )
        await store.observe({"aeon": "serving"}, 1060.0)
        assert len(await told(store)) == 1
    async with opened(tmp_path) as store:
        await store.observe({"aeon": "failed"}, 5000.0)
        assert await told(store) == [
            (1000.0, "aeon", "serving"),
            (1060.0, "aeon", "unknown"),
            (5000.0, "aeon", "failed"),
        ]


async def test_a_killed_process_loses_a_minute_at_most(tmp_path: Path) -> None:
    """The time of the last observation is written once a minute, without any change."""
    path = tmp_path / "states.sqlite"
    killed = StateStore(path)
    for now in range(1000, 1200, 20):
        await killed.observe({"aeon": "serving"}, float(now))
    async with opened(tmp_path) as store:
        until = (await store.changes())[1]
        assert until is not None
        assert 1180.0 - 60.0 <= until <= 1180.0
    await killed.close()


async def test_the_record_is_bounded(tmp_path: Path) -> None:
    """A profile that flaps keeps its newest changes; old ones go, but the last state of each profile stays."""
    async with opened(tmp_path) as store:
        await store.observe({"aeon": "stopped", "mini": "serving"}, 1000.0)
        await store.observe({"aeon": "stopped", "mini": "stopped"}, 1010.0)
        for turn in range(MOST_OF_A_PROFILE + 50):
            state = "serving" if turn % 2 else "restarting"
            await store.observe({"aeon": state, "mini": "stopped"}, 1020.0 + turn)
        found = await told(store)
        assert sum(name == "aeon" for _, name, _ in found) == MOST_OF_A_PROFILE
        now = 2000.0 + KEPT_S
        await store.observe({"aeon": "failed", "mini": "stopped"}, now)
        assert [one for one in await told(store) if one[0] < now - KEPT_S] == []
        assert (now, "mini", "stopped") in await told(store)


async def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    """The record begins anew."""
    (tmp_path / "states.sqlite").write_bytes(b"no database" * 1000)
    async with opened(tmp_path) as store:
        await store.observe({"aeon": "serving"}, 1000.0)
        assert await told(store) == [(1000.0, "aeon", "serving")]
    assert (tmp_path / "states.damaged").exists()


async def test_a_fault_of_the_disk_costs_the_record_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault is logged once; a change is found again when the file takes it."""
    caplog.set_level(logging.ERROR)
    home = tmp_path / "missing"
    async with opened(home) as store:
        await store.observe({"aeon": "serving"}, 1000.0)
        await store.observe({"aeon": "failed"}, 1010.0)
        assert await store.changes() == ((), None)
        assert len(caplog.records) == 1
        home.mkdir()
        await store.observe({"aeon": "failed"}, 1020.0)
        assert await told(store) == [(1020.0, "aeon", "failed")]
