"""The file of what was seen: one form, written by a service user, read also by root."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.launch import gate
from appliance.switch.memory.peak import (
    ALLOWANCE_BYTES,
    ObservedPeak,
    decoded,
    encoded,
    with_allowance,
)
from appliance.system.launch_files import read_peak

GIB = 1 << 30
FINGERPRINT = "0123abcd"
PEAK = ObservedPeak(
    fingerprint=FINGERPRINT, gpus={"GPU-a": 19 * GIB}, ram_bytes=3 * GIB, seen_unix_s=1.5
)


def document(**changes: object) -> dict[str, Any]:
    good = {
        "format": 1,
        "fingerprint": FINGERPRINT,
        "seen_unix_s": 1.5,
        "peak": {"gpus": {"GPU-a": 19 * GIB}, "ram_bytes": 3 * GIB},
    }
    return {k: v for k, v in {**good, **changes}.items() if v != "absent"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.json"


def test_an_allowance_is_a_share_and_at_least_half_a_gib() -> None:
    """Of 40 GiB 2 GiB, of little 512 MiB."""
    assert with_allowance(40 * GIB) == 42 * GIB
    assert with_allowance(0) == ALLOWANCE_BYTES == GIB // 2


@pytest.mark.parametrize("ram_bytes", [3 * GIB, None])
def test_what_is_written_is_read(path: Path, ram_bytes: int | None) -> None:
    """Supervisor, command line and gate get the same from the file."""
    peak = ObservedPeak(fingerprint=FINGERPRINT, gpus=PEAK.gpus, ram_bytes=ram_bytes)
    path.write_text(encoded(peak))
    assert read_peak(path.parent, "a") == peak
    assert gate._peak(str(path), FINGERPRINT) == peak


def test_a_peak_is_one_configurations() -> None:
    """Another fingerprint, and none, tell nothing."""
    assert PEAK.of(FINGERPRINT) is PEAK
    assert PEAK.of("another") is None
    assert ObservedPeak(fingerprint="").of("") is None
    assert PEAK != FINGERPRINT
    assert FINGERPRINT in repr(PEAK)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"surprise": [1, {"a": None}]},
        # What an earlier release wrote beside it.
        {"gpus": {"GPU-a": 20 * GIB}, "ram_bytes": 4 * GIB},
    ],
)
def test_what_may_be_in_it_too(changes: dict[str, object]) -> None:
    """Other fields are left alone."""
    assert decoded(json.dumps(document(**changes))) == PEAK


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"format": "absent"},
        {"fingerprint": ""},
        {"fingerprint": 5},
        {"fingerprint": "a\n"},
        {"fingerprint": "absent"},
        {"seen_unix_s": None},
        {"seen_unix_s": True},
        {"seen_unix_s": -1},
        {"seen_unix_s": float("nan")},
        {"seen_unix_s": 10**400},
        {"peak": None},
        {"peak": 1},
        {"peak": "absent"},
        {"peak": {"gpus": {}}},
        {"peak": {"gpus": [], "ram_bytes": 1}},
        {"peak": {"gpus": [1], "ram_bytes": 1}},
        {"peak": {"gpus": {"": 1}, "ram_bytes": 1}},
        {"peak": {"gpus": {"x" * 129: 1}, "ram_bytes": 1}},
        {"peak": {"gpus": {"GPU-a": -1}, "ram_bytes": 1}},
        {"peak": {"gpus": {"GPU-a": 1.5}, "ram_bytes": 1}},
        {"peak": {"gpus": {"GPU-a": True}, "ram_bytes": 1}},
        {"peak": {"gpus": {"GPU-a": "1"}, "ram_bytes": 1}},
        {"peak": {"gpus": {"GPU-a": 10**30}, "ram_bytes": 1}},
        {"peak": {"gpus": {f"GPU-{i}": 1 for i in range(65)}, "ram_bytes": 1}},
        {"peak": {"gpus": {}, "ram_bytes": 1 << 60}},
        {"peak": {"gpus": {}, "ram_bytes": "4"}},
    ],
)
def test_what_cannot_be_is_as_if_absent(changes: dict[str, object]) -> None:
    """Another format, figures that no machine has, names that are none."""
    assert decoded(json.dumps(document(**changes))) is None


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "{", "[]", "null", "1", "NaN", "{]", "\0", '"\ud800"'),
        *("[" * 60_000, "9" * 60_000, encoded(PEAK) + "{}"),
    ],
    ids=range(13),
)
def test_what_is_no_such_document_is_as_if_absent(text: str) -> None:
    """No text makes the reader raise, however it is nested, cut or continued."""
    assert decoded(text) is None


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any bytes in the file are a peak or none, for both readers."""
    path = tmp_path_factory.getbasetemp() / "needs-fuzz.json"
    path.write_bytes(content)
    assert gate._peak(str(path), FINGERPRINT) is None
    assert read_peak(path.parent, "needs-fuzz") is None


def test_the_gate_reads_a_small_regular_file_only(path: Path, tmp_path: Path) -> None:
    """Links, pipes, folders and large files are not followed, waited for or read."""
    good = encoded(PEAK)
    target = tmp_path / "target"
    target.write_text(good)
    path.symlink_to(target)
    assert gate._peak(str(path), FINGERPRINT) is None
    path.unlink()
    os.mkfifo(path)
    assert gate._peak(str(path), FINGERPRINT) is None
    path.unlink()
    path.mkdir()
    assert gate._peak(str(path), FINGERPRINT) is None
    assert gate._peak(str(tmp_path / "missing"), FINGERPRINT) is None
    target.write_text(good + " " * (64 << 10))
    assert gate._peak(str(target), FINGERPRINT) is None
    target.write_text(good)
    assert gate._peak(str(target), "") is None
    assert gate._peak(str(target), FINGERPRINT) is not None


def test_reading_imports_no_parser() -> None:
    """The gate of a backend without GPUs does not pay for the json module, nor for re."""
    code = (
        "import sys; from appliance.switch.memory.peak import decoded;"
        f" assert decoded({encoded(PEAK)!r}) is not None;"
        " print(sorted({'json', 're', 'socket', 'subprocess'} & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[4]
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {code}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "[]\n"
