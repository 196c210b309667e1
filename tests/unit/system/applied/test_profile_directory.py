"""Files of profiles that are not in force as they are."""

from pathlib import Path

import pytest

from appliance.system.applied.profile_directory import (
    FAULTS_FILE,
    ProfileDirectory,
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
        return [(row["name"], row["state"], row["text"]) for row in found]


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
