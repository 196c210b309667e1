"""Energy counter of a profile's GPUs, by a supervisor's status socket."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.cli.bench.energy_meter import energy_j
from appliance.domain.measurements import BoxGpus, GpuEvidence, GpuSample
from tests.fakes.control_server import FakeSupervisor, Story
from tests.fakes.profiles import applied

BOTH = replace(applied("a"), gpus="all")
FIRST = replace(applied("a"), gpus=(0,))


def gpus(*energies_j: float | None) -> Story:
    samples = tuple(
        GpuSample(index=number, evidence=GpuEvidence(uuid=f"GPU-{number}", energy_j=energy_j))
        for number, energy_j in enumerate(energies_j)
    )
    reading: dict[str, Any] = asdict(BoxGpus(taken_s=1.0, gpus=samples))
    return [{"event": "result", "exit": 0, "outcome": "done", "message": "", **reading}]


@pytest.mark.parametrize(
    ("story", "profile", "expected"),
    [
        (gpus(100.0, 20.5), BOTH, 120.5),
        (gpus(100.0, 20.5), FIRST, 100.0),
        (gpus(100.0, None), BOTH, None),
        (gpus(), BOTH, None),
        ([{**gpus(1.0)[0], "gpus": "none"}], BOTH, None),  # type: ignore[dict-item]
        ([{"event": "error", "exit": 1, "error": "failed", "message": "no driver"}], BOTH, None),
    ],
)
def test_counters_of_the_profiles_gpus_are_added(
    tmp_path: Path, story: Story, profile: Any, expected: float | None
) -> None:
    """One GPU that tells none leaves the sum unknown; other GPUs of the box do not count."""
    path = tmp_path / "status.sock"
    with FakeSupervisor(path, {"gpus": story}) as supervisor:
        assert energy_j(str(path), profile) == expected
        assert [request["verb"] for request in supervisor.requests] == ["gpus"]


def test_profile_without_gpus_asks_nobody(tmp_path: Path) -> None:
    """A model on the CPU has no counter, and needs no socket."""
    assert energy_j(str(tmp_path / "none"), applied("a")) is None


def test_socket_that_may_not_be_opened_tells_nothing(tmp_path: Path) -> None:
    """An operator outside of the status group gets figures without energy."""
    assert energy_j(str(tmp_path / "none"), BOTH) is None
