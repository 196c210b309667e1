"""The two files that a boot follows."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from appliance.model.errors import StoreError
from appliance.model.operations import FOREVER, HoldUntil
from appliance.switch.goals import Writes
from appliance.system.commitment import FileCommitment, parse_committed, parse_hold
from appliance.system.ports import Commitment
from tests.fakes.ports import FakeCommitment

P = ParamSpec("P")
T = TypeVar("T")


@pytest.fixture(params=["file", "fake"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Commitment:
    """The contract holds for the real one and for the one that tests use."""
    return FileCommitment(tmp_path) if request.param == "file" else FakeCommitment()


async def test_names_and_hold_come_back(either: Commitment) -> None:
    """Names and hold are empty at first, then as written, sorted; a hold can be removed."""
    assert either.committed() == ()
    assert either.hold_until() is None
    await either.commit(["genesis", "embedder"])
    assert either.committed() == ("embedder", "genesis")
    for until in (FOREVER, 1234.0):
        await either.set_hold(until)
        assert either.hold_until() == until
    await either.set_hold(None)
    assert either.hold_until() is None


@pytest.mark.parametrize(
    ("text", "names"),
    [("", ()), ("b\na\n", ("a", "b")), ("a\n../etc\n\n a \n", ("a",)), ("A b\n", ())],
)
def test_committed_file(text: str, names: tuple[str, ...]) -> None:
    """Lines that are no profile name are ignored, as at boot."""
    assert parse_committed(text) == names


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("", None),
        ("forever\n", FOREVER),
        ("1700000000\n", 1.7e9),
        ("garbled", FOREVER),
        ("12 x", FOREVER),
        ("nan", FOREVER),
    ],
)
def test_hold_file(text: str, until: HoldUntil) -> None:
    """A damaged hold file holds, as at boot: it was written to hold."""
    assert parse_hold(text) == until


@pytest.mark.parametrize(
    "text", [b"../../etc/passwd\n", b"a b\n", b"\xff\xfe", b"$(reboot)\n", b"-x\n"]
)
def test_damaged_names_commit_nothing(tmp_path: Path, text: bytes) -> None:
    """A line that is no profile name is no profile."""
    (tmp_path / "active").write_bytes(text)
    assert FileCommitment(tmp_path).committed() == ()


@pytest.mark.parametrize("text", [b"soon\n", b"\xff\xfe", b"nan\n", b"12 x\n"])
def test_damaged_hold_holds(tmp_path: Path, text: bytes) -> None:
    """An unreadable end of a hold means a hold without an end, as at boot."""
    (tmp_path / "hold").write_bytes(text)
    assert FileCommitment(tmp_path).hold_until() == FOREVER


async def test_what_people_do_to_the_files_is_seen(tmp_path: Path) -> None:
    """A file that was edited, replaced or removed by hand is read again."""
    commitment = FileCommitment(tmp_path)
    await commitment.commit(["genesis"])
    assert commitment.committed() == ("genesis",)
    with (tmp_path / "active").open("a") as file:
        file.write("embedder\n")
    assert commitment.committed() == ("embedder", "genesis")
    (tmp_path / "new").write_text("aeon\n")
    (tmp_path / "new").rename(tmp_path / "active")
    assert commitment.committed() == ("aeon",)
    (tmp_path / "active").unlink()
    assert commitment.committed() == ()
    await commitment.set_hold(FOREVER)
    assert commitment.hold_until() == FOREVER
    (tmp_path / "hold").unlink()
    assert commitment.hold_until() is None


async def test_no_hold_is_taken_back_without_a_write(tmp_path: Path) -> None:
    """Where no hold is kept, ending it needs no disk."""
    await FileCommitment(tmp_path / "missing").set_hold(None)


async def test_failed_write_keeps_the_old_names(tmp_path: Path) -> None:
    """A failed write is an error, and a boot still follows the old names."""
    commitment = FileCommitment(tmp_path / "state")
    with pytest.raises(StoreError, match="cannot write"):
        await commitment.commit(["genesis"])
    (tmp_path / "state").mkdir()
    await commitment.commit(["genesis"])
    assert commitment.committed() == ("genesis",)
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["active"]


def files(directory: Path) -> dict[str, tuple[int, int]]:
    """Inode and permissions of everything in `directory`."""
    seen = {path.name: path.stat() for path in directory.iterdir()}
    return {name: (s.st_ino, s.st_mode & 0o777) for name, s in seen.items()}


async def test_what_was_reserved_is_put_in_place(either: Commitment) -> None:
    """A reservation changes nothing by itself, and what is written without one is written too."""
    await either.reserve(Writes(names=("genesis",), sets_hold=True, hold=FOREVER))
    assert (either.committed(), either.hold_until()) == ((), None)
    await either.commit(["genesis"])
    await either.set_hold(1234.0)
    assert (either.committed(), either.hold_until()) == (("genesis",), 1234.0)
    await either.release()
    assert (either.committed(), either.hold_until()) == (("genesis",), 1234.0)


async def test_a_reservation_is_a_rename_away(tmp_path: Path) -> None:
    """The reserved file itself becomes the new one, also for a process that comes later."""
    writes = Writes(names=("genesis",), sets_hold=True, hold=FOREVER)
    await FileCommitment(tmp_path).reserve(writes)
    reserved = {name: files(tmp_path)[f".{name}.reserved"] for name in ("active", "hold")}
    later = FileCommitment(tmp_path)
    await later.commit(["genesis"])
    await later.set_hold(FOREVER)
    assert files(tmp_path) == reserved
    assert {mode for _inode, mode in reserved.values()} == {0o644}


@pytest.mark.parametrize("left", [b"aeon\n", b"gen", b"", None])
async def test_what_another_operation_reserved_is_not_used(
    tmp_path: Path, left: bytes | None
) -> None:
    """Remains of a killed process are replaced; a FIFO among them makes nobody wait."""
    remains = tmp_path / ".active.reserved"
    os.mkfifo(remains) if left is None else remains.write_bytes(left)
    commitment = FileCommitment(tmp_path)
    await commitment.commit(["genesis"])
    assert commitment.committed() == ("genesis",)
    await commitment.reserve(Writes(names=("left",)))
    assert remains.read_bytes() == b"left\n"
    await commitment.release()
    assert not remains.exists()


@pytest.mark.parametrize("hold", [None, FOREVER])
async def test_a_failed_reservation_leaves_nothing(tmp_path: Path, hold: HoldUntil) -> None:
    """When one of two files finds no place, the other one's is given back."""
    commitment = FileCommitment(tmp_path)
    await commitment.set_hold(1234.0)
    (tmp_path / ".hold.reserved").mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        await commitment.reserve(Writes(names=("genesis",), sets_hold=True, hold=hold))
    assert set(files(tmp_path)) == {".hold.reserved", "hold"}


class CountingExecutor(ThreadPoolExecutor):
    """Threads, and how often one of them was asked for something."""

    count = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.count += 1
        return super().submit(fn, *args, **kwargs)


async def test_a_switch_asks_threads_only_for_what_it_writes(tmp_path: Path) -> None:
    """A thread costs a switch a quarter of a millisecond each time."""
    commitment = FileCommitment(tmp_path)
    threads = CountingExecutor()
    asyncio.get_running_loop().set_default_executor(threads)
    await commitment.reserve(Writes(names=("aeon",)))
    await commitment.commit(("aeon",))
    await commitment.set_hold(None)
    await commitment.release()
    assert threads.count == 2
    await commitment.reserve(Writes(names=("genesis",)))
    await commitment.release()
    assert threads.count == 4
