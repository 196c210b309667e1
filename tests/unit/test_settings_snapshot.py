"""Settings of the daemons, which a child process reads."""

import sys
from pathlib import Path

import pytest

from appliance.domain.errors import SettingsError
from appliance.settings import HealthSettings, MemorySettings
from appliance.settings_snapshot import PRINTER, SettingsSnapshot, take_snapshot
from tests.fakes.settings import make_snapshot


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file that the child process reads, and no variables but that one."""
    path = tmp_path / "appliance.toml"
    path.touch()
    monkeypatch.setenv("APPLIANCE_SETTINGS", str(path))
    return path


@pytest.fixture
def printer() -> tuple[str, ...]:
    """The command that prints the settings, for a tree that is not installed."""
    root = str(Path(__file__).parents[2])
    start = f"import sys, runpy; sys.path.insert(0, {root!r}); runpy.run_module({PRINTER[-1]!r}, run_name='__main__')"
    return (sys.executable, "-I", "-c", start)


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", text)


def test_a_child_reads_the_settings(file: Path, printer: tuple[str, ...]) -> None:
    """Values of the file arrive as they are, to the byte, and the others as their defaults."""
    file.write_text(
        'control_socket = "/run/x/c.sock"\nlook_every_s = "5s"\n'
        '[memory]\nmargin = "1.23457GB"\n[health]\nenabled = false\nprobe_every = "20m"\n'
    )
    found = take_snapshot(printer)
    assert found.memory.margin == 1_234_570_000
    assert found == make_snapshot(
        control_socket="/run/x/c.sock",
        look_every_s=5.0,
        memory=MemorySettings.model_validate({"margin": "1.23457GB"}),
        health=HealthSettings(enabled=False, probe_every=1200.0),
    )


def test_a_fault_is_told_as_the_loader_tells_it(file: Path, printer: tuple[str, ...]) -> None:
    """Every faulty line has its own line, as for the commands that load the settings themselves."""
    file.write_text('a = 1\nlog_level = "loud"\n')
    with pytest.raises(SettingsError) as caught:
        take_snapshot(printer)
    first, second = str(caught.value).splitlines()
    assert first == f'{file}:1: unknown key "a"'
    assert second.startswith(f"{file}:2: log_level")


@pytest.mark.parametrize(
    ("printer", "expected"),
    [
        (("/nonexistent/python",), "the settings cannot be read: No such file or directory"),
        (
            script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
            "the settings cannot be read: their reader ended with -9",
        ),
        (script(""), "the settings cannot be read: their reader printed Expecting value"),
        (script("print('{}')"), "the settings cannot be read: their reader printed "),
    ],
)
def test_a_child_that_fails_is_told(printer: tuple[str, ...], expected: str) -> None:
    """A reader that cannot run, dies, or prints no settings is an error of the settings."""
    with pytest.raises(SettingsError) as caught:
        take_snapshot(printer)
    assert str(caught.value).startswith(expected)


def test_the_error_of_a_child_is_bounded() -> None:
    """The end of an endless error is kept, which says what came last."""
    with pytest.raises(SettingsError) as caught:
        take_snapshot(script("import sys; sys.stderr.write('x' * 1_000_000 + 'end'); sys.exit(78)"))
    assert len(str(caught.value)) < 20_000
    assert str(caught.value).endswith("end")


def test_sockets_are_beside_the_control_socket() -> None:
    """Daemons are given the sockets that follow from that of the control socket."""
    snapshot = make_snapshot(control_socket="/run/x/c.sock")
    assert isinstance(snapshot, SettingsSnapshot)
    assert snapshot.gateway_socket == "/run/x/gateway.sock"
    assert snapshot.jobs_socket == "/run/x/jobs.sock"
    assert snapshot.status_socket == "/run/x/status.sock"
    assert snapshot.lane_socket == "/run/x/lane.sock"
