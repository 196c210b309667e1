"""File of the targets' names, as root writes it and the health agent reads it."""

import os
from pathlib import Path

import pytest

from appliance.model.targets import TargetStanding
from appliance.system.target_names import TargetNamesFile, target_names_text

PHONE = TargetStanding(name="phone", kind="ntfy", min_severity="warning")
DESK = TargetStanding(name="desk", kind="mailtos")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "targets.json"


def test_names_and_kinds_come_back(path: Path) -> None:
    """A change of the file is seen at the next question."""
    names = TargetNamesFile(path)
    assert names.targets() == ()
    path.write_text(target_names_text([PHONE, DESK]))
    assert names.targets() == (PHONE, DESK)
    path.write_text(target_names_text([DESK]))
    assert names.targets() == (DESK,)
    path.unlink()
    assert names.targets() == ()
    assert names.trouble == ""


@pytest.mark.parametrize("text", ["", "[]", '{"targets": [{"name": 3}]}', "x" * (300 << 10)])
def test_a_damaged_file_leaves_the_targets_as_they_were(
    path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The trouble is said once, and ends with the next good file."""
    names = TargetNamesFile(path)
    path.write_text(target_names_text([PHONE]))
    names.targets()
    path.write_text(text)
    assert [names.targets(), names.targets()] == [(PHONE,), (PHONE,)]
    assert "appliance target ls" in names.trouble
    assert len(caplog.records) == 1
    path.write_text(target_names_text([DESK]))
    assert names.targets() == (DESK,)
    assert names.trouble == ""


def test_a_pipe_makes_nobody_wait(path: Path) -> None:
    """A path that is no file names no target."""
    os.mkfifo(path)
    names = TargetNamesFile(path)
    assert names.targets() == ()
    assert names.trouble
