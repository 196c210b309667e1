"""The library of examples."""

from pathlib import Path

import pytest

from appliance.model.errors import ProfileError, UnknownProfileError
from appliance.system.profile_files import example_library
from appliance.system.profile_files.example_library import example_names, example_text

SHIPPED = Path(__file__).parents[4] / "profiles"


def test_the_examples_of_this_tree() -> None:
    """The library is what the repository has in profiles/, and each text is the file's."""
    assert example_names() == tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))
    assert example_text("rerank") == (SHIPPED / "rerank.toml").read_text()


def test_an_unknown_example_is_told_with_all_that_there_are() -> None:
    """A misspelt name gets the closest one, and the list."""
    with pytest.raises(UnknownProfileError, match=r'no example "rerenk". Did you mean "rerank"\?'):
        example_text("rerenk")
    with pytest.raises(UnknownProfileError, match=r"There are aeon, coder4, "):
        example_text("\x1b[2J")


def test_a_file_may_be_the_example(tmp_path: Path) -> None:
    """A path is read as it is; one that cannot be read is told."""
    file = tmp_path / "mine.toml"
    file.write_text("port = 8020\n")
    assert example_text(str(file)) == "port = 8020\n"
    with pytest.raises(ProfileError, match=r"no\.toml: cannot be read: No such file"):
        example_text("no.toml")
    file.write_bytes(b"\xff")
    with pytest.raises(ProfileError, match="is not UTF-8 text"):
        example_text(str(file))


def test_places_of_the_library() -> None:
    """A release has its examples in the package, a checkout beside it."""
    assert [place.parts[-2:] for place in example_library._PLACES] == [
        ("_installed", "profiles"),
        (SHIPPED.parent.name, "profiles"),
    ]
