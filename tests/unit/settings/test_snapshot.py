"""Settings of the daemons, which a child process reads."""

import json
import os
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from appliance.model.errors import SettingsError
from appliance.settings.loader import printed
from appliance.settings.snapshot import (
    CACHED,
    PRINTER,
    SettingsWait,
    settings_sources,
    take_snapshot,
)
from appliance.settings.tables import HealthSettings, MemorySettings, Settings
from appliance.system.systemd.daemon import Readiness
from appliance.wire.client import ask
from appliance.wire.control_requests import CONTROL, StatusRequest
from appliance.wire.conversation import RequestRefusedError


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
    root = str(Path(__file__).parents[3])
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
    assert found == Settings(
        control_socket=Path("/run/x/c.sock"),
        look_every_s=5.0,
        memory=MemorySettings(margin=1_234_570_000),
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
        (script(""), "the settings cannot be read: their reader printed not JSON"),
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
    """The other sockets follow from that of the control socket."""
    snapshot = Settings(control_socket=Path("/run/x/c.sock"))
    assert snapshot.gateway_socket == Path("/run/x/gateway.sock")
    assert snapshot.jobs_socket == Path("/run/x/jobs.sock")
    assert snapshot.status_socket == Path("/run/x/status.sock")
    assert snapshot.lane_socket == Path("/run/x/lane.sock")
    assert snapshot.prompt_socket == Path("/run/x/prompt.sock")


COUNTING = """
import os, sys
from pathlib import Path
Path(sys.argv[1]).open("a").write("x")
print(Path(sys.argv[2]).read_text())
"""
"""Prints a document, and counts how often it did."""


class Daemon:
    """Starts of a daemon with a cache directory, a settings file and a reader that counts."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "appliance.toml"
        self.file.touch()
        self.cache = directory / "cache"
        self.cache.mkdir()
        self.count = directory / "count"
        self.printed = directory / "printed.json"
        self.printed.write_text(printed(Settings()))
        self.env = {"CACHE_DIRECTORY": str(self.cache), "APPLIANCE_SETTINGS": str(self.file)}

    def start(self) -> Settings:
        command = (sys.executable, "-I", "-c", COUNTING, str(self.count), str(self.printed))
        return take_snapshot(command, self.env)

    def children(self) -> int:
        return len(self.count.read_text())


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    """A daemon that has started once."""
    daemon = Daemon(tmp_path)
    assert daemon.start() == Settings()
    return daemon


def test_an_unchanged_box_needs_no_child(daemon: Daemon) -> None:
    """The second start finds the settings of the first."""
    assert daemon.start() == Settings()
    assert daemon.children() == 1
    assert (daemon.cache / CACHED).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("change", ["edit", "replace", "remove", "variable", "same size and time"])
def test_every_source_of_the_settings_counts(daemon: Daemon, change: str) -> None:
    """After a change of the file or of a variable the settings are read anew, and kept again."""
    daemon.printed.write_text(printed(Settings(keep_operations=77)))
    match change:
        case "edit":
            daemon.file.write_text("keep_operations = 77\n")
        case "replace":
            other = daemon.file.with_name("other")
            other.touch()
            other.replace(daemon.file)
        case "remove":
            daemon.file.unlink()
        case "variable":
            daemon.env["APPLIANCE_KEEP_OPERATIONS"] = "77"
        case _:
            before = daemon.file.stat()
            os.utime(daemon.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert daemon.start().keep_operations == 77
    assert daemon.start().keep_operations == 77
    assert daemon.children() == 2


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'{"sources": 1}', b"x" * 2_000_000]
)
def test_a_damaged_cache_is_replaced(daemon: Daemon, content: bytes) -> None:
    """A file of any other content is replaced by the settings, read anew."""
    (daemon.cache / CACHED).write_bytes(content)
    assert daemon.start() == Settings()
    assert daemon.start() == Settings()
    assert daemon.children() == 2


def test_a_cache_of_other_settings_is_replaced(daemon: Daemon) -> None:
    """A kept document that lacks a field, of another build of the same version, does no harm."""
    kept = json.loads((daemon.cache / CACHED).read_text())
    kept["settings"] = "{}"
    (daemon.cache / CACHED).write_text(json.dumps(kept))
    assert daemon.start() == Settings()
    assert daemon.children() == 2


def test_a_fault_is_not_kept(daemon: Daemon) -> None:
    """Settings that are wrong are told at every start, until they are right."""
    daemon.file.write_text("wrong")
    daemon.printed.write_text("{}")
    for _ in range(2):
        with pytest.raises(SettingsError, match="their reader printed"):
            daemon.start()
    assert daemon.children() == 3


def test_a_file_that_changes_meanwhile_is_not_kept(daemon: Daemon) -> None:
    """Settings that a child has read during a change of the file may be of before or after it."""
    daemon.file.write_text("a")
    daemon.env["APPLIANCE_SETTINGS"] = str(daemon.count)  # It changes with each child.
    daemon.start()
    daemon.start()
    assert daemon.children() == 3


def test_a_directory_that_cannot_be_written_costs_a_child(daemon: Daemon) -> None:
    """Settings that cannot be kept are used all the same."""
    daemon.env["CACHE_DIRECTORY"] = str(daemon.cache / "missing")
    assert daemon.start() == Settings()
    assert daemon.children() == 2


PROBLEM = "a.toml:3: unknown key\na.toml:4: another"


def test_a_client_is_told_the_line_until_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No client waits in vain, `systemctl status` has the line, and a corrected file ends the wait."""
    file = tmp_path / "appliance.toml"
    file.write_text("wrong = 1\n")
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind(str(tmp_path / "notify"))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    env = {"APPLIANCE_SETTINGS": str(file)}

    def sources() -> Mapping[str, object]:
        return settings_sources(env)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "control.sock"))
        listener.listen()
        wait = SettingsWait(
            [listener], Readiness(), seen=sources(), sources=sources, look_every_s=0.02
        )
        waiting = threading.Thread(target=wait.wait, args=(PROBLEM,))
        waiting.start()
        try:
            for _ in range(2):
                with pytest.raises(RequestRefusedError, match=r"a\.toml:3: unknown key") as refused:
                    ask(CONTROL, str(tmp_path / "control.sock"), StatusRequest())
                assert refused.value.kind == "settings"
            assert waiting.is_alive()
        finally:
            os.utime(file, ns=(1, 1))
            waiting.join(10)
    assert not waiting.is_alive()
    told.settimeout(0.0)
    messages = [told.recv(4096).decode() for _ in range(2)]
    assert messages[0] == "READY=1"
    assert "STATUS=waits for its settings: a.toml:3: unknown key" in messages[1]
    told.close()


def test_a_browser_is_told_where_to_look(tmp_path: Path) -> None:
    """Over TCP the response is 503 with the command, and nothing of the file; one that is silent is hung up on."""
    file = tmp_path / "appliance.toml"
    file.write_text("wrong = 1\n")
    env = {"APPLIANCE_SETTINGS": str(file)}

    def sources() -> Mapping[str, object]:
        return settings_sources(env)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        wait = SettingsWait(
            [listener], Readiness(), seen=sources(), sources=sources, look_every_s=0.02
        )
        waiting = threading.Thread(target=wait.wait, args=(PROBLEM,))
        waiting.start()
        try:
            with socket.create_connection(place, timeout=10) as silent:
                assert silent.recv(1) == b""
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://{place[0]}:{place[1]}/")
        finally:
            os.utime(file, ns=(1, 1))
            waiting.join(10)
    with refused.value as response:
        assert (response.code, response.headers["Retry-After"]) == (503, "10")
        text = response.read()
    assert text == b"the settings cannot be read: appliance config validate\n"
