"""The directory for an engine's temporary files, from the last run to the next."""

import socket
from pathlib import Path

import pytest

from appliance.launch.backend import KEPT, clear_temporary


def test_temporary_directory_is_made(tmp_path: Path) -> None:
    """Before the first start there is none; only the engine's user may look into it."""
    directory = tmp_path / "cache" / "tmp"
    clear_temporary(str(directory))
    assert directory.stat().st_mode & 0o777 == 0o700


def test_leftovers_of_the_last_run_are_removed(tmp_path: Path) -> None:
    """Files, sockets, trees and links go; where a link leads to stays, and so do compiled headers."""
    directory, elsewhere = tmp_path / "tmp", tmp_path / "elsewhere"
    header = directory / f"{KEPT}engine" / "precompiled_headers" / "x.h.gch"
    header.parent.mkdir(parents=True)
    header.touch()
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (directory / "vllm_dist_1").touch()
    (directory / "tree" / "deep").mkdir(parents=True)
    (directory / "link").symlink_to(elsewhere)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(directory / "socket"))
    clear_temporary(str(directory))
    assert [path.name for path in directory.iterdir()] == [f"{KEPT}engine"]
    assert header.exists()
    assert (elsewhere / "precious").exists()


def test_temporary_directory_that_cannot_be_used_is_no_obstacle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in its place is told in the journal, and the engine starts."""
    (tmp_path / "tmp").touch()
    clear_temporary(str(tmp_path / "tmp"))
    assert capsys.readouterr().err.startswith("<4>temporary files stay: ")
