"""Forms in which running units were started, noted and compared with their files."""

import os
from pathlib import Path

import pytest

from appliance.system.applied.started_units import STARTED_FILE, StartedUnits, read_started

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
