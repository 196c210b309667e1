"""Profile files and running units that are not in force as they are."""

import os
from pathlib import Path

import pytest

from appliance.system.applied.pending_changes import (
    FAULTS_FILE,
    STARTED_FILE,
    ProfileDirectory,
    StartedUnits,
    read_started,
    write_faults,
)


class Profiles:
    """Directory of profiles, and what apply has left."""

    def __init__(self, root: Path) -> None:
        self.files, self.applied = root / "profiles", root / "applied"
        for directory in (self.files, self.applied):
            directory.mkdir()
        self.directory = ProfileDirectory(self.files, self.applied)

    def write(self, name: str, text: str = "x = 1\n") -> None:
        (self.files / f"{name}.toml").write_text(text)

    def rows(self, *applied: str, edited: tuple[str, ...] = ()) -> list[tuple[str, str, str]]:
        found = self.directory.rows(applied, edited)
        return [(row.name, row.state, row.text) for row in found]


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    return Profiles(tmp_path)


def test_a_file_is_unapplied_changed_or_removed(profiles: Profiles) -> None:
    """Each difference has its word; files that are in force have no row, nor have other files."""
    for name in ("a", "b", "new", ".hidden"):
        profiles.write(name)
    (profiles.files / "notes.txt").write_text("x")
    assert profiles.rows("a", "b", "gone", edited=("b",)) == [
        ("b", "changed", ""),
        ("gone", "removed", ""),
        ("new", "unapplied", ""),
    ]
    profiles.write("gone")
    assert profiles.rows("a", "b", "gone", "new") == []


def test_a_fault_is_told_while_the_file_is_the_one_that_apply_refused(profiles: Profiles) -> None:
    """A corrected file is a new one, which the next apply judges."""
    profiles.write("bad", "ctxsize = 1\n")
    text = 'bad.toml:1 "ctxsize": unknown key'
    write_faults(profiles.applied, profiles.files, {"bad": text})
    assert profiles.rows() == [("bad", "faulty", text)]
    assert profiles.rows("bad", edited=("bad",)) == [("bad", "faulty", text)]
    profiles.write("bad", "ctx_size = 1\n")
    assert profiles.rows() == [("bad", "unapplied", "")]
    write_faults(profiles.applied, profiles.files, {})
    assert profiles.rows("bad") == []


def test_a_directory_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    """Where the files are not known, no profile is said to be gone."""
    assert ProfileDirectory(tmp_path / "absent", tmp_path).rows(["a"], []) == []


def test_damaged_faults_are_none(profiles: Profiles) -> None:
    """The status is not lost with a file that apply writes anew."""
    profiles.write("bad")
    (profiles.applied / FAULTS_FILE).write_bytes(b"[1")
    assert profiles.rows() == [("bad", "unapplied", "")]


def test_the_rows_are_bounded(profiles: Profiles) -> None:
    """A directory full of files does not fill the status."""
    for number in range(40):
        profiles.write(f"p{number:02}")
    assert [name for name, _, _ in profiles.rows()] == [f"p{number:02}" for number in range(20)]


UNIT = "appliance-backend-a.service"
TEXT = "[Unit]\nDescription=a\n[Service]\nExecStart=/bin/a --port 9000\nRestartSec=2s\n"
WRITTEN_S = 1_000.0
STARTED_S = 2_000.0


class Installed:
    """Directory of one unit, and the supervisor's notes."""

    def __init__(self, root: Path) -> None:
        self.unit, self.record = root / UNIT, root / STARTED_FILE
        self.write(TEXT, WRITTEN_S)
        self.units = StartedUnits(root, self.record)

    def write(self, text: str, at_s: float) -> None:
        self.unit.write_text(text)
        os.utime(self.unit, (at_s, at_s))

    def drop_in(self, text: str) -> Path:
        path = self.unit.with_name(f"{UNIT}.d") / "override.conf"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def is_outdated(self, started_s: float = STARTED_S) -> bool:
        return "a" in self.units.outdated({"a": started_s})


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    return Installed(tmp_path)


def test_a_unit_that_is_older_than_its_process_is_the_one_that_runs(installed: Installed) -> None:
    """A later change of the unit, whoever makes it, makes a restart pending until it is undone."""
    assert not installed.is_outdated()
    installed.write(TEXT.replace("9000", "9001"), STARTED_S + 5)
    assert installed.is_outdated()
    installed.write(TEXT, STARTED_S + 9)
    assert not installed.is_outdated()


def test_what_a_reload_puts_in_force_needs_no_restart(installed: Installed) -> None:
    """Descriptions and pauses of restarts hold without a new process."""
    assert not installed.is_outdated()
    installed.write(TEXT.replace("2s", "5s").replace("=a\n", "=b\n"), STARTED_S + 5)
    assert not installed.is_outdated()


def test_a_drop_in_counts(installed: Installed) -> None:
    """`systemctl edit` leaves the unit itself alone; its removal counts likewise."""
    assert not installed.is_outdated()
    path = installed.drop_in("[Service]\nEnvironment=A=1\n")
    assert installed.is_outdated()
    path.unlink()
    assert not installed.is_outdated()


def test_a_process_is_known_by_its_start(installed: Installed) -> None:
    """After a restart the new form is the one that runs."""
    assert not installed.is_outdated()
    installed.write(TEXT.replace("9000", "9001"), STARTED_S + 5)
    assert installed.is_outdated()
    assert not installed.is_outdated(STARTED_S + 10)


def test_the_note_outlives_the_supervisor(installed: Installed) -> None:
    """Another process of the supervisor compares with what the first has seen."""
    assert not installed.is_outdated()
    installed.write(TEXT.replace("9000", "9001"), STARTED_S + 5)
    installed.units = StartedUnits(installed.unit.parent, installed.record)
    assert installed.is_outdated()
    assert read_started(installed.record)["a"].started_unix_s == STARTED_S


def test_a_form_that_nobody_has_seen_is_told_as_changed(installed: Installed) -> None:
    """Files that are newer than a process seen for the first time are not those that it was started from."""
    installed.write(TEXT, STARTED_S + 5)
    assert installed.is_outdated()
    assert read_started(installed.record)["a"].digest == ""


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"a": 1, "b": {"digest": 3}}'])
def test_damaged_notes_are_none(installed: Installed, content: bytes) -> None:
    """Notes are made anew where they cannot be read."""
    installed.record.write_bytes(content)
    assert read_started(installed.record) == {}


def test_a_unit_that_cannot_be_read_is_not_told_as_changed(installed: Installed) -> None:
    """A missing unit has a note of its own in the status."""
    assert not installed.is_outdated()
    installed.unit.unlink()
    assert not installed.is_outdated()
