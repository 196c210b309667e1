"""Files that are replaced and removed durably, alone and many at once."""

from pathlib import Path

import pytest

from appliance.model.errors import StoreError
from appliance.system.files.durable import (
    remove_files,
    write_file,
    write_files,
    write_new_files,
)


def texts_in(directory: Path) -> dict[str, str]:
    """Return the text of every file below a directory, temporaries too."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_text() for path in found}


def test_many_files_are_replaced(tmp_path: Path) -> None:
    """Each file has its new text and its permissions; a directory in the way is moved aside."""
    (tmp_path / "b").mkdir()
    write_file(tmp_path / "0", "old")
    (tmp_path / "1").mkdir()
    places = [tmp_path / name for name in ("0", "1", "b/2")]
    write_files({path: f"new {path.name}" for path in places}, mode=0o600)
    assert texts_in(tmp_path) == {"0": "new 0", "1": "new 1", "b/2": "new 2"}
    assert {path.stat().st_mode & 0o777 for path in places} == {0o600}
    write_files({})


def test_of_many_files_one_that_cannot_be_written_changes_none(tmp_path: Path) -> None:
    """The error names that file; nothing is left of the others."""
    write_file(tmp_path / "0", "old")
    missing = tmp_path / "missing" / "1"
    with pytest.raises(StoreError, match=f"cannot write {missing}: No such file or directory"):
        write_files({tmp_path / "0": "new", tmp_path / "2": "new", missing: "new"})
    assert texts_in(tmp_path) == {"0": "old"}


def test_many_files_are_removed(tmp_path: Path) -> None:
    """Missing files are no error; a directory is."""
    for name in ("0", "1", "2"):
        write_file(tmp_path / name, "")
    remove_files([tmp_path / "0", tmp_path / "2", tmp_path / "3"])
    assert texts_in(tmp_path) == {"1": ""}
    (tmp_path / "4").mkdir()
    with pytest.raises(StoreError, match=f"cannot remove {tmp_path / '4'}: Is a directory"):
        remove_files([tmp_path / "4"])


def test_new_files_replace_nothing(tmp_path: Path) -> None:
    """Where one file is there already, none of the others is written, and nothing is left behind."""
    (tmp_path / "b").write_text("old")
    with pytest.raises(StoreError, match="File exists"):
        write_new_files({tmp_path / "a": "1", tmp_path / "b": "2", tmp_path / "c": "3"})
    assert [path.name for path in tmp_path.iterdir()] == ["b"]
    assert (tmp_path / "b").read_text() == "old"


def test_new_files_are_written_together(tmp_path: Path) -> None:
    """New files are all there, with their texts and permissions."""
    write_new_files({tmp_path / "a": "1", tmp_path / "b": "2"}, mode=0o640)
    found = {p.name: (p.read_text(), p.stat().st_mode & 0o777) for p in tmp_path.iterdir()}
    assert found == {"a": ("1", 0o640), "b": ("2", 0o640)}
