"""Progress of a loading engine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.launch.readiness import (
    CPU_S,
    MEMORY_BYTES,
    READ_BYTES,
    WRITTEN_BYTES,
    Sample,
    pause_s,
)
from tests.programs import eventually


def sample(at_s: float, **values: float) -> Sample:
    made = Sample(at_s)
    for name, value in values.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("name", "threshold"),
    [
        ("cpu_s", CPU_S),
        ("memory_bytes", MEMORY_BYTES),
        ("read_bytes", READ_BYTES),
        ("written_bytes", WRITTEN_BYTES),
    ],
)
@pytest.mark.parametrize(
    ("share", "span_s", "is_progress"),
    [(1.1, 1.0, True), (0.9, 1.0, False), (1.1, 0.2, True), (2.9, 3.0, False), (3.1, 3.0, True)],
)
def test_each_number_counts_from_its_rate(
    name: str, threshold: float, *, share: float, span_s: float, is_progress: bool
) -> None:
    """A number that changed at its threshold per second is progress, below it is idling."""
    before = sample(10.0, **{name: 7 * threshold})
    after = sample(10.0 + span_s, **{name: (7 + share) * threshold})
    assert after.is_ahead_of(before) is is_progress


@pytest.mark.parametrize(
    ("elapsed_s", "answered", "expected_s"),
    [
        (0.0, True, 0.005),
        (0.9, False, 0.005),
        (1.0, False, 0.05),
        (600.0, False, 0.05),
        (1.0, True, 0.05),
        (4.0, True, 0.2),
        (600.0, True, 0.5),
    ],
)
def test_an_engine_that_answers_is_asked_ever_more_rarely(
    elapsed_s: float, expected_s: float, *, answered: bool
) -> None:
    """Polls cost at most a twentieth of the load, and stay below what counts as progress."""
    assert pause_s(elapsed_s, answered=answered) == pytest.approx(expected_s)
    access_log_line_bytes = 120
    if elapsed_s > 10 and answered:
        assert access_log_line_bytes / expected_s < WRITTEN_BYTES


def test_memory_that_shrinks_is_progress_and_other_numbers_are_not() -> None:
    """Freed memory is work; counters go back only when a process ends."""
    before = sample(1.0, memory_bytes=9 << 30, cpu_s=9.0, read_bytes=9 << 30)
    assert sample(2.0, memory_bytes=8 << 30).is_ahead_of(before)
    assert not sample(2.0, memory_bytes=9 << 30).is_ahead_of(before)


def test_a_sample_adds_up_real_processes() -> None:
    """CPU time, memory, reads and writes of processes come from the kernel."""
    code = (
        "import time; held = bytearray(64 << 20)\n"
        "while time.process_time() < 0.3: pass\n"
        "open('/dev/null', 'wb').write(bytes(300000)); open('/dev/zero', 'rb').read(300000)\n"
        "print('done', flush=True); time.sleep(30)"
    )
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        found = Sample(0.0, [busy.pid])
        both = Sample(0.0, [busy.pid, os.getpid()])
        busy.kill()
    assert found.cpu_s >= 0.2
    assert found.resident_bytes >= 64 << 20
    assert found.read_bytes >= 300000
    assert found.written_bytes >= 300000
    assert both.resident_bytes > found.resident_bytes


def test_time_of_finished_children_stays() -> None:
    """A compiler that came and went still counts as CPU time of its parent."""
    child = "import time\nwhile time.process_time() < 0.3: pass"
    code = (
        f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {child!r}]);"
        " print('done', flush=True); time.sleep(30)"
    )
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert Sample(0.0, [parent.pid]).cpu_s >= 0.2
        parent.kill()


def test_a_process_that_is_gone_is_nothing() -> None:
    """A process that ended between listing and reading adds nothing."""
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    assert eventually(lambda: not Path(f"/proc/{gone.pid}").exists())
    assert Sample(0.0, [gone.pid]).memory_bytes == 0
