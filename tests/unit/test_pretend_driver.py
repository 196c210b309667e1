"""The pretend driver itself: what tests rest on must be true first."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pretend import GIB, Gpus, build
from tests.programs import eventually

TAKE = """
import ctypes, sys, time
code = ctypes.CDLL("libnvidia-ml.so.1").pretendAlloc(0, ctypes.c_longlong(int(sys.argv[1])))
print(code, flush=True)
time.sleep(60)
"""
READ = """
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByIndex(0)
used = n.nvmlDeviceGetMemoryInfo(device, version=n.nvmlMemory_v2).used
print(used, *(p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(device)))
"""
OUT_OF_MEMORY = "20"
Take = Callable[[int], "Holder"]


class Holder:
    """A process that asks for memory and stays."""

    def __init__(self, size_bytes: int, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE, str(size_bytes)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> str:
        """Return the driver's answer: 0 when it has the memory."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@pytest.fixture
def gpus(tmp_path: Path) -> Gpus:
    """One GPU of 16 GiB."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; nothing about it is shown")
    gpus = Gpus(tmp_path / "state")
    gpus.replace({"count": 1, "*.total": 16 * GIB})
    return gpus


@pytest.fixture
def environment(gpus: Gpus) -> dict[str, str]:
    """Return the variables by which a process sees the driver."""
    return {**os.environ, **gpus.environment(build())}


@pytest.fixture
def take(environment: dict[str, str]) -> Iterator[Take]:
    """Start a process that takes so many bytes; they end with the test."""
    with contextlib.ExitStack() as ends:

        def start(size_bytes: int) -> Holder:
            holder = Holder(size_bytes, environment)
            ends.enter_context(holder.process)
            ends.callback(holder.process.kill)
            return holder

        yield start


def read(environment: dict[str, str], **options: int) -> list[int]:
    """Used bytes by the binding's word, and the processes that the driver lists."""
    done = subprocess.run(
        [sys.executable, "-c", READ],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        **options,  # type: ignore[call-overload]  # user=
    )
    return [int(word) for word in str(done.stdout).split()]


def test_processes_that_race_never_get_more_than_there_is(gpus: Gpus, take: Take) -> None:
    """Of twelve that want 2 GiB of 16 at once eight get it, and the others are written down."""
    holders = [take(2 * GIB) for _ in range(12)]
    answers = sorted(holder.answer() for holder in holders)
    assert answers == ["0"] * 8 + [OUT_OF_MEMORY] * 4
    assert gpus.held_bytes() == 16 * GIB
    assert len(gpus.out_of_memory()) == 4
    assert len(gpus.owners()) == 8


def test_zombie_is_dead_and_its_memory_comes_back_late(
    gpus: Gpus, take: Take, environment: dict[str, str]
) -> None:
    """The delay runs from the first look at the death, also while nobody reaps the process."""
    gpus.release_after(60)
    holder = take(4 * GIB)
    assert holder.answer() == "0"
    assert read(environment) == [4 * GIB, holder.process.pid]
    killed = time.monotonic()
    holder.process.kill()
    assert eventually(lambda: gpus.owners() == [])
    looked = time.monotonic()
    assert read(environment) == [4 * GIB]
    (hold,) = gpus.holds()
    gpus.keep(hold, 0.4)
    assert eventually(lambda: read(environment) == [0])
    assert killed + 0.4 <= gpus.released()[0] <= looked + 0.4


def test_memory_that_is_stuck_stays_listed_as_a_ghost(
    gpus: Gpus, take: Take, environment: dict[str, str]
) -> None:
    """A hold that never ends is freed by a reset only."""
    gpus.change({"0.ghosts": 1})
    holder = take(GIB)
    assert holder.answer() == "0"
    (hold,) = gpus.holds()
    gpus.keep(hold, None)
    holder.process.kill()
    holder.process.wait()
    assert read(environment) == [GIB, holder.process.pid]
    gpus.forget(hold)
    assert read(environment) == [0]


def test_fork_holds_nothing_of_its_parents(gpus: Gpus, environment: dict[str, str]) -> None:
    """A child that lives on does not keep the memory of a parent that was killed."""
    script = (
        "import ctypes, os, time\n"
        "driver = ctypes.CDLL('libnvidia-ml.so.1')\n"
        "print(driver.pretendAlloc(0, ctypes.c_longlong(1 << 30)), flush=True)\n"
        "if os.fork() == 0:\n"
        "    print(driver.pretendAlloc(0, ctypes.c_longlong(2 << 30)), flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert [parent.stdout.readline() for _ in range(2)] == ["0\n", "0\n"]
        child = next(pid for pid in gpus.owners() if pid != parent.pid)
        parent.kill()
        assert eventually(lambda: gpus.owners() == [child])
        assert gpus.held_bytes() == 2 * GIB
        os.kill(child, 9)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_reader_who_may_not_write_counts_what_is_held(
    gpus: Gpus, take: Take, environment: dict[str, str], tmp_path: Path
) -> None:
    """Another user sees what living and dead processes hold, though he marks no death."""
    gpus.release_after(5.0)
    holder = take(GIB)
    assert holder.answer() == "0"
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    gpus.directory.chmod(0o755)
    (hold,) = gpus.holds()
    hold.path.chmod(0o644)
    assert read(environment, user=65534) == [GIB, holder.process.pid]
    holder.process.kill()
    holder.process.wait()
    assert read(environment, user=65534) == [GIB]
    with hold.path.open("rb") as file:
        assert file.read(64).startswith(b"died=0000000000000000000 ")
