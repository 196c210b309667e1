"""The paths of a quick verb: the settings file is parsed only if it may name one."""

import sys
from pathlib import Path

import pytest

from appliance.cli.paths import find_places, watch_names
from appliance.model.errors import SettingsError
from appliance.model.paths import STATE_DIR


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings file of this test."""
    path = tmp_path / "appliance.toml"
    monkeypatch.setenv("APPLIANCE_SETTINGS", str(path))
    return path


@pytest.mark.parametrize(
    "text",
    [
        'state_dir = "/srv/state"\n',
        '"state_dir" = "/srv/state"\n',
        '"st\\u0061te_dir" = "/srv/state"\n',
    ],
)
def test_paths_are_read_from_the_settings(settings: Path, text: str) -> None:
    """A path of the settings file holds, however its key is written."""
    settings.write_text(text)
    assert find_places().state_dir == "/srv/state"


def test_settings_without_paths_are_not_parsed(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settings file that names no path costs no TOML parser, whatever else is in it."""
    monkeypatch.delitem(sys.modules, "tomllib", raising=False)
    settings.write_text('[web]\nidle = "10s"\n[web\n')
    assert find_places().state_dir == STATE_DIR
    assert "tomllib" not in sys.modules


def test_names_of_watches_are_read_from_the_settings(settings: Path) -> None:
    """The names of the watches are those of the settings file, and none where it has none."""
    settings.write_text('[[watch]]\nname = "disk"\nurl = "http://127.0.0.1/"\n')
    assert watch_names() == ["disk"]
    settings.write_text('[web]\nidle = "10s"\n')
    assert watch_names() == []


@pytest.mark.parametrize(
    "text",
    ["state_dir = \n", f"state_dir = {'[' * 100_000}", f"a{'.state_dir' * 2_000} = 1"],
    ids=["empty", "nested", "dotted"],
)
def test_a_faulty_file_that_may_name_a_path_is_an_error(settings: Path, text: str) -> None:
    """A settings file that is no TOML and has the name of a path in it is refused with its line."""
    settings.write_text(text)
    with pytest.raises(SettingsError, match=r"\.toml:1: .*appliance config validate"):
        find_places()
