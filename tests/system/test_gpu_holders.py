"""Holders of VRAM: foreign processes, orphans of a dead engine, rivals that must not start."""

import time

import pytest

from tests.pretend import GIB, Gpus
from tests.system.fleet import Fleet


@pytest.fixture
def gpus(shared_gpus: Gpus) -> Gpus:
    """The two GPUs of the box."""
    return shared_gpus


@pytest.fixture
def fleet(shared_gpu_fleet: Fleet) -> Fleet:
    """A box with two profiles that each fill most of both GPUs, a serving."""
    return shared_gpu_fleet


def unit(name: str) -> str:
    """The unit of a profile."""
    return f"appliance-backend-{name}.service"


def living(gpus: Gpus) -> set[int]:
    """Processes with VRAM, as the box numbers them."""
    return {hold.own_pid for hold in gpus.holds() if hold.alive}


def test_foreign_holder_is_refused_before_anything_is_stopped(fleet: Fleet, gpus: Gpus) -> None:
    """A foreign process's memory is known before the switch, and the old model keeps serving."""
    fleet.gpu_profile("small", 9003, gib=8.0)
    fleet.apply()
    fleet.switch("small")
    owner = fleet.main_pid("small")
    pid = fleet.foreign_holder("miner", "0:6")
    answer = fleet.cli("switch", "b")
    assert answer.exit == 1, answer
    for fact in (f"pid {pid}", "miner.service", "user bob", "6.0 GiB"):
        assert fact in answer.result["message"]
    assert fleet.main_pid("small") == owner
    assert living(gpus) == {owner, pid}


def test_workers_that_leak_end_with_their_model(fleet: Fleet, gpus: Gpus) -> None:
    """Workers that the engine forked away and that ignore SIGTERM are gone before the next start."""
    fleet.gpu_profile(
        "leaky", 9003, "--workers", "2", "--worker-vram", "0:2", "--worker-vram", "1:2",
        gib=16.0, need=24.0,
    )  # fmt: skip
    fleet.apply()
    fleet.switch("leaky")
    assert len(living(gpus)) == 3
    fleet.switch("b")
    assert living(gpus) == {fleet.main_pid("b")}


def test_killed_api_process_leaves_no_holder(fleet: Fleet, gpus: Gpus) -> None:
    """SIGKILL of the main process takes its workers along, and the model comes back alone."""
    fleet.gpu_profile(
        "leaky", 9003, "--workers", "2", "--worker-vram", "0:2", "--worker-vram", "1:2",
        gib=16.0, need=24.0,
    )  # fmt: skip
    fleet.apply()
    fleet.switch("leaky")
    before = living(gpus)
    fleet.box.run(f"kill -9 {fleet.main_pid('leaky')}")
    fleet.box.wait_for(f"test $(systemctl show -P NRestarts {unit('leaky')}) -ge 1", timeout_s=30)
    assert living(gpus) & before == set()
    fleet.wait_serving("leaky", timeout_s=30)
    assert len(living(gpus)) == 3


def test_rival_that_ignores_dependencies_never_disturbs_the_owner(fleet: Fleet, gpus: Gpus) -> None:
    """Ten starts past Conflicts= are refused, cost no start limit, and the owner serves on."""
    owner = fleet.main_pid("a")
    drop_in = f"/etc/systemd/system/{unit('b')}.d/restart.conf"
    fleet.box.write(drop_in, "[Service]\nRestart=on-failure\nRestartSec=1s\n")
    fleet.box.run("systemctl daemon-reload")
    began = time.monotonic()
    for _ in range(10):
        start = ("systemctl", "start", "--job-mode=ignore-dependencies", unit("b"))
        fleet.box.run(*start, check=False, timeout_s=30)
        assert living(gpus) == {owner}
    time.sleep(max(3.0, 15.0 - (time.monotonic() - began)))
    assert (fleet.active(), fleet.main_pid("a"), living(gpus)) == (["a"], owner, {owner})
    assert fleet.show("b", "NRestarts") == "0"
    note = {row["name"]: row for row in fleet.status()["profiles"]}["b"]["note"]
    for fact in (f"pid {owner}", unit("a"), "user apl-a", "24.0 GiB"):
        assert fact in note
    fleet.box.run("systemctl", "start", unit("b"))
    fleet.wait_serving("b")


def test_rival_with_memory_but_without_a_lease_is_refused(fleet: Fleet, gpus: Gpus) -> None:
    """A rival's process that holds VRAM is in the way also when it has lost its lease."""
    fleet.gpu_profile("small", 9003, gib=2.0)
    fleet.gpu_profile("tiny", 9004, gib=2.0, release="2s")
    fleet.apply()
    fleet.switch("small")
    owner = fleet.main_pid("small")
    fleet.box.run("rm /run/appliance-leases/gpu-*")
    start = ("systemctl", "start", "--job-mode=ignore-dependencies", unit("tiny"))
    fleet.box.run(*start, check=False, timeout_s=30)
    assert living(gpus) == {owner}
    assert fleet.active() == ["small"]
    assert gpus.held_bytes() == 2 * GIB
