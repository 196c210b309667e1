"""A drain waits for requests in every process of the gateway."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from appliance.gateway.handover import CombinedTraffic, Predecessors
from tests.fakes.virtual_time import advance


class Ours:
    """Requests of this process: two that finish, and one that is cut."""

    def in_flight(self, names: Iterable[str]) -> int:
        return 3 if "m" in names else 0

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        assert timeout_s
        return (2, 1) if "m" in names else (0, 0)


def test_a_process_tells_what_it_has(tmp_path: Path) -> None:
    """A replaced process publishes counts by profile, and only while it has requests."""
    told = Predecessors(tmp_path)
    told.publish({"m": 2, "n": 1})
    other = Predecessors(tmp_path)
    assert other.in_flight(["m"]) == 2
    assert other.in_flight(["m", "n", "x"]) == 3
    told.publish({"m": 0, "n": 1})
    assert other.in_flight(["m"]) == 0
    told.withdraw()
    told.withdraw()
    assert other.in_flight(["n"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_has_nothing(tmp_path: Path) -> None:
    """The file of a dead process is removed."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for name in (f"ending.{dead.pid}", "ending.x"):
        (tmp_path / name).write_text('{"m": 9}')
    assert Predecessors(tmp_path).in_flight(["m"]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_replaced_process_is_alive_until_it_withdraws(tmp_path: Path) -> None:
    """A process without requests, or with a damaged file, lives all the same; a killed one does not."""
    others = Predecessors(tmp_path)
    assert not others.any_alive()
    told = Predecessors(tmp_path)
    told.publish({"m": 0})
    assert others.any_alive()
    (tmp_path / f"ending.{os.getpid()}").write_text("{")
    assert others.any_alive()
    told.withdraw()
    assert not others.any_alive()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f"ending.{dead.pid}").write_text('{"m": 9}')
    assert not others.any_alive()


@pytest.mark.parametrize("text", ["", "[]", '{"m": "x"}', '{"m": null}'], ids=range(4))
def test_a_damaged_file_counts_nothing(tmp_path: Path, text: str) -> None:
    """A drain does not wait for an unreadable file."""
    (tmp_path / f"ending.{os.getppid()}").write_text(text)
    assert Predecessors(tmp_path).in_flight(["m"]) == 0


@pytest.mark.virtual_time
async def test_a_drain_waits_for_the_process_that_was_replaced(tmp_path: Path) -> None:
    """A request that finishes in the other process counts as finished."""
    old = Predecessors(tmp_path)
    old.publish({"m": 2})
    everything = CombinedTraffic(Ours(), Predecessors(tmp_path))
    assert everything.in_flight(["m"]) == 5
    draining = asyncio.ensure_future(everything.drain(["m"], 5.0))
    await advance(1.5)
    assert not draining.done()
    old.publish({"m": 0})
    assert await draining == (4, 1)
    assert await everything.drain(["m"], 5.0) == (2, 1)


@pytest.mark.virtual_time
async def test_a_drain_ends_at_its_deadline(tmp_path: Path) -> None:
    """A request that is left in the other process counts as cut."""
    Predecessors(tmp_path).publish({"m": 2})
    assert await CombinedTraffic(Ours(), Predecessors(tmp_path)).drain(["m"], 0.05) == (2, 3)
