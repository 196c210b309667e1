"""`profile rm`: files of profiles that neither run nor are committed go, all or none."""

import json
import os
from pathlib import Path

import pytest

from tests.fakes.cli_box import CliBox
from tests.fakes.profiles import applied

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may remove profiles")


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    """Return a box on which genesis serves, aeon is committed, and oldmix does neither."""
    box = CliBox(tmp_path)
    names = ("genesis", "aeon", "oldmix")
    box.install(*(applied(name, "gpu-all") for name in names), committed="aeon\n")
    box.systemd_says(genesis="ActiveState=active SubState=running")
    for name in (*names, "draft"):
        (tmp_path / "profiles" / f"{name}.toml").write_text("")
    return box


@needs_root
def test_files_of_stopped_profiles_are_removed(box: CliBox) -> None:
    """The output names the profile whose unit is there until the next apply; a draft has none."""
    ended = box.run("profile", "rm", "oldmix", "draft")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"removed {box.root}/profiles/oldmix.toml",
        f"removed {box.root}/profiles/draft.toml",
        "oldmix: the unit goes with sudo appliance apply",
    ]
    assert names(box) == ["aeon", "genesis"]


@needs_root
def test_one_that_may_not_go_keeps_them_all(box: CliBox) -> None:
    """Each refusal has the command to type; nothing is removed."""
    ended = box.run("profile", "rm", "oldmix", "genesis", "aeon")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.splitlines() == [
        "genesis is serving: appliance stop genesis",
        "a boot starts aeon: appliance uncommit aeon",
    ]
    assert names(box) == ["aeon", "draft", "genesis", "oldmix"]


@needs_root
def test_names_are_those_of_files(box: CliBox) -> None:
    """A wrong name is told with the closest one, and no path leads out of the directory."""
    ended = box.run("profile", "rm", "oldmxi", "draft")
    assert (ended.status, ended.err) == (4, 'no profile "oldmxi". Did you mean "oldmix"?\n')
    outside = box.root / "outside.toml"
    outside.touch()
    assert box.run("profile", "rm", "../outside").status == 4
    assert box.run("profile", "rm").status == 2
    assert outside.exists()
    assert "draft" in names(box)


@needs_root
def test_where_nobody_knows_what_runs_nothing_is_removed(box: CliBox) -> None:
    """Neither the supervisor nor systemd answers."""
    box.program("systemctl", "exit 1")
    assert box.run("profile", "rm", "oldmix").status == 69
    assert "oldmix" in names(box)


@needs_root
def test_removed_files_as_json(box: CliBox) -> None:
    """The document has the paths, and the profiles that an apply is to take away."""
    ended = box.run("profile", "rm", "oldmix", "draft", "--json")
    paths = [f"{box.root}/profiles/{name}.toml" for name in ("oldmix", "draft")]
    assert json.loads(ended.out) == {"removed": paths, "still_applied": ["oldmix"]}


def names(box: CliBox) -> list[str]:
    return sorted(path.stem for path in (box.root / "profiles").iterdir())
