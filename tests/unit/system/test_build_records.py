"""Records of builds on disk: which are read, and which are current."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.engine_build import EngineBuild
from appliance.system.build_records import (
    CurrentBuilds,
    current_build,
    current_builds,
    is_current,
    read_record,
)
from appliance.system.files.regular import stamp
from appliance.wire.build_record import MAX_BYTES, BuildRecord, encoded
from tests.fakes.profiles import applied, catalogue


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program, and a record of it."""
    program = tmp_path / "bin/engine"
    program.parent.mkdir()
    program.touch()
    store(tmp_path, program, {str(program): stamp(program), f"{program}.so": None})
    return program


def store(folder: Path, program: Path, stamps: dict[str, tuple[int, int, int, int] | None]) -> None:
    build = EngineBuild(version="b1", options={"--port": ()})
    record = BuildRecord(program=str(program), build=build, stamps=stamps)
    (folder / "l.json").write_text(encoded(record))


def known(folder: Path, program: Path, *, certain: bool = False) -> str:
    build = current_build(str(folder / "l.json"), str(program), certain=certain)
    return "" if build is None else build.version


def test_a_record_stands_while_its_files_are_as_they_were(tmp_path: Path, program: Path) -> None:
    """A new time, a new file beside it and another program end it."""
    assert known(tmp_path, program, certain=True) == "b1"
    assert known(tmp_path, Path("/opt/other")) == ""
    Path(f"{program}.so").touch()
    assert known(tmp_path, program) == ""
    Path(f"{program}.so").unlink()
    os.utime(program, (5, 5))
    assert known(tmp_path, program) == ""


def test_a_program_that_cannot_be_looked_at_may_be_the_same(tmp_path: Path) -> None:
    """The record is shown as known; a preflight wants to be certain."""
    store(tmp_path, Path("/hidden/l"), {"/hidden/l": (1, 2, 3, 4)})
    assert known(tmp_path, Path("/hidden/l")) == "b1"
    assert known(tmp_path, Path("/hidden/l"), certain=True) == ""


def test_a_record_without_stamps_is_never_current(tmp_path: Path, program: Path) -> None:
    """A program that changed while it was asked has none."""
    store(tmp_path, program, {})
    record = read_record(str(tmp_path / "l.json"))
    assert record is not None
    assert is_current(record, str(program)) is False


@pytest.mark.parametrize("content", ["", "{}", "x" * (MAX_BYTES + 1)])
def test_what_is_no_record_is_as_if_absent(tmp_path: Path, program: Path, content: str) -> None:
    """Half a file, a huge one and a pipe are not read."""
    path = tmp_path / "l.json"
    path.write_text(content)
    assert known(tmp_path, program) == ""
    path.unlink()
    assert known(tmp_path, program) == ""
    os.mkfifo(path)
    assert known(tmp_path, program) == ""


def test_builds_are_found_by_profile(tmp_path: Path, program: Path) -> None:
    """Profiles without a record are absent."""
    profiles = catalogue(replace(applied("l", "cpu"), binary=str(program)), applied("other", "cpu"))
    assert current_builds(profiles, str(tmp_path)).keys() == {"l"}


def test_a_program_that_has_answered_for_another_profile_is_known(
    tmp_path: Path, program: Path
) -> None:
    """A new profile is checked against what its program said when another profile asked."""
    new = replace(applied("new", "cpu"), binary=str(program))
    build = CurrentBuilds(str(tmp_path)).of(new)
    assert build is not None
    assert build.version == "b1"
    assert CurrentBuilds(f"{tmp_path}/none").of(new) is None
    os.utime(program, (5, 5))
    assert CurrentBuilds(str(tmp_path)).of(new) is None


def test_a_command_reads_each_record_once(tmp_path: Path, program: Path) -> None:
    """A reader keeps what it has found, by the name of the profile and the program together."""
    builds, mine = CurrentBuilds(str(tmp_path)), replace(applied("l", "cpu"), binary=str(program))
    found = builds.of(mine)
    assert found is not None
    assert builds.of(replace(mine, binary="/opt/another")) is None
    (tmp_path / "l.json").unlink()
    assert builds.of(mine) is found
    assert CurrentBuilds(str(tmp_path)).of(mine) is None
