"""The files of peaks: what is written, what is believed, and a disk that takes nothing."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from appliance.switch.memory.peak import ObservedPeak
from appliance.system.launch_files import read_peak
from appliance.system.peaks import FilePeaks
from appliance.system.ports import Peaks
from tests.fakes.ports import FakePeaks

GIB = 1 << 30
PEAK = ObservedPeak(
    fingerprint="f" * 64,
    gpus={"GPU-1": 18 * GIB, "GPU-2": 0},
    ram_bytes=2 * GIB,
    seen_unix_s=1_700_000_000.5,
)


@pytest.fixture(params=["fake", "files"])
def peaks(request: pytest.FixtureRequest, tmp_path: Path) -> Peaks:
    return FakePeaks() if request.param == "fake" else FilePeaks(tmp_path)


async def test_what_is_recorded_is_read(peaks: Peaks) -> None:
    """A peak comes back as it was, a later one replaces it, another profile has none."""
    assert peaks.peak("genesis") is None
    assert await peaks.record("genesis", ObservedPeak(fingerprint="other"))
    assert await peaks.record("genesis", PEAK)
    assert peaks.peak("genesis") == PEAK
    assert peaks.peak("aeon") is None
    assert peaks.peaks(["genesis", "aeon"]) == {"genesis": PEAK}
    assert peaks.peaks([]) == {}


async def test_peaks_of_removed_profiles_go(peaks: Peaks) -> None:
    """Peaks of the given profiles stay, and an empty directory is fine."""
    await peaks.forget_all_but(["genesis"])
    for name in ("genesis", "aeon", "mini"):
        assert await peaks.record(name, PEAK)
    await peaks.forget_all_but(["genesis", "new"])
    found = [peaks.peak(name) for name in ("genesis", "aeon", "mini")]
    assert found == [PEAK, None, None]


async def test_what_cannot_be_removed_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A directory in a peak's place stays, and keeps no other peak from being removed."""
    (tmp_path / "needs" / "a.json").mkdir(parents=True)
    (tmp_path / "needs" / "b.json").touch()
    await FilePeaks(tmp_path).forget_all_but([])
    assert [path.name for path in (tmp_path / "needs").iterdir()] == ["a.json"]
    assert "cannot remove the peak of a removed profile" in caplog.text


async def test_the_gate_finds_what_it_compares(tmp_path: Path) -> None:
    """The file has what was seen, and who may read it."""
    await FilePeaks(tmp_path).record("genesis", PEAK)
    file = tmp_path / "needs" / "genesis.json"
    assert json.loads(file.read_text()) == {
        "format": 1,
        "fingerprint": "f" * 64,
        "seen_unix_s": 1_700_000_000.5,
        "peak": {"gpus": {"GPU-1": 18 * GIB, "GPU-2": 0}, "ram_bytes": 2 * GIB},
    }
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o644, 0o755)


async def test_a_peak_without_main_memory(tmp_path: Path) -> None:
    """Unknown main memory stays unknown."""
    await FilePeaks(tmp_path).record("genesis", ObservedPeak(fingerprint="f", gpus={"GPU-1": 1}))
    seen = FilePeaks(tmp_path).peak("genesis")
    assert seen is not None
    assert seen.ram_bytes is None


def document(**more: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "fingerprint": "f",
        "seen_unix_s": 1.0,
        "peak": {"gpus": {"GPU-1": 1}, "ram_bytes": 1},
        **more,
    }


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """Neither a link nor a pipe nor a directory leads anywhere or blocks."""
    (tmp_path / "real.json").write_text(json.dumps(document()))
    (tmp_path / "link.json").symlink_to("real.json")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "folder.json").mkdir()
    names = ["real", "link", "pipe", "folder", "../real", "absent"]
    assert [name for name in names if read_peak(tmp_path, name)] == ["real"]


async def test_a_disk_that_takes_nothing_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing write says so to its caller each time, to the journal once, also at its end."""
    caplog.set_level(logging.INFO)
    (tmp_path / "needs").touch()
    peaks = FilePeaks(tmp_path)
    assert [await peaks.record("a", PEAK), await peaks.record("a", PEAK)] == [False, False]
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    (tmp_path / "needs").unlink()
    assert await peaks.record("a", PEAK)
    assert await peaks.record("a", PEAK)
    assert [r.levelname for r in caplog.records] == ["WARNING", "INFO"]
