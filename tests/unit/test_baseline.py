"""Baseline of a shared box: what a test changed is found and put back."""

from pathlib import Path

from tests.system.baseline import Baseline

PROFILE = Path("etc/appliance/profiles/a.toml")
DROP_IN = Path("etc/systemd/system/appliance-backend-a.service.d/limit.conf")
UNIT = Path("etc/systemd/system/appliance-backend-a.service")
ADDED = Path("etc/systemd/system/ssh.service")
KEPT = (PROFILE, DROP_IN, UNIT)


def furnished(root: Path) -> Baseline:
    """A box's files, with the baseline of them."""
    for path in KEPT:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("kept")
    (root / "etc/systemd/system/link.service").symlink_to("/dev/null")
    return Baseline(root)


def test_untouched_files_are_left_alone(tmp_path: Path) -> None:
    """A box that is as it was has no file that differs."""
    assert furnished(tmp_path).put_back() == set()


def test_changed_removed_and_added_files_are_put_back(tmp_path: Path) -> None:
    """Content, mode and existence come back, and each file that differed is told."""
    baseline = furnished(tmp_path)
    (tmp_path / PROFILE).write_text("changed")
    (tmp_path / DROP_IN).unlink()
    (tmp_path / DROP_IN).parent.rmdir()
    (tmp_path / ADDED).write_text("added")
    assert baseline.put_back() == {PROFILE, DROP_IN, ADDED}
    assert [(tmp_path / path).read_text() for path in KEPT] == ["kept"] * 3
    assert not (tmp_path / ADDED).exists()
    (tmp_path / PROFILE).chmod(0o600)
    assert baseline.put_back() == {PROFILE}
    assert baseline.changed() == set()


def test_units_of_profiles_are_left_to_apply(tmp_path: Path) -> None:
    """A unit that differs is told and not written; one that is missing is."""
    baseline = furnished(tmp_path)
    (tmp_path / UNIT).write_text("of another set of profiles")
    assert baseline.put_back() == baseline.changed() == {UNIT}
    (tmp_path / UNIT).unlink()
    assert baseline.put_back() == {UNIT}
    assert baseline.changed() == set()
