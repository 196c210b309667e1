"""Gate on GPUs that are slow, silent, hung or full of remains."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from appliance.launch.gpu_watch import GpuWatch
from appliance.launch.obstacles import Obstacle, left_over
from appliance.launch.release import Release
from appliance.model.paths import GATE_SCRIPT, PREFIX
from appliance.switch.memory.requirement import MemoryRequirement
from appliance.system.kernel.processes import control_group as group_of
from appliance.system.kernel.processes import processes_of, unit_of_group
from tests.fakes.notify_socket import NotifySocket
from tests.pretend.building import build
from tests.pretend.gpus import GIB, Gpus
from tests.programs import (
    DEADLINES_S,
    PATIENCE_S,
    control_group,
    eventually,
    inside,
    is_unread,
    program,
    run,
    run_answered,
    started,
)

TOTAL = 24 * GIB
NEED = MemoryRequirement(vram_bytes=20 * GIB, gpus=(0,))


class Clock:
    """Monotonic seconds that a test can let pass."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.skipped_s


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; the gate on GPUs stays unproved")
    gpus = Gpus(tmp_path / "state")
    gpus.replace({"count": 2, "*.total": TOTAL})
    for name, value in gpus.environment(build()).items():
        monkeypatch.setenv(name, value)
    return gpus


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watches() -> Iterator[list[GpuWatch]]:
    """Watches that end with the test."""
    made: list[GpuWatch] = []
    yield made
    for watch in made:
        watch.close()


def child_of(watch: GpuWatch) -> int:
    assert watch._sampler is not None
    return watch._sampler._pid


def settled(watch: GpuWatch, words: str, *, within_s: float = 20.0) -> Obstacle:
    """The first obstacle that has these words."""
    found: list[Obstacle] = []

    def look() -> bool:
        obstacle = watch.check(0.02)
        found[:] = [] if obstacle is None else [obstacle]
        return bool(found) and words in found[0].status

    assert eventually(look, within_s=within_s), [o.status for o in found]
    return found[0]


def refused(want: MemoryRequirement) -> tuple[Obstacle, str]:
    """The obstacle that a wait for memory ends with, and its sentence, when the driver answers."""
    *short_s, longest_s = DEADLINES_S
    for deadline_s in short_s:
        found = _refused(want, deadline_s)
        if not is_unread(found[1]):
            return found
    return _refused(want, longest_s)


def _refused(want: MemoryRequirement, deadline_s: float) -> tuple[Obstacle, str]:
    release = Release((), want, deadline_s=deadline_s)
    obstacle = release.wait()
    assert obstacle is not None
    sentence = obstacle.explain()
    release.close()
    return obstacle, sentence


def test_a_stopped_reader_is_killed_and_replaced(
    gpus: Gpus, clock: Clock, watches: list[GpuWatch]
) -> None:
    """A child that says nothing for 5 s counts as a hang, is killed, and the next one answers."""
    gpus.change({"0.free": GIB})
    watch = GpuWatch(NEED, clock=clock)
    watches.append(watch)
    settled(watch, "GiB free on GPU 0")
    stopped = child_of(watch)
    os.kill(stopped, signal.SIGSTOP)
    assert watch.check(0.05) is not None
    clock.skipped_s += 4.5
    before = watch.check(0.0)
    assert before is not None
    assert "GiB free on GPU 0" in before.status
    clock.skipped_s += 1.0
    hung = watch.check(0.0)
    assert hung is not None
    assert "the NVIDIA driver hangs: no answer for 5 s" in hung.explain()
    assert not Path(f"/proc/{stopped}").exists()
    settled(watch, "GiB free on GPU 0")
    gpus.change({"0.free": None})
    assert eventually(lambda: watch.check(0.05) is None)


def test_a_slow_driver_is_given_longer_the_next_time(
    gpus: Gpus, clock: Clock, watches: list[GpuWatch]
) -> None:
    """Where only the first start of a driver takes long, killing readers would never end."""
    gpus.hang()
    watch = GpuWatch(NEED, clock=clock)
    watches.append(watch)
    for seconds in (5, 10, 20, 20):
        watch.check(0.0)  # starts the next reader
        clock.skipped_s += seconds + 0.5
        settled(watch, f"no answer for {seconds} s")


def test_a_killed_reader_is_replaced(gpus: Gpus, clock: Clock, watches: list[GpuWatch]) -> None:
    """A child that dies is told, and is started again half a second later."""
    gpus.change({"0.free": GIB})
    watch = GpuWatch(NEED, clock=clock)
    watches.append(watch)
    settled(watch, "GiB free on GPU 0")
    os.kill(child_of(watch), signal.SIGKILL)
    settled(watch, "has died")
    clock.skipped_s += 0.6
    gpus.change({"0.free": None})
    assert eventually(lambda: watch.check(0.05) is None)


def test_a_reading_that_proves_nothing_alone_is_confirmed(
    gpus: Gpus, clock: Clock, watches: list[GpuWatch]
) -> None:
    """Memory shared with the host has to be free for 50 ms."""
    gpus.change({"0.memory": 3})
    watch = GpuWatch(MemoryRequirement(vram_bytes=1 << 20, gpus=(0,), margin_bytes=0), clock=clock)
    watches.append(watch)
    settled(watch, "a second reading has to agree")
    agreed_s = time.monotonic()
    assert eventually(lambda: watch.check(0.02) is None)
    assert time.monotonic() - agreed_s > 0.03


def test_lists_are_not_asked_for_before_the_numbers_suffice(
    gpus: Gpus, clock: Clock, watches: list[GpuWatch]
) -> None:
    """While too little is free the driver is not made to list processes."""
    gpus.change({"0.free": GIB, "0.listing": 15})
    watch = GpuWatch(
        MemoryRequirement(vram_bytes=20 * GIB, gpus=(0,), own="x.service"), clock=clock
    )
    watches.append(watch)
    settled(watch, "GiB free on GPU 0")
    gpus.change({"0.free": None})
    settled(watch, "the GPU is lost")


def test_a_rival_that_holds_memory_is_named(gpus: Gpus) -> None:
    """Enough is free, and yet a rival's process on the GPU forbids the start until it is gone."""
    with control_group("appliance-backend-rival") as group:
        if group is None:
            pytest.skip("may not make control groups; rivals on a GPU stay unproved")
        with started(inside(group, ["sleep", "60"])) as holder:
            assert eventually(lambda: unit_of_group(group_of(holder.pid)) == group.name)
            gpus.change({"0.compute": f"{holder.pid}:{GIB}", "0.used": GIB})
            want = MemoryRequirement(vram_bytes=10 * GIB, gpus=(0,), rivals=frozenset({group.name}))
            obstacle, sentence = refused(want)
            assert obstacle.rival
            assert f"{group.name} still has memory on GPU 0" in sentence
            assert f"sleep (pid {holder.pid}, {group.name}, user root, 1.0 GiB)" in sentence
            neighbour = MemoryRequirement(vram_bytes=10 * GIB, gpus=(0,))
            assert Release((), neighbour, deadline_s=PATIENCE_S).wait() is None
        gpus.change({"0.compute": None, "0.used": None})
        assert Release((), want, deadline_s=PATIENCE_S).wait() is None


def test_a_backend_that_shares_is_no_stranger(gpus: Gpus) -> None:
    """With an unknown need a neighbour's unit may compute on the GPU, another process may not."""
    with control_group("appliance-backend-embedder") as group:
        if group is None:
            pytest.skip("may not make control groups; sharing stays unproved")
        with started(inside(group, ["sleep", "60"])) as holder:
            assert eventually(lambda: unit_of_group(group_of(holder.pid)) == group.name)
            gpus.change({"0.compute": f"{holder.pid}:{GIB}", "0.used": GIB})
            want = MemoryRequirement(gpus=(0,))
            assert Release((), want, deadline_s=PATIENCE_S).wait() is None
            gpus.change({"0.compute": f"{holder.pid}:{GIB},{os.getpid()}:{GIB}"})
            obstacle, _ = refused(want)
            assert "1 process still on GPU 0" in obstacle.status


def test_remains_of_a_unit_are_in_the_way() -> None:
    """Remains that the kernel could not end delay a rival's start, and a new one of their unit."""
    with control_group("appliance-backend-a") as group:
        if group is None:
            pytest.skip("may not make control groups; remains stay unproved")
        with started(inside(group, ["sleep", "60"])) as process:
            assert eventually(lambda: unit_of_group(group_of(process.pid)) == group.name)
            # A shell joins the group first and becomes the program then.
            comm = Path(f"/proc/{process.pid}/comm")
            assert eventually(lambda: comm.read_text() == "sleep\n")
            path = group_of(process.pid)
            assert processes_of(path) == [process.pid]
            groups = [(group.name, path)]
            for own, rival in (("another.service", True), (group.name, False)):
                obstacle = left_over(groups, dict, own=own)
                assert obstacle is not None
                assert obstacle.rival == rival
                assert f"sleep (pid {process.pid}, {group.name}" in obstacle.explain()
        assert left_over(groups, dict, own="") is None


@pytest.mark.parametrize(
    "word",
    [f"{PREFIX}/{GATE_SCRIPT}", "/appliance/system/gpus/sampler.py", "appliance.launch.gate"],
)
def test_a_gate_in_a_rivals_unit_is_no_remains(word: str) -> None:
    """Two gates that look at each other's unit both go ahead: the lease decides."""
    with control_group("appliance-backend-b") as group:
        if group is None:
            pytest.skip("may not make control groups; two gates stay unproved")
        wrapped = ["bash", "-c", 'exec -a "$0" sleep "$1"', word, "60"]
        with started(inside(group, wrapped)) as process:
            words = Path(f"/proc/{process.pid}/cmdline")
            assert eventually(lambda: words.read_text().startswith(word))
            path = group_of(process.pid)
            assert processes_of(path) == [process.pid]
            assert left_over([(group.name, path)], dict, own="") is None


# --- the program, with the flags that units have -------------------------------------------------


def gate(folder: Path, *arguments: object, deadline_s: float = 0.4) -> list[str]:
    places = ("--gate-dir", folder / "gate", "--systemctl", "/bin/true")
    return program("gate", "--name", "a", "--deadline-s", deadline_s, *places, *arguments)


def run_gate(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the gate before a driver that answers."""
    return run_answered(lambda deadline_s: gate(folder, *arguments, deadline_s=deadline_s))


OBSERVED = {"format": 1, "fingerprint": "f00", "seen_unix_s": 1}


@pytest.mark.parametrize(
    ("state", "arguments", "status", "words"),
    [
        ({"0.free": 9 * GIB}, ("--gpus", "0", "--vram-fraction", "0.5"), 255, "9.0 of 12.0 GiB"),
        ({"0.free": 12 * GIB}, ("--gpus", "0", "--vram-fraction", "0.5"), 0, ""),
        (
            {"0.free": 9 * GIB},
            ("--gpus", "0,1", "--vram-bytes", 12 * GIB, "--vram-split", "3,1"),
            255,
            "9.0 of 9.2 GiB free on GPU 0",
        ),
        (
            {"0.free": 9 * GIB},
            ("--gpus", "1,0", "--vram-bytes", 12 * GIB, "--vram-split", "3,1"),
            0,
            "",
        ),
        ({}, ("--gpus", "0", "--vram-estimate", 99 * GIB, "--vram-least", 20 * GIB), 255, ""),
        ({"0.used": 0}, ("--gpus", "0", "--vram-estimate", 99 * GIB), 0, ""),
        (
            {},
            ("--gpus", "0", "--vram-estimate", 99 * GIB, "--vram-least", 30 * GIB),
            75,
            "the model needs at least 30.0 GiB",
        ),
        ({"0.mig": 1}, ("--gpus", "0", "--vram-bytes", GIB), 75, "need.assume_free = true"),
        ({"0.mig": 1}, ("--gpus", "0", "--vram-bytes", GIB, "--assume-free"), 0, ""),
        ({"0.lost": 1}, ("--gpus", "0", "--assume-free"), 255, "the GPU is lost"),
    ],
)
def test_what_the_gate_makes_of_its_flags(
    gpus: Gpus,
    tmp_path: Path,
    *,
    state: Mapping[str, object],
    arguments: Sequence[object],
    status: int,
    words: str,
) -> None:
    """Every source of a need comes through the command line."""
    gpus.change({"0.used": 2 * GIB, **state} if "0.free" not in state else state)
    result = run_gate(tmp_path, *arguments)
    assert result.returncode == status, result.stderr
    assert words in result.stderr


@pytest.mark.parametrize(("seen_bytes", "status"), [(9 * GIB, 0), (11 * GIB, 255)])
def test_what_was_seen_decides_before_what_is_declared(
    gpus: Gpus, tmp_path: Path, seen_bytes: int, status: int
) -> None:
    """The observed peak of this configuration outranks the profile's figure, either way."""
    gpus.change({"0.uuid": "GPU-a", "0.free": 10 * GIB})
    file = tmp_path / "a.json"
    file.write_text(
        json.dumps(OBSERVED | {"peak": {"gpus": {"GPU-a": seen_bytes}, "ram_bytes": None}})
    )
    declared = 20 * GIB if status == 0 else GIB
    flags = ("--gpus", "0", "--vram-bytes", declared, "--observed", file, "--fingerprint", "f00")
    assert run_gate(tmp_path, *flags).returncode == status


@pytest.mark.parametrize(
    "arguments",
    [
        ("--vram-fraction", "0"),
        ("--vram-fraction", "1.1"),
        ("--vram-fraction", "nan"),
        ("--vram-split", "1,x"),
        ("--vram-split", "1,-1"),
        ("--vram-split", "inf"),
        ("--vram-estimate", "-1"),
        ("--rival", "../x"),
        ("--assume-free", "yes"),
        ("--assume-free=yes",),
    ],
)
def test_senseless_needs_are_refused(tmp_path: Path, arguments: Sequence[str]) -> None:
    """A need that means nothing ends in one sentence and a status that systemd does not retry."""
    result = run(gate(tmp_path, *arguments))
    assert result.returncode == 64
    assert result.stderr.startswith("<3>gate: ")


def test_a_wait_is_shown_and_told(gpus: Gpus, tmp_path: Path, manager: NotifySocket) -> None:
    """The status shows what is still held, and the admission leaves from where to where it went."""
    gpus.change({"0.used": 12 * GIB})
    argv = gate(tmp_path, "--gpus", "0", "--vram-bytes", 20 * GIB, deadline_s=30)
    with started(argv, environment=manager.environment) as waiting:
        manager.wait_for("waiting for memory: 12.0 GiB held, 12.0 of 20.2 GiB free on GPU 0")
        gpus.change({"0.used": 6 * GIB})
        manager.wait_for("waiting for memory: 12.0 → 6.0 GiB held")
        gpus.change({"0.used": GIB})
        assert waiting.wait(timeout=10) == 0
    word = json.loads((tmp_path / "gate" / "a.json").read_text("utf-8"))
    assert word["verdict"] == "admitted"
    assert word["reason"].startswith("12.0 → 1.0 GiB in ")
    assert (word["from_bytes"], word["to_bytes"]) == (12 * GIB, GIB)
    assert word["waited_s"] > 0
    assert run_gate(tmp_path, "--gpus", "0", "--vram-bytes", 20 * GIB).returncode == 0
    assert not (tmp_path / "gate" / "a.json").exists()


def test_arguments_of_holders_are_told_to_nobody(gpus: Gpus, tmp_path: Path) -> None:
    """A refusal names a holder by its command, which may hold anything, and without arguments."""
    code = "import time; open('/proc/self/comm', 'wb', 0).write(b'a\\nb\\33[31m'); time.sleep(60)"
    secret = [sys.executable, "-c", code, "s3cr3t"]
    with subprocess.Popen(secret, stdin=subprocess.DEVNULL) as holder:
        try:
            comm = Path(f"/proc/{holder.pid}/comm")
            assert eventually(lambda: comm.read_text().startswith("a"))
            gpus.change({"0.used": 12 * GIB, "0.compute": f"{holder.pid}:{12 * GIB}"})
            result = run_gate(tmp_path, "--gpus", "0", "--vram-bytes", 20 * GIB)
        finally:
            holder.kill()
    assert result.returncode == 255
    assert f"a?b?[31m (pid {holder.pid}" in result.stderr
    assert "s3cr3t" not in result.stderr
    assert len(result.stderr.splitlines()) == 1
