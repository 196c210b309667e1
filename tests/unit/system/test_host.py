"""The log of a unit, as the supervisor reads it for an excerpt."""

import asyncio
import gc
from pathlib import Path

import pytest

from appliance.system.host import LinuxHost


@pytest.fixture
def host(tmp_path: Path) -> LinuxHost:
    """A host with nothing on it."""
    return LinuxHost(gate_dir=tmp_path, unit_dir=tmp_path)


def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Have a shell script be journalctl."""
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def tail(host: LinuxHost, lines: int) -> list[str]:
    """The last lines of profile a."""
    return list(asyncio.run(host.log_tail("a", lines, since_unix_s=100.9)))


def test_log_is_read_from_its_end(
    host: LinuxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is asked for its newest lines first, and they are put in order."""
    journalctl(tmp_path, monkeypatch, 'echo "$@"; echo older; echo oldest')
    *before, last = tail(host, 3)
    assert before == ["oldest", "older"]
    assert last == (
        "_SYSTEMD_UNIT=appliance-backend-a.service --since=@100 -r -n 3 -o cat -q --no-pager"
    )


def test_log_without_end_is_read_in_part(
    host: LinuxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journalctl that never ends costs a megabyte, and is not left behind."""
    journalctl(tmp_path, monkeypatch, "exec yes 0123456")
    shown = tail(host, 1 << 20)
    assert set(shown) == {"0123456"}
    assert len(shown) == (1 << 20) // 8


def test_the_first_lines_of_a_start_are_read(
    host: LinuxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read from the start on, oldest first, each line cut."""
    journalctl(tmp_path, monkeypatch, 'echo "$@"; echo older; head -c 20000 /dev/zero | tr "\\0" x')
    first, second, long = asyncio.run(host.log_head("a", since_unix_s=100.9))
    assert first == ("_SYSTEMD_UNIT=appliance-backend-a.service --since=@100 -o cat -q --no-pager")
    assert (second, len(long)) == ("older", 1 << 14)


def test_a_log_without_an_end_is_cut(
    host: LinuxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a start that logs more than a megabyte the first whole lines are read."""
    journalctl(tmp_path, monkeypatch, "exec yes 0123456")
    lines = asyncio.run(host.log_head("a", since_unix_s=0))
    assert set(lines) == {"0123456"}
    assert len(lines) == (1 << 20) // 8 - 1


def test_a_journalctl_that_has_ended_leaves_no_pipe(
    host: LinuxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Output beyond the limit does not keep the pipe open when the end of the process is known already."""
    # real time: the end of the shell is to be noticed first
    script = "{ sleep 0.3; yes 0123456 | head -c 2000000; } &"
    journalctl(tmp_path, monkeypatch, script)
    assert len(tail(host, 1 << 20)) == (1 << 20) // 8
    gc.collect()  # warns of a pipe that was left open


def test_a_journalctl_that_hangs_is_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A journalctl is killed after its time, with output unread, and leaves nothing open."""
    journalctl(tmp_path, monkeypatch, "yes 0123456 | head -c 300000; exec sleep 60")
    host = LinuxHost(gate_dir=tmp_path, unit_dir=tmp_path, journal_timeout_s=0.5)
    assert tail(host, 1 << 20) == []
    assert "journalctl takes too long" in caplog.text
    gc.collect()  # warns of a pipe that was left open


def test_no_journalctl_is_no_log(
    host: LinuxHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no journalctl, a failure is told without a log."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tail(host, 5) == []
