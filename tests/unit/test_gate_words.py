"""What the daemon and the command line read of the gate's last words."""

import json
from pathlib import Path

import pytest

from appliance.adapters.gate_verdicts import admissions_in, read_gate_words, refusals_in
from appliance.launch import gate_verdict


def test_what_the_gate_writes_is_what_is_read(tmp_path: Path) -> None:
    """Refusals and admissions are told apart, and a cleared word is gone."""
    gate_verdict.write(str(tmp_path), "a", verdict=gate_verdict.REFUSED, reason="cpu is held by b")
    gate_verdict.write(str(tmp_path), "b", verdict=gate_verdict.LATE, reason="1.0 of 2.0 GiB free")
    gate_verdict.write(
        str(tmp_path), "c", verdict=gate_verdict.ADMITTED, reason="2.0 → 0.1 GiB", waited_s=2.5
    )
    gate_verdict.write(str(tmp_path), "d", verdict=gate_verdict.REFUSED, reason="gone")
    gate_verdict.clear(str(tmp_path), "d")
    assert refusals_in(tmp_path) == {"a": "cpu is held by b", "b": "1.0 of 2.0 GiB free"}
    assert admissions_in(tmp_path) == {"c": "2.0 → 0.1 GiB"}
    assert json.loads((tmp_path / "c.json").read_text("utf-8"))["waited_s"] == 2.5


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"reason": 1}', "\0", '{"verdict": "refused"}']
)
def test_a_damaged_word_is_none(tmp_path: Path, content: str) -> None:
    """A file that says nothing sensible is as good as none."""
    (tmp_path / "a.json").write_text(content)
    (tmp_path / "b.json").mkdir()
    (tmp_path / "Not a name.json").write_text('{"reason": "r"}')
    assert read_gate_words(tmp_path) == {}


def test_no_folder_is_no_word(tmp_path: Path) -> None:
    """Before the first start there is no folder."""
    assert read_gate_words(tmp_path / "missing") == {}
