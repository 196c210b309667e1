"""The patch hook: what the wrapper does without proof of its patches."""

import json
import sys
import time
from pathlib import Path

import pytest

from appliance.wire.sd_notify import is_patch_failure
from tests.fakes.notify_socket import NotifySocket
from tests.programs import (
    PATIENCE_S,
    control_group,
    engine,
    free_port,
    inside,
    program,
    run,
    started,
)

P4 = "P4 TurboQuant hybrid"
GUARD = "TOLIST_CAPTURE_GUARD"


def wrapper(command: list[str], *arguments: object, engine_argv: list[str]) -> list[str]:
    hook = ("--patch-command", json.dumps(command), *arguments)
    return program("backend", "--name", "a", "--port", free_port(), *hook, "--", *engine_argv)


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (f"echo {P4} applied", f"not reported as applied: {GUARD}"),
        (f"echo {P4} applied; echo {GUARD} skipped", f"not reported as applied: {GUARD}"),
        ("true", f"not reported as applied: {P4}, {GUARD}"),
        (f"echo {P4} applied; echo {GUARD} applied; exit 3", "ended with status 3"),
    ],
)
def test_without_proof_the_engine_is_not_started(tmp_path: Path, script: str, text: str) -> None:
    """A missing expectation ends in status 78 and is named; the engine never runs."""
    trace = tmp_path / "engine-ran"
    expectations = ("--patch-expect", P4, "--patch-expect", GUARD)
    result = run(wrapper(shell(script), *expectations, engine_argv=["/bin/touch", str(trace)]))
    assert result.returncode == 78
    assert text in result.stderr
    assert not trace.exists()


def test_the_unit_says_that_it_was_not_patched(manager: NotifySocket) -> None:
    """The status text of the unit stays after the wrapper has ended: it waits until it was read."""
    argv = wrapper(["/nonexistent/patch"], engine_argv=["/bin/true"])
    with started(argv, environment=manager.environment) as process:
        text = manager.wait_for("STATUS=").removeprefix("STATUS=")
        assert is_patch_failure(text)
        assert "/nonexistent/patch" in text
        manager.wait_for("BARRIER=1")
        assert process.poll() is None
        manager.pass_barriers()
        assert process.wait(PATIENCE_S) == 78


def test_with_proof_the_engine_starts(tmp_path: Path) -> None:
    """The hook's output is passed on, from both streams, and the engine runs after it."""
    trace = tmp_path / "engine-ran"
    script = f"echo {P4} applied; echo {GUARD} applied >&2; test -z $NOTIFY_SOCKET || exit 9"
    expectations = ("--patch-expect", P4, "--patch-expect", GUARD)
    argv = wrapper(shell(script), *expectations, engine_argv=["/bin/touch", str(trace)])
    result = run(argv, environment={"NOTIFY_SOCKET": str(tmp_path / "nobody")})
    assert result.returncode == 0
    assert trace.exists()
    assert P4 in result.stdout
    assert GUARD in result.stdout


def test_a_hook_that_cannot_run_is_named() -> None:
    """A command that is not there ends in status 78."""
    result = run(wrapper(["/nonexistent/patch"], engine_argv=["/bin/true"]))
    assert result.returncode == 78
    assert "/nonexistent/patch: No such file" in result.stderr


@pytest.mark.slow
def test_a_hook_that_hangs_is_ended(tmp_path: Path) -> None:
    """A hook without progress is killed with its children, and the start refused."""
    marker = f"{tmp_path}/sleeper"
    command = [sys.executable, "-c", f"import time; time.sleep(60)  # {marker}"]
    limit = ("--no-progress-s", 0.2)
    began = time.monotonic()
    argv = wrapper(command, *limit, engine_argv=["/bin/true"])
    with control_group("appliance-patch-test") as group:
        if group is None:
            pytest.skip("needs root to make a control group; a hook that hangs stays unproved")
        result = run(inside(group, argv))
    assert result.returncode == 78
    assert "made no progress" in result.stderr
    assert time.monotonic() - began < 10
    lines = [_command_line(p) for p in Path("/proc").iterdir() if p.name.isdigit()]
    assert not any(marker in line for line in lines)


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


@pytest.mark.slow
def test_a_hook_that_works_is_given_time(manager: NotifySocket) -> None:
    """Each line of output moves the start time-out, and the status says what is going on."""
    port = free_port()
    script = f"for i in 1 2; do sleep 0.9; echo step; done; echo {P4} applied"
    hook = ("--patch-command", json.dumps(shell(script)), "--patch-expect", P4)
    limit = ("--no-progress-s", 5)
    argv = program(
        "backend", "--name", "a", "--port", port, *limit, *hook, "--", *engine("--port", port)
    )
    with started(argv, environment=manager.environment):
        assert "STATUS=applying patches" in str(manager.receive(within_s=20))
        manager.wait_for("EXTEND_TIMEOUT_USEC=5000000")
        manager.wait_for("READY=1")
        manager.pass_barriers()
