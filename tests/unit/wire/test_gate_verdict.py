"""The gate's verdicts: their file, and what the daemon and the command line read of them."""

from pathlib import Path

import pytest

from appliance.system.launch_files import admissions_in, gate_refusals_in, read_verdicts
from appliance.wire.gate_verdict import ADMITTED, LATE, REFUSED, encoded, file_of


def write(folder: Path, profile: str, verdict: str, reason: str, **figures: float) -> None:
    """Leave a verdict as the gate does."""
    text = encoded(verdict, reason, unix_s=1.0, invocation_id="i", figures=figures)
    Path(file_of(str(folder), profile)).write_text(text, "utf-8")


def test_what_the_gate_writes_is_what_is_read(tmp_path: Path) -> None:
    """Refusals and admissions are told apart; figures for programs change nothing."""
    write(tmp_path, "a", REFUSED, "cpu is held by b")
    write(tmp_path, "b", LATE, "1.0 of 2.0 GiB free")
    write(tmp_path, "c", ADMITTED, "2.0 → 0.1 GiB", waited_s=2.5)
    assert gate_refusals_in(tmp_path) == {"a": "cpu is held by b", "b": "1.0 of 2.0 GiB free"}
    assert admissions_in(tmp_path) == {"c": "2.0 → 0.1 GiB"}
    assert '"waited_s": 2.5' in (tmp_path / "c.json").read_text("utf-8")


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"reason": 1}', "\0", '{"verdict": "refused"}', "[" * 9000]
)
def test_a_damaged_verdict_is_none(tmp_path: Path, content: str) -> None:
    """A damaged file counts as no verdict."""
    (tmp_path / "a.json").write_text(content)
    (tmp_path / "b.json").mkdir()
    (tmp_path / "Not a name.json").write_text('{"reason": "r"}')
    assert list(read_verdicts(tmp_path)) == []


def test_no_folder_is_no_verdict(tmp_path: Path) -> None:
    """Before the first start there is no folder."""
    assert list(read_verdicts(tmp_path / "missing")) == []
