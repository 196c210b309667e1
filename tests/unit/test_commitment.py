"""The two files that a boot follows."""

from pathlib import Path

import pytest

from appliance.adapters.commitment import FileCommitment
from appliance.domain.errors import StoreError
from appliance.domain.operations import FOREVER
from appliance.ports import Commitment
from tests.fakes.outside import FakeCommitment


@pytest.fixture(params=["file", "fake"])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Commitment:
    """The contract holds for the real one and for the one that tests use."""
    return FileCommitment(tmp_path) if request.param == "file" else FakeCommitment()


async def test_names_and_hold_come_back(either: Commitment) -> None:
    """Nothing at first; then what was written, sorted; a hold can be taken back."""
    assert either.committed() == ()
    assert either.hold_until() is None
    await either.commit(["genesis", "embedder"])
    assert either.committed() == ("embedder", "genesis")
    for until in (FOREVER, 1234.0):
        await either.set_hold(until)
        assert either.hold_until() == until
    await either.set_hold(None)
    assert either.hold_until() is None


@pytest.mark.parametrize(
    "text", [b"../../etc/passwd\n", b"a b\n", b"\xff\xfe", b"$(reboot)\n", b"-x\n"]
)
def test_damaged_names_commit_nothing(tmp_path: Path, text: bytes) -> None:
    """A line that is no profile name is no profile."""
    (tmp_path / "active").write_bytes(text)
    assert FileCommitment(tmp_path).committed() == ()


@pytest.mark.parametrize("text", [b"soon\n", b"\xff\xfe", b"nan\n", b"12 x\n"])
def test_damaged_hold_holds(tmp_path: Path, text: bytes) -> None:
    """Somebody wanted a hold: an unreadable end means none, as at boot."""
    (tmp_path / "hold").write_bytes(text)
    assert FileCommitment(tmp_path).hold_until() == FOREVER


async def test_failed_write_keeps_the_old_names(tmp_path: Path) -> None:
    """What cannot be written is an error, and a boot still follows the old names."""
    commitment = FileCommitment(tmp_path / "state")
    with pytest.raises(StoreError, match="cannot write"):
        await commitment.commit(["genesis"])
    (tmp_path / "state").mkdir()
    await commitment.commit(["genesis"])
    assert commitment.committed() == ("genesis",)
    assert [p.name for p in (tmp_path / "state").iterdir()] == ["active"]
