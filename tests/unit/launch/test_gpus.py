"""The gate on a pretend driver library, under the real binding."""

import ctypes.util
import shutil
import time
from pathlib import Path

import pytest

from tests.fakes.notify_socket import NotifySocket
from tests.pretend.building import build
from tests.pretend.gpus import Gpus
from tests.programs import eventually, program, run, run_answered, started

TOTAL = 24 << 30
EMPTY = {"count": 2, "*.total": TOTAL}

no_real_driver = pytest.mark.skipif(
    ctypes.util.find_library("nvidia-ml") is not None,
    reason="a real driver library is installed: what happens without one stays unproved",
)


class Driver:
    """A pretend driver whose state a test sets."""

    def __init__(self, folder: Path, *defines: str) -> None:
        if shutil.which("gcc") is None:
            pytest.skip("needs gcc to build the pretend driver; the gate on GPUs stays unproved")
        self.gpus = Gpus(folder / "state")
        self.environment = self.gpus.environment(build(*defines))
        self.set()

    def set(self, **changes: object) -> None:
        """Start from two empty GPUs; ``gpu0_free`` sets the key ``0.free``."""
        named = {k.removeprefix("gpu").replace("_", "."): v for k, v in changes.items()}
        of_driver = {k: v for k, v in changes.items() if not k.startswith("gpu")}
        self.gpus.replace(EMPTY | of_driver | {k: v for k, v in named.items() if k[0].isdigit()})


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


class Outcome:
    """Outcome of a gate on GPUs whose driver answers."""

    def __init__(self, driver: Driver, folder: Path, *arguments: object) -> None:
        result = run_answered(
            lambda deadline_s: gate(folder, *arguments, deadline_s=deadline_s),
            environment=driver.environment,
        )
        self.status = result.returncode
        self.text = result.stderr


def gate(folder: Path, *arguments: object, deadline_s: float) -> list[str]:
    places = ("--gate-dir", folder / "gate", "--systemctl", "/bin/true")
    return program("gate", "--name", "a", "--deadline-s", deadline_s, *places, *arguments)


GIB = 1 << 30
PROCESSES = f"1:{2 * GIB},4194304:{GIB}"


@pytest.mark.parametrize(
    ("state", "arguments", "status", "words"),
    [
        # The need is spread over the claimed devices, each with the margin.
        ({}, ("--gpus", "all", "--vram-bytes", 46 * GIB), 0, ()),
        ({}, ("--gpus", "0", "--vram-bytes", 46 * GIB), 75, ("on GPU 0, which has 24.0 GiB",)),
        ({"gpu1_free": 20 * GIB}, ("--gpus", "0", "--vram-bytes", 22 * GIB), 0, ()),
        (
            {"gpu1_free": 20 * GIB, "gpu1_compute": PROCESSES},
            ("--gpus", "all", "--vram-bytes", 42 * GIB),
            255,
            (
                "20.0 of 21.2 GiB free on GPU 1",
                "(pid 1,",
                "user root, 2.0 GiB)",
                "a process that has ended (pid 4194304, 1.0 GiB)",
                "1.0 GiB that no visible process accounts for",
            ),
        ),
        ({"gpu0_free": 20 * GIB}, ("--gpus", "0", "--vram-bytes", 20 * GIB), 255, ("GPU 0",)),
        (
            {"gpu0_free": 20 * GIB},
            ("--gpus", "0", "--vram-bytes", 20 * GIB, "--margin-bytes", 0),
            0,
            (),
        ),
        # With an unknown need, whatever computes on a claimed device is in the way.
        ({}, ("--gpus", "all"), 0, ()),
        ({"gpu1_graphics": f"1:{GIB}", "gpu1_used": GIB}, ("--gpus", "all"), 0, ()),
        ({"gpu1_compute": "1:?"}, ("--gpus", "all"), 255, ("1 process still on GPU 1", "pid 1")),
        ({"gpu1_compute": "1:?"}, ("--gpus", "0"), 0, ()),
        ({"gpu0_listing": 3, "gpu0_used": GIB // 2}, ("--gpus", "0"), 0, ()),
        ({"gpu0_listing": 3, "gpu0_used": 9 * GIB}, ("--gpus", "0"), 255, ("9.0 GiB still",)),
        # Devices and drivers that are not there.
        ({"count": 1}, ("--gpus", "0,1"), 255, ("GPU 1 is claimed, the driver shows 1",)),
        ({"count": 0}, ("--gpus", "all"), 255, ("a GPU is claimed, the driver shows 0",)),
        ({"init": 9}, ("--gpus", "all"), 255, ("driver is not loaded",)),
        ({"init": 12}, ("--gpus", "all"), 255, ("no NVIDIA driver library",)),
        ({"init": 18}, ("--gpus", "all"), 255, ("reboot needed",)),
        ({"gpu1_handle": 15}, ("--gpus", "all"), 255, ("the GPU is lost",)),
        # Memory shared with the host: what the host has is what counts.
        ({"gpu0_memory": 3}, ("--gpus", "0", "--vram-bytes", 1 << 20), 0, ()),
    ],
)
def test_what_the_gate_makes_of_the_gpus(
    driver: Driver,
    tmp_path: Path,
    *,
    state: dict[str, object],
    arguments: tuple[object, ...],
    status: int,
    words: tuple[str, ...],
) -> None:
    """The gate admits when every claimed device can take its share, else names the holders."""
    driver.set(**state)
    outcome = Outcome(driver, tmp_path, *arguments)
    assert outcome.status == status, outcome.text
    for word in words:
        assert word in outcome.text


def test_memory_that_comes_back_late_is_waited_for(
    driver: Driver, manager: NotifySocket, tmp_path: Path
) -> None:
    """The gate admits soon after the release, long before its deadline."""
    driver.set(gpu0_free=GIB)
    argv = gate(tmp_path, "--gpus", "0", "--vram-bytes", 20 * GIB, deadline_s=20)
    environment = driver.environment | manager.environment
    with started(argv, environment=environment) as waiting:
        manager.wait_for("STATUS=waiting for memory: ")
        assert waiting.poll() is None
        released = time.monotonic()
        driver.set()
        assert waiting.wait(timeout=15) == 0
        assert time.monotonic() - released < 5


def test_a_driver_that_hangs_cannot_outlive_the_deadline(driver: Driver, tmp_path: Path) -> None:
    """The gate refuses in time and leaves no child behind."""
    driver.set(hang_s=30)
    began = time.monotonic()
    argv = gate(tmp_path, "--gpus", "all", deadline_s=0.5)
    result = run(argv, environment=driver.environment)
    assert result.returncode == 255
    assert "the NVIDIA driver does not answer" in result.stderr
    assert time.monotonic() - began < 15


def test_a_driver_that_is_just_being_loaded_is_waited_for(
    driver: Driver, manager: NotifySocket, tmp_path: Path
) -> None:
    """A driver that appears within seconds does not end in a refusal."""
    driver.set(init=9)
    argv = gate(tmp_path, "--gpus", "0", deadline_s=20)
    environment = driver.environment | manager.environment
    with started(argv, environment=environment) as waiting:
        manager.wait_for("the NVIDIA driver is not loaded")
        driver.set()
        assert waiting.wait(timeout=15) == 0


@no_real_driver
def test_without_the_library_the_gate_refuses_at_once(tmp_path: Path) -> None:
    """GPUs that are claimed on a machine without a driver library are refused with that reason."""
    argv = gate(tmp_path, "--gpus", "all", deadline_s=30)
    began = time.monotonic()
    result = run(argv, environment={"LD_LIBRARY_PATH": ""})
    assert result.returncode == 255
    assert "no NVIDIA driver library" in result.stderr
    assert time.monotonic() - began < 15


def test_an_old_driver_is_read_with_its_older_calls(tmp_path: Path) -> None:
    """A driver without the newer functions still gives memory and processes."""
    driver = Driver(tmp_path, "-DOLD_DRIVER")
    driver.set(gpu0_free=20 * GIB, gpu0_compute=f"1:{4 * GIB}")
    ample = Outcome(driver, tmp_path, "--gpus", "0", "--vram-bytes", 10 * GIB)
    tight = Outcome(driver, tmp_path, "--gpus", "0", "--vram-bytes", 22 * GIB)
    assert (ample.status, tight.status) == (0, 255)
    assert "(pid 1," in tight.text


def test_a_gate_that_is_stopped_leaves_no_child(driver: Driver, tmp_path: Path) -> None:
    """The child that reads the GPUs ends with a gate that is killed."""
    driver.set(gpu0_free=0)
    argv = gate(tmp_path, "--gpus", "0", "--vram-bytes", GIB, deadline_s=30)
    with started(argv, environment=driver.environment) as waiting:
        children = Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children")
        assert eventually(lambda: bool(children.read_text()))
        child = Path("/proc") / children.read_text().strip()
        waiting.kill()
        assert eventually(lambda: not child.exists() or "Z" in (child / "stat").read_text())
