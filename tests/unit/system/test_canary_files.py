"""The reader of canary files."""

import os
from pathlib import Path

import pytest

from appliance.speed.canaries import MOST_FILE_BYTES, CanaryFile
from appliance.system.canary_files import CanaryDirectory

LINE = '{"name": "a", "request": {"messages": [{}]}, "expect": {"contains": "Paris"}}\n'


async def test_file(tmp_path: Path) -> None:
    """A file is parsed when it is there, and again when it has changed."""
    directory = CanaryDirectory(tmp_path)
    assert await directory.read("genesis") == CanaryFile()
    path = tmp_path / "genesis.jsonl"
    path.write_text(LINE)
    found = await directory.read("genesis")
    assert [canary.name for canary in found.canaries] == ["own:a"]
    assert await directory.read("genesis") is found
    path.write_text(LINE + "{\n")
    changed = await directory.read("genesis")
    assert changed.problems == ("line 2: no JSON object",)
    path.unlink()
    assert await directory.read("genesis") == CanaryFile()


async def test_link(tmp_path: Path) -> None:
    """A file may be a link, as configuration management makes them."""
    (tmp_path / "shared").write_text(LINE)
    (tmp_path / "genesis.jsonl").symlink_to("shared")
    assert len((await CanaryDirectory(tmp_path).read("genesis")).canaries) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\xff", "the file is no text in UTF-8"),
        (b"#" * (MOST_FILE_BYTES + 1), f"the file is larger than {MOST_FILE_BYTES} bytes"),
    ],
)
async def test_bad_content(tmp_path: Path, content: bytes, problem: str) -> None:
    """A file that is no text or too large is a problem, not an error."""
    (tmp_path / "genesis.jsonl").write_bytes(content)
    assert (await CanaryDirectory(tmp_path).read("genesis")).problems == (problem,)


async def test_odd_files(tmp_path: Path) -> None:
    """A pipe or a directory in place of the file is told, and never waited for."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    directory = CanaryDirectory(tmp_path)
    assert (await directory.read("pipe")).problems == ("the file is a pipe, not a file",)
    assert (await directory.read("folder")).problems == ("the file is a directory, not a file",)


async def test_other_errors(tmp_path: Path) -> None:
    """A path that leads nowhere is told with the system's reason."""
    (tmp_path / "genesis.jsonl").symlink_to("genesis.jsonl")
    (problem,) = (await CanaryDirectory(tmp_path).read("genesis")).problems
    assert problem.startswith("the file cannot be read: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file; the message is not shown")
async def test_forbidden(tmp_path: Path) -> None:
    """A file that the health agent may not read is told with the command."""
    path = tmp_path / "genesis.jsonl"
    path.write_text(LINE)
    path.chmod(0)
    (problem,) = (await CanaryDirectory(tmp_path).read("genesis")).problems
    assert problem == (f"the file cannot be read: chgrp appliance-health {path}; chmod 640 {path}")
