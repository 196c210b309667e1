"""Programs of this checkout as real processes, with the ports and control groups that they use."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ENGINE: Final = Path(__file__).with_name("fakes") / "model_server.py"
PATIENCE_S: Final = 20.0
"""Time limit for work of milliseconds on an idle machine."""
MODEL_S: Final = 120.0
"""Time for a small model to load and warm up, which takes a second on an idle machine."""
DEADLINES_S: Final = (0.4, 2.0, 15.0)
"""Deadlines of a gate that refuses, which takes all of it: the next one where the GPUs were not
read yet."""
_NOT_READ_YET: Final = (
    "the NVIDIA driver does not answer",
    "the readings of the GPU's memory disagree",
)

# Like `python -I -m MODULE`, from this checkout instead of an installed package.
_RUN_MODULE: Final = (
    "import runpy, sys; root, name = sys.argv[1:3]; sys.path.insert(0, root);"
    " sys.argv[:] = sys.argv[2:]; runpy.run_module(name, run_name='__main__', alter_sys=True)"
)
_TREES: Final = (Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup"))


def program(module: str, *arguments: object) -> list[str]:
    """The command line of a launch program of this checkout."""
    name = f"appliance.launch.{module}"
    return [sys.executable, "-I", "-c", _RUN_MODULE, str(ROOT), name, *map(str, arguments)]


def engine(*arguments: object) -> list[str]:
    """The command line of the tests' engine."""
    return [sys.executable, "-I", str(ENGINE), *map(str, arguments)]


def run(
    argv: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        argv,
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **(environment or {})},
    )


def is_unread(refusal: str) -> bool:
    """Tell whether a gate refused before it had read the GPUs often enough."""
    return any(words in refusal for words in _NOT_READ_YET)


def run_answered(
    argv: Callable[[float], Sequence[str]], *, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a gate whose driver answers; `argv` makes its command line from a deadline in seconds.

    On a busy machine the program that reads the GPUs may not even have begun at the first deadline.
    """
    *short_s, longest_s = DEADLINES_S
    for deadline_s in short_s:
        result = run(argv(deadline_s), environment=environment)
        if not is_unread(result.stderr):
            return result
    return run(argv(longest_s), environment=environment)


@contextmanager
def started(
    argv: Sequence[str], *, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program that runs beside the test, in a process group that ends with the block."""
    process = subprocess.Popen(
        argv,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Not communicate(): a poller at its barrier still has the other ends.
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def eventually(condition: Callable[[], bool], *, within_s: float = PATIENCE_S) -> bool:
    """Whether the condition comes true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)  # real time: the one poll of tests that are not asynchronous
    return True


def free_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def control_group(name: str) -> Iterator[Path | None]:
    """A new control group of systemd's tree; None where this user may not make one."""
    tree = next(t for t in _TREES if (t / "cgroup.procs").exists())
    own = next(
        line.rpartition(":")[2]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if line.startswith("0::") or ":name=systemd:" in line
    )
    group = tree / own.strip("/") / f"{name}-{os.getpid()}.service"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        assert eventually(lambda: _removed(group))


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def inside(group: Path, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` in a control group."""
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *argv]
