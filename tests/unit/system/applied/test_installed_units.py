"""Difference between installed units and apply's copies."""

from pathlib import Path

import pytest

from appliance.system.applied.installed_units import MOST_LINES, InstalledUnits

UNIT = "appliance-backend-a.service"
TEXT = "# sealed\n[Service]\nExecStart=/bin/a --port 9000\nEnvironment=A=1\n"


class Files:
    """Directories of installed units and of apply's copies."""

    def __init__(self, root: Path) -> None:
        self.unit, self.copy = root / "units" / UNIT, root / "applied" / "units" / UNIT
        for path in (self.unit, self.copy):
            path.parent.mkdir(parents=True)
            path.write_text(TEXT)
        self.units = InstalledUnits(root / "units", root / "applied")

    def drift(self) -> tuple[str, ...] | None:
        """Return the difference of the one profile."""
        return self.units.drift(["a"])["a"]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_unit_as_applied_has_no_drift(files: Files) -> None:
    """Equal texts differ in nothing, nor do comments and blank lines."""
    assert files.drift() == ()
    files.unit.write_text(f"# another comment\n\n{TEXT}")
    assert files.drift() == ()


def test_an_edit_is_told_by_its_lines(files: Files) -> None:
    """Lines that went and came are told, once the file has changed."""
    assert files.drift() == ()
    files.unit.write_text(TEXT.replace("9000", "9001") + "Nice=5\n")
    assert files.drift() == (
        "-ExecStart=/bin/a --port 9000",
        "+ExecStart=/bin/a --port 9001",
        "+Nice=5",
    )


def test_another_order_is_told(files: Files) -> None:
    """Order matters to systemd: the last of two values counts."""
    files.copy.write_text("[Service]\nNice=1\nNice=2\n")
    files.unit.write_text("[Service]\nNice=2\nNice=1\n")
    assert files.drift() == ("its lines are in another order",)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Environment=HF_TOKEN=hush", "+Environment=HF_TOKEN=… (value not shown)"),
        ('Environment="HF_TOKEN=hush"', "+Environment=HF_TOKEN=… (value not shown)"),
        ("Environment=hush-hush", "+Environment=… (value not shown)"),
        ("ExecStart=/bin/a --api-key hush", "+ExecStart=… (value not shown)"),
    ],
)
def test_what_may_be_secret_is_not_told(files: Files, line: str, shown: str) -> None:
    """The lines go to phones: values of variables and of keys are left out."""
    files.unit.write_text(f"{TEXT}{line}\n")
    assert files.drift() == (shown,)


def test_drop_ins_masks_and_missing_files_are_told(files: Files) -> None:
    """Each thing in the place of an applied file is drift, and is named."""
    folder = files.unit.with_name(f"{UNIT}.d")
    folder.mkdir()
    (folder / "override.conf").write_text("[Service]\nNice=1\n")
    assert files.drift() == (f"override.conf in {folder}",)
    files.unit.unlink()
    assert files.drift() == (f"override.conf in {folder}", f"{files.unit} is missing")
    files.unit.symlink_to("/dev/null")
    assert files.drift() == (
        f"override.conf in {folder}",
        f"{files.unit} is a symbolic link, not a file",
    )


def test_without_a_copy_nothing_is_known(files: Files) -> None:
    """A release that kept no copies left nothing to compare with."""
    files.copy.unlink()
    assert files.drift() is None
    files.copy.mkdir()
    assert files.drift() is None


def test_a_large_difference_is_bounded(files: Files) -> None:
    """Of thousands of lines a few are told, each cut."""
    files.unit.write_text(TEXT + "".join(f"X{n}={'y' * 500}\n" for n in range(400)))
    told = files.drift()
    assert told is not None
    assert len(told) == MOST_LINES
    assert max(map(len, told)) == 200
