"""What root reads of a file that a service user writes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.adapters.peak_files import encoded
from appliance.domain.need import ALLOWANCE_BYTES, Peak
from appliance.launch import needs
from appliance.launch.demand import Seen

GIB = 1 << 30
FINGERPRINT = "0123abcd"


def document(**changes: object) -> dict[str, Any]:
    good = {
        "format": 1,
        "fingerprint": FINGERPRINT,
        "gpus": {"GPU-a": 20 * GIB},
        "ram_bytes": 4 * GIB,
        "seen_unix_s": 1_700_000_000.5,
        "peak": {"gpus": {"GPU-a": 19 * GIB}, "ram_bytes": 3 * GIB},
    }
    return {k: v for k, v in {**good, **changes}.items() if v != "absent"}


def read(path: Path, text: str) -> Seen | None:
    path.write_text(text)
    return needs.read(str(path), FINGERPRINT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.json"


def test_what_the_supervisor_writes_is_understood(path: Path) -> None:
    """The daemon's own writer and the gate agree on every field."""
    peak = Peak(fingerprint=FINGERPRINT, gpus={"GPU-a": 2 * GIB}, ram_bytes=GIB, seen_unix_s=1.5)
    seen = read(path, encoded(peak))
    assert seen is not None
    assert seen.gpus == {"GPU-a": 2 * GIB + ALLOWANCE_BYTES}
    assert seen.gpu_peaks == {"GPU-a": 2 * GIB}
    assert (seen.ram, seen.ram_peak) == (GIB + ALLOWANCE_BYTES, GIB)


@pytest.mark.parametrize(
    ("changes", "ram"),
    [
        ({"ram_bytes": None, "peak": {"gpus": {}, "ram_bytes": None}}, None),
        ({"peak": "absent"}, 4 * GIB),
        ({"peak": {}}, 4 * GIB),
        ({"gpus": {}, "peak": {}}, 4 * GIB),
        ({"surprise": [1, {"a": None}]}, 4 * GIB),
    ],
)
def test_what_may_be_missing(path: Path, changes: dict[str, object], ram: int | None) -> None:
    """A backend without GPUs, one whose memory was not seen, and later fields are all fine."""
    seen = read(path, json.dumps(document(**changes)))
    assert seen is not None
    assert seen.ram == ram


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"format": "absent"},
        {"fingerprint": "other"},
        {"fingerprint": None},
        {"gpus": "absent"},
        {"gpus": [1]},
        {"gpus": {"GPU-a": -1}},
        {"gpus": {"GPU-a": 1.5}},
        {"gpus": {"GPU-a": True}},
        {"gpus": {"GPU-a": "1"}},
        {"gpus": {"GPU-a": 1 << 51}},
        {"gpus": {"GPU-a": 10**30}},
        {"gpus": {f"GPU-{i}": 1 for i in range(65)}},
        {"gpus": {"x" * 129: 1}},
        {"ram_bytes": -1},
        {"ram_bytes": "4"},
        {"ram_bytes": GIB},
        {"ram_bytes": None},
        {"peak": 1},
        {"peak": {"gpus": {"GPU-a": 21 * GIB}}},
        {"peak": {"gpus": {"GPU-b": 1}}},
    ],
)
def test_what_cannot_be_is_as_if_absent(path: Path, changes: dict[str, object]) -> None:
    """Another format or configuration, figures no machine has, a peak above its allowance."""
    assert read(path, json.dumps(document(**changes))) is None


@pytest.mark.parametrize(
    "text", ["", " ", "{", "[]", "null", "[" * 60_000, "9" * 60_000, '"\ud800"', "NaN", "{]", "\0"]
)
def test_what_is_no_such_document_is_as_if_absent(path: Path, text: str) -> None:
    """No text makes the reader raise, however it is nested or cut."""
    path.write_bytes(text.encode(errors="surrogatepass"))
    assert needs.read(str(path), FINGERPRINT) is None


@given(st.binary(max_size=200))
def test_no_bytes_make_it_raise(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Whatever stands in the file, the answer is None or an observation."""
    path = tmp_path_factory.getbasetemp() / "needs-fuzz.json"
    path.write_bytes(content)
    assert needs.read(str(path), FINGERPRINT) is None


def test_only_a_small_regular_file_is_read(path: Path, tmp_path: Path) -> None:
    """Links, pipes, folders and large files are not followed, waited for or read."""
    good = json.dumps(document())
    target = tmp_path / "target"
    target.write_text(good)
    path.symlink_to(target)
    assert needs.read(str(path), FINGERPRINT) is None
    path.unlink()
    os.mkfifo(path)
    assert needs.read(str(path), FINGERPRINT) is None
    path.unlink()
    path.mkdir()
    assert needs.read(str(path), FINGERPRINT) is None
    assert needs.read(str(tmp_path / "missing"), FINGERPRINT) is None
    target.write_text(good + " " * (64 << 10))
    assert needs.read(str(target), FINGERPRINT) is None
    target.write_text(good)
    assert needs.read(str(target), "") is None
    assert needs.read(str(target), FINGERPRINT) is not None


def test_reading_imports_no_parser(path: Path) -> None:
    """The gate of a backend without GPUs does not pay for the json module, nor for re."""
    path.write_text(json.dumps(document()))
    code = (
        "import sys; from appliance.launch import needs;"
        f" assert needs.read({str(path)!r}, {FINGERPRINT!r}) is not None;"
        " print(sorted({'json', 're', 'socket', 'subprocess'} & set(sys.modules)))"
    )
    root = Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r}); {code}"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "[]\n"
