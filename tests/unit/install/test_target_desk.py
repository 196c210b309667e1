"""Changes of the targets: the file, the names, and the notifier that reads it again."""

import os
from pathlib import Path

import pytest

from appliance.install.target_desk import TargetDesk, TargetError
from appliance.model.errors import SettingsError
from appliance.model.targets import Target, Targets
from appliance.system.target_names import TargetNamesFile
from tests.fakes.systemctl import FakeSystemctl

PHONE = Target(name="phone", url="ntfy://SECRET")
RESTART = "restart appliance-notifier.service"


@pytest.fixture
def systemd() -> FakeSystemctl:
    return FakeSystemctl()


@pytest.fixture
def desk(tmp_path: Path, systemd: FakeSystemctl) -> TargetDesk:
    return TargetDesk(tmp_path / "targets.toml", tmp_path / "applied/targets.json", systemd)


def names(tmp_path: Path) -> list[str]:
    return [one.name for one in TargetNamesFile(tmp_path / "applied/targets.json").targets()]


def test_a_target_is_added_and_removed(
    tmp_path: Path, desk: TargetDesk, systemd: FakeSystemctl
) -> None:
    """Each change writes the file for root alone and the names for all, and restarts the notifier."""
    desk.add(PHONE)
    assert (tmp_path / "targets.toml").stat().st_mode & 0o777 == 0o600
    assert desk.targets().targets == (PHONE,)
    assert (names(tmp_path), systemd.calls) == (["phone"], [RESTART])
    desk.remove("phone")
    assert desk.targets() == Targets()
    assert (names(tmp_path), systemd.calls) == ([], [RESTART, RESTART])


def test_the_heartbeat_restarts_the_notifier(desk: TargetDesk, systemd: FakeSystemctl) -> None:
    """A change that no name shows reaches the notifier, too."""
    desk.add(PHONE)
    desk.set_heartbeat("https://hc.example/SECRET")
    assert desk.targets().heartbeat_url == "https://hc.example/SECRET"
    assert systemd.calls == [RESTART, RESTART]


def test_a_change_by_hand_is_taken_over(
    tmp_path: Path, desk: TargetDesk, systemd: FakeSystemctl
) -> None:
    """Reading the targets tells the others what was changed in the file, and only then."""
    desk.add(PHONE)
    path = tmp_path / "targets.toml"
    path.write_text(path.read_text().replace("phone", "other"))
    desk.targets()
    assert (names(tmp_path), len(systemd.calls)) == (["other"], 2)
    path.write_text(path.read_text().replace("SECRET", "topic"))
    os.utime(path, (2e9, 2e9))
    desk.targets()
    assert len(systemd.calls) == 3
    os.utime(path, (1e9, 1e9))
    desk.targets()
    assert len(systemd.calls) == 3


def test_damaged_names_are_written_anew(tmp_path: Path, desk: TargetDesk) -> None:
    """Names that cannot be read are replaced by those of the file."""
    desk.add(PHONE)
    (tmp_path / "applied/targets.json").write_text("damaged")
    desk.targets()
    assert names(tmp_path) == ["phone"]


def test_what_cannot_be_done_changes_nothing(tmp_path: Path, desk: TargetDesk) -> None:
    """A name that is taken, one target too many, and one that does not exist are refused."""
    desk.add(PHONE)
    with pytest.raises(TargetError, match="there is a target phone"):
        desk.add(PHONE)
    with pytest.raises(TargetError, match="there is no target chat"):
        desk.remove("chat")
    for number in range(15):
        desk.add(Target(name=f"t{number}", url="ntfy://SECRET"))
    before = (tmp_path / "targets.toml").read_bytes()
    with pytest.raises(TargetError, match="16 targets are the most"):
        desk.add(Target(name="more", url="ntfy://SECRET"))
    assert (tmp_path / "targets.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'[[target]]\nname = "a"\nurl = "SECRET"\n', r"targets.toml:3: url is no address"),
        (b"\xffSECRET", "is not UTF-8 text"),
    ],
)
def test_a_file_with_faults_is_left_as_it_is(
    tmp_path: Path, desk: TargetDesk, content: bytes, error: str
) -> None:
    """A file with faults is not changed, and its errors show no value."""
    path = tmp_path / "targets.toml"
    path.write_bytes(content)
    for change in (desk.targets, lambda: desk.add(PHONE), lambda: desk.remove("a")):
        with pytest.raises(SettingsError, match=error) as raised:
            change()
        assert "SECRET" not in str(raised.value)
    assert path.read_bytes() == content
    path.unlink()
    path.mkdir()
    with pytest.raises(SettingsError, match="is a directory"):
        desk.targets()
