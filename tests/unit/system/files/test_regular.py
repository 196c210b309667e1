"""State files with something else in their place, and files that are read again once they change."""

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.cli.paths import find_places
from appliance.gateway.handover import Predecessors
from appliance.gateway.routing_table import STATE_FILE, RoutingTable
from appliance.launch import gate
from appliance.model.errors import StoreError
from appliance.model.gateway import State
from appliance.model.operations import FOREVER
from appliance.system.applied.manifest import (
    is_edited,
    read_applied,
    read_manifest,
    recover_configuration,
)
from appliance.system.commitment import FileCommitment
from appliance.system.credential_files import read_keys
from appliance.system.files.durable import read_regular
from appliance.system.files.regular import (
    CachedFile,
    OddFileError,
    read_small_file,
    replace_volatile,
)
from appliance.system.launch_files import read_peak, read_run_report, read_verdicts
from appliance.system.model_files.locate import snapshot
from appliance.system.sqlite.operation_store import OperationSpool, OperationStore
from tests.fakes.profiles import applied
from tests.unit.system.sqlite.test_operation_store import OPERATION

pytestmark = pytest.mark.timeout(20)
"""A reader that opens a pipe waits for ever."""


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


KINDS: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "directory": os.mkdir,
    "socket": _socket,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to itself": lambda path: path.symlink_to(path),
    "huge": _huge,
}


@pytest.fixture(params=KINDS)
def put(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """Puts something odd where a file is expected."""

    def odd(path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[request.param](path)
        return path

    return odd


def test_odd_files_are_refused_at_once(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    """A path that is no regular file gives its reader an error that says so."""
    path = put(tmp_path / "file")
    with pytest.raises(OddFileError, match=r"is (a|larger than) "):
        read_small_file(path, 4096)


@pytest.mark.parametrize("kind", ["pipe", "directory", "socket", "link to a device"])
def test_links_are_followed_only_to_files(tmp_path: Path, kind: str) -> None:
    """Where a link is allowed, what it leads to has to be a file all the same."""
    KINDS[kind](tmp_path / "odd")
    (tmp_path / "link").symlink_to(tmp_path / "odd")
    with pytest.raises(OddFileError):
        read_small_file(tmp_path / "link", 4096, follow_links=True)
    (tmp_path / "file").write_text("content")
    (tmp_path / "good").symlink_to(tmp_path / "file")
    assert read_small_file(tmp_path / "good", 7, follow_links=True) == b"content"


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda path: read_applied(path, 4096), id="applied"),
        pytest.param(lambda path: read_manifest(_at(path, "manifest.json")), id="manifest"),
        pytest.param(
            lambda path: recover_configuration(_at(path, "gateway.json")), id="gateway.json"
        ),
        pytest.param(read_keys, id="keys.json"),
    ],
)
def test_odd_state_is_reported_as_damaged(
    tmp_path: Path, put: Callable[[Path], Path], read: Callable[[Path], object]
) -> None:
    """A file without which root or the gateway cannot work gives an error that says what to do."""
    with pytest.raises(StoreError):
        read(put(tmp_path / "file"))


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(read_regular, id="unit"),
        pytest.param(lambda path: read_peak(_at(path, "a.json"), "a"), id="peak"),
        pytest.param(read_run_report, id="run report"),
        pytest.param(lambda path: dict(read_verdicts(_at(path, "a.json"))).get("a"), id="gate"),
        pytest.param(lambda path: gate._peak(str(path), "x"), id="peak, by the gate"),
        pytest.param(lambda path: _spool(path).open, id="operation.json"),
        pytest.param(
            lambda path: FileCommitment(_at(path, "active")).committed() or None, id="committed"
        ),
    ],
)
def test_odd_state_is_as_good_as_none(
    tmp_path: Path, put: Callable[[Path], Path], read: Callable[[Path], object]
) -> None:
    """A file that can be missed counts as missing, at once."""
    assert read(put(tmp_path / "file")) is None


def test_an_odd_hold_holds(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    """As at boot: somebody meant to hold."""
    put(tmp_path / "hold")
    assert FileCommitment(tmp_path).hold_until() == FOREVER


def test_an_odd_profile_is_an_edited_one(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    """Looking for hand edits does not wait either."""
    profile = replace(applied("a"), source_path=str(put(tmp_path / "a.toml")))
    assert is_edited(profile) or (tmp_path / "a.toml").is_symlink()


def test_odd_settings_are_as_good_as_none(
    tmp_path: Path, put: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick verbs find the control socket at its usual place."""
    monkeypatch.setenv("APPLIANCE_SETTINGS", str(put(tmp_path / "appliance.toml")))
    assert find_places().state_dir == "/var/lib/appliance"


def test_an_odd_reference_names_no_version(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    """A model cache belongs to a person, who may put anything there."""
    put(tmp_path / "refs" / "main")
    with pytest.raises(OSError, match=r"is (a|larger than) |Too many levels"):
        snapshot(tmp_path)


def test_odd_state_of_the_gateway_is_replaced(tmp_path: Path, put: Callable[[Path], Path]) -> None:
    """Neither reading nor writing waits, in the place of the file or of its successor."""
    put(tmp_path / STATE_FILE)
    put(tmp_path / f".{STATE_FILE}.{os.getpid()}")
    put(tmp_path / f"ending.{os.getppid()}")
    put(tmp_path / f".ending.{os.getpid()}")
    RoutingTable({}, directory=tmp_path).take(State(standings={}))
    remainder = Predecessors(tmp_path)
    remainder.publish({"m": 1})
    assert remainder.in_flight(["m"]) in {0, 1}


def test_an_odd_successor_is_removed(tmp_path: Path) -> None:
    """A pipe where the new file is written first makes nobody wait for a reader."""
    os.mkfifo(tmp_path / "new")
    replace_volatile(tmp_path / "file", tmp_path / "new", "text")
    assert (tmp_path / "file").read_text() == "text"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
async def test_an_odd_database_is_set_aside(
    tmp_path: Path, put: Callable[[Path], Path], suffix: str
) -> None:
    """SQLite would wait for a pipe; operations are numbered and kept all the same."""
    put(tmp_path / f"state.sqlite{suffix}")
    store = OperationStore(tmp_path / "state.sqlite", keep_rows=20)
    await store.open()
    assert (await store.begin(OPERATION)).id == 1
    await store.close()


def test_an_unchanged_file_is_read_once(tmp_path: Path) -> None:
    """A file's content is kept until the file changes or is removed."""
    path = tmp_path / "file"
    path.write_bytes(b"first")
    file = CachedFile(path, 16)
    first = file.content()
    assert first == b"first"
    assert file.content() is first
    path.write_bytes(b"longer")
    assert file.content() == b"longer"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        file.content()


def test_an_error_is_not_kept(tmp_path: Path) -> None:
    """A file that could not be read is tried again, though nothing seems to have changed."""
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"text")
    path.symlink_to(target)
    file = CachedFile(path, 16)
    for _ in range(2):
        with pytest.raises(OddFileError):
            file.content()


def _at(path: Path, name: str) -> Path:
    """The directory in which what `path` is has this name."""
    path.rename(path.with_name(name))
    return path.parent


def _spool(path: Path) -> OperationSpool:
    spool = OperationSpool(path)
    spool.load()
    return spool
