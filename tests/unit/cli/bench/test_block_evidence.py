"""State of a profile's GPUs, by a supervisor's status socket."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.bench.bench_session import read_gpus, watched_gpus
from tests.fakes.bench_rows import gpus_with
from tests.fakes.control_server import FakeSupervisor, HangUp, Story
from tests.fakes.profiles import applied
from tests.waiting import until

BOTH = replace(applied("a"), gpus="all")
SECOND = replace(applied("a"), gpus=(1,))
RESULT: dict[str, Any] = {
    "event": "result",
    "exit": 0,
    "outcome": "done",
    "message": "",
    **asdict(gpus_with(100.0, 20.5)),
}


@pytest.mark.parametrize(("profile", "expected"), [(BOTH, [0, 1]), (SECOND, [1])])
async def test_other_gpus_of_the_box_do_not_count(
    tmp_path: Path, profile: Any, expected: list[int]
) -> None:
    """The reading has the GPUs that the profile uses."""
    path = tmp_path / "status.sock"
    with FakeSupervisor(path, {"gpus": [RESULT]}):
        found = await read_gpus(path, profile)
    assert found is not None
    assert [gpu.index for gpu in found.gpus] == expected


@pytest.mark.parametrize(
    "story",
    [
        [{**RESULT, "gpus": "none"}],
        [{"event": "error", "exit": 1, "error": "failed", "message": "no driver"}],
        [HangUp()],
    ],
)
async def test_answer_without_a_reading_is_none(tmp_path: Path, story: Story) -> None:
    """A bench does not fail for what it can do without."""
    path = tmp_path / "status.sock"
    with FakeSupervisor(path, {"gpus": story}):
        assert await read_gpus(path, BOTH) is None


async def test_socket_that_may_not_be_opened_tells_nothing(tmp_path: Path) -> None:
    """An operator outside of the status group gets figures without evidence."""
    async with watched_gpus(tmp_path / "none", BOTH) as watch:
        pass
    assert (watch.before, watch.loaded, watch.after) == (None, None, None)


async def test_profile_without_gpus_asks_nobody(tmp_path: Path) -> None:
    """A model on the CPU has no reading, and needs no socket."""
    path = tmp_path / "status.sock"
    with FakeSupervisor(path, {}) as supervisor:
        async with watched_gpus(path, applied("a")) as watch:
            pass
        assert not supervisor.requests
    assert watch.before is None


async def test_gpus_are_read_before_during_and_after(tmp_path: Path) -> None:
    """The reading at work is the last one within the block."""
    path = tmp_path / "status.sock"
    with FakeSupervisor(path, {"gpus": [RESULT]}) as supervisor:
        async with watched_gpus(path, BOTH, every_s=0.0) as watch:
            assert watch.before is not None
            await until(lambda: watch.loaded)
            early = [watch.after]
        assert early == [None]
        assert watch.after is not None
        assert len(supervisor.requests) >= 3
