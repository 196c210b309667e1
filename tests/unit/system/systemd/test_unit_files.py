"""Files of units where systemd looks for them."""

from pathlib import Path

import pytest

from appliance.model.errors import StoreError
from appliance.system.systemd.unit_files import lacks_file, unit_file_text


def place(path: Path, text: str) -> None:
    """Write a file with its directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_first_directory_counts_and_drop_ins_follow(tmp_path: Path) -> None:
    """A unit is that of the first directory; drop-ins come after it, ordered by their names."""
    first, second = tmp_path / "etc", tmp_path / "lib"
    place(first / "a.service", "one")
    place(second / "a.service", "two")
    place(second / "a.service.d" / "20.conf", "later")
    place(second / "a.service.d" / "10.conf", "hidden")
    place(first / "a.service.d" / "10.conf", "sooner")
    assert unit_file_text("a.service", (first, second)) == "one\nsooner\nlater"


def test_an_instance_has_its_template(tmp_path: Path) -> None:
    """The text of an instance is that of its template."""
    place(tmp_path / "a@.service", "template")
    assert unit_file_text("a@b.service", (tmp_path,)) == "template"


def test_a_unit_that_does_not_exist(tmp_path: Path) -> None:
    """A name without a file has no text."""
    assert unit_file_text("a.service", (tmp_path, tmp_path / "none")) is None


def test_a_unit_that_is_no_file(tmp_path: Path) -> None:
    """A directory in place of a unit is told."""
    (tmp_path / "a.service").mkdir()
    with pytest.raises(StoreError, match="is a directory"):
        unit_file_text("a.service", (tmp_path,))


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("a.service", False),
        ("b@c.service", False),
        ("masked.service", False),
        ("x.service", True),
        ("x@y.service", True),
        ("x.target", True),
        ("srv.mount", False),
        ("system.slice", False),
    ],
)
def test_a_unit_without_a_file(tmp_path: Path, name: str, *, lacks: bool) -> None:
    """A unit of a kind that always has a file lacks it; one of another kind may come from elsewhere."""
    first, second = tmp_path / "etc", tmp_path / "none"
    place(first / "a.service", "one")
    place(first / "b@.service", "template")
    (first / "masked.service").symlink_to("/nowhere")
    assert lacks_file(name, (first, second)) is lacks
    assert not lacks_file(name, (second,))
