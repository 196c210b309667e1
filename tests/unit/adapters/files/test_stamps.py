"""Files that are read again only when they have changed."""

from pathlib import Path

import pytest

from appliance.adapters.files.regular import OddFileError
from appliance.adapters.files.stamps import CachedFile


def test_an_unchanged_file_is_read_once(tmp_path: Path) -> None:
    """What was read is kept until the file changes or goes."""
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
