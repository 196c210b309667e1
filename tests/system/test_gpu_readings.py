"""Drivers that hang, lie or show memory that is not the GPU's own."""

import json
import time
from collections.abc import Mapping
from typing import Any, Final

import pytest

from appliance.model.measurements import BoxGpus
from appliance.wire.typed_json import from_json
from tests.pretend import Gpus
from tests.system.fleet import PROFILES, Fleet

ASK: Final = """
import asyncio, json
from pathlib import Path
from appliance.wire.async_client import open_conversation
from appliance.wire.status_socket import STATUS, GpuEvidenceRequest


async def ask():
    path = Path("/run/appliance/status.sock")
    async with open_conversation(STATUS, path, GpuEvidenceRequest()) as events:
        print(json.dumps((await anext(events)).details))


asyncio.run(ask())
"""


@pytest.fixture
def gpus(shared_gpus: Gpus) -> Gpus:
    """The two GPUs of the box."""
    return shared_gpus


@pytest.fixture
def fleet(shared_gpu_fleet: Fleet) -> Fleet:
    """A box with two profiles that each fill most of both GPUs, a serving."""
    return shared_gpu_fleet


def memory(fleet: Fleet) -> Mapping[str, Any]:
    """The memory row of the status."""
    row: Mapping[str, Any] = fleet.status()["memory"]
    return row


def wait_for_error(fleet: Fleet, *words: str, timeout_s: float = 20.0) -> str:
    """Wait until the status says one of these about the GPUs."""
    deadline = time.monotonic() + timeout_s
    while not any(word in (said := str(memory(fleet)["gpu_error"])) for word in words):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    return said


def test_evidence_reaches_who_may_only_look(fleet: Fleet, gpus: Gpus) -> None:
    """The health agent's user is told clocks, power and who holds memory, which it may not read."""
    gpus.change(
        {"*.sm_clock": 1695, "1.power_mw": 250_000, "1.throttle": 0x20, "1.energy_mj": 5000}
    )
    stranger = fleet.foreign_holder("miner", "1:1")
    fleet.box.write("/etc/ask.py", ASK)
    become = "setpriv --reuid appliance-health --regid appliance-health --groups appliance-status"
    deadline = time.monotonic() + 20.0
    while True:
        done = fleet.box.run(f"{become} /opt/appliance/current/bin/python -I /etc/ask.py")
        found = from_json(BoxGpus, json.loads(done.stdout))
        # A reading of a probe is told to others for a second: it may be older than the stranger.
        if str(stranger) in done.stdout or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert [gpu.evidence.sm_clock_mhz for gpu in found.gpus] == [1695, 1695]
    second = found.gpus[1]
    assert (second.evidence.power_w, second.evidence.energy_j) == (250.0, 5.0)
    assert second.evidence.throttle_reasons == ("sw_thermal_slowdown",)
    assert {(t.profile, t.pid) for t in second.tenants or ()} == {
        ("a", fleet.main_pid("a")),
        (None, stranger),
    }
    assert found.driver == "580.95.05"


def test_hung_driver_is_told_and_hangs_nothing_else(fleet: Fleet, gpus: Gpus) -> None:
    """With a driver that hangs, status says so within seconds, and the model serves on."""
    owner = fleet.main_pid("a")
    gpus.hang()
    wait_for_error(fleet, "hang", "hung", "answer")
    began = time.monotonic()
    assert fleet.status()["verdict"]["state"] != "nothing"
    assert time.monotonic() - began < 4
    answer = fleet.cli("switch", "b")
    assert answer.exit == 1, answer
    assert fleet.main_pid("a") == owner
    gpus.recover()
    wait_for_error(fleet, "None")
    assert fleet.switch("b").exit == 0


def test_gate_outlives_a_hang_and_admits_nobody(fleet: Fleet, gpus: Gpus) -> None:
    """A start by hand on a hung driver is late at its deadline; nothing was admitted unseen."""
    fleet.gpu_profile("b", 9002, release="2s")
    fleet.apply()
    fleet.box.run("systemctl stop appliance-backend-a.service")
    gpus.hang()
    fleet.box.run("systemctl start appliance-backend-b.service", check=False, timeout_s=30)
    assert fleet.active() == []
    assert gpus.owners() == []


def test_memory_shared_with_the_host_is_read_from_the_host(fleet: Fleet, gpus: Gpus) -> None:
    """A device without memory of its own admits what the host has, after a second reading."""
    fleet.gpu_profile("light", 9003, gib=1.0, gpus=(0,))
    fleet.apply()
    gpus.change({"*.memory": 3})
    assert fleet.switch("light").exit == 0
    fleet.gpu_profile("heavy", 9004, gib=1.0, gpus=(0,), need=4000.0)
    fleet.apply()
    answer = fleet.cli("switch", "heavy")
    assert answer.exit == 1, answer
    assert fleet.active() == ["light"]


def test_gpu_that_is_a_numa_node_is_read_twice(fleet: Fleet, gpus: Gpus) -> None:
    """Memory that the kernel manages as its own is believed when it says the same again."""
    gpus.change({"0.numa": 1, "1.numa": 2})
    gpus.release_after(0.5)
    assert fleet.switch("b").result["phases_ms"]["release"] >= 500


def test_holder_whose_size_is_not_told_is_named(fleet: Fleet, gpus: Gpus) -> None:
    """Without sizes by process a refusal still names who is there, and how much is held in all."""
    fleet.gpu_profile("b", 9002, release="2s")
    fleet.apply()
    fleet.box.run("systemctl stop appliance-backend-a.service")
    pid = fleet.foreign_holder("miner", "0:6")
    gpus.change({"*.sizes": "hidden"})
    answer = fleet.cli("switch", "b")
    assert answer.exit, answer
    assert f"pid {pid}, miner.service, user bob" in answer.result["message"]


def test_memory_that_cannot_be_read_admits_nobody_unasked(fleet: Fleet, gpus: Gpus) -> None:
    """A GPU cut into slices is used only by a profile that takes the risk in so many words."""
    fleet.gpu_profile("bold", 9003, gib=1.0, need=None, top="need = { assume_free = true }")
    fleet.apply()
    gpus.change({"*.mig": 1})
    owner = fleet.main_pid("a")
    refused = fleet.cli("switch", "b")
    assert refused.exit == 1, refused
    assert "MIG" in refused.result["message"]
    assert fleet.main_pid("a") == owner
    assert fleet.switch("bold").exit == 0


def test_lost_gpu_is_told(fleet: Fleet, gpus: Gpus) -> None:
    """A GPU that has fallen off the bus is an error of its own, and no start is admitted on it."""
    gpus.change({"1.lost": 1})
    wait_for_error(fleet, "lost")
    assert fleet.cli("switch", "b").exit == 1
    gpus.change({"1.lost": None})
    wait_for_error(fleet, "None")


def test_driver_loaded_anew_is_read_with_a_fresh_start(fleet: Fleet, gpus: Gpus) -> None:
    """After the driver was reloaded, readings go on by themselves."""
    assert memory(fleet)["gpu_error"] is None
    gpus.change({"generation": 2})
    wait_for_error(fleet, "None")
    assert len(memory(fleet)["gpus"]) == 2


def test_a_lint_goes_by_the_gpus_of_the_box(fleet: Fleet, gpus: Gpus) -> None:
    """Traps of GPUs are told on such GPUs alone; while the driver hangs they are told as not checked."""
    fleet.box.write(
        f"{PROFILES}/garbling.toml",
        'engine = "llama-server"\nbinary = "/opt/l"\nmodel = "/m.gguf"\nport = 9009\nkv = "q4_0"\n',
    )

    def linted() -> tuple[int, str]:
        done = fleet.box.run("appliance profile lint garbling", check=False)
        return done.returncode, done.stdout

    gpus.change({"*.capability": "12.0"})
    status, said = linted()
    assert (status, "q4-0-cache-on-blackwell: answers are garbled" in said) == (1, True), said
    gpus.change({"*.capability": "8.9"})
    assert linted() == (0, "garbling.toml: no trap\n")
    gpus.hang()
    began_s = time.monotonic()
    status, said = linted()
    assert time.monotonic() - began_s < 15
    assert (status, "not checked: q4-0-cache-on-blackwell: the GPU driver hangs" in said) == (
        0,
        True,
    ), said
    gpus.recover()
