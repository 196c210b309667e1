"""Lint of a box's profiles: what is read of the box, and how often."""

import shutil
import time
from pathlib import Path

import pytest

from appliance.install.profile_linting import lint_profiles, look_at_gpus, trap_warnings
from appliance.model.engine_build import EngineBuild
from appliance.model.trap_names import TrapName
from appliance.system.build_records import CurrentBuilds
from appliance.system.files.regular import stamp
from appliance.wire.build_record import BuildRecord, encoded
from tests.fakes.trap_samples import spec_of_profile
from tests.pretend.building import NAME, build
from tests.pretend.gpus import GIB, Gpus

PATH = "/etc/appliance/profiles/p.toml"
"""File of the profile that each test lints."""
Q4_0 = ("llama-server", "kv = 'q4_0'")


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpus:
    """Two pretend GPUs of consumer Blackwell, under the real binding."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc to build the pretend driver; the look at GPUs stays unproved")
    library = tmp_path / "lib" / NAME
    library.parent.mkdir()
    shutil.copy(build(), library)
    found = Gpus(tmp_path / "state")
    found.replace({"count": 2, "*.total": 16 * GIB, "*.capability": "12.0"})
    for name, value in found.environment(library).items():
        monkeypatch.setenv(name, value)
    return found


def test_the_boxs_own_gpus_decide(gpus: Gpus, tmp_path: Path) -> None:
    """A trap of Blackwell is told on such cards, and not on others."""
    report = lint_profiles([spec_of_profile(*Q4_0)], CurrentBuilds(str(tmp_path)))
    assert [one.trap.name for one in report.lints[PATH].sprung] == [
        TrapName.Q4_0_CACHE_ON_BLACKWELL
    ]
    assert [gpu.capability_text for gpu in report.look.hardware] == ["12.0", "12.0"]
    gpus.change({"*.capability": "8.9"})
    assert (
        lint_profiles([spec_of_profile(*Q4_0)], CurrentBuilds(str(tmp_path))).lints[PATH].sprung
        == ()
    )


def test_nobody_asks_the_gpus_for_nothing(gpus: Gpus, tmp_path: Path) -> None:
    """A profile that has no trap on any GPU costs no look at them, even while the driver hangs."""
    gpus.hang()
    began_s = time.monotonic()
    report = lint_profiles(
        [spec_of_profile("command"), spec_of_profile("xllamacpp")], CurrentBuilds(str(tmp_path))
    )
    assert time.monotonic() - began_s < 2
    assert (report.look.hardware, report.look.problem) == ((), "")


def test_a_driver_that_hangs_leaves_traps_unchecked(gpus: Gpus, tmp_path: Path) -> None:
    """A lint ends within seconds, and tells which traps it has not checked, and why."""
    gpus.hang()
    began_s = time.monotonic()
    report = lint_profiles([spec_of_profile(*Q4_0)], CurrentBuilds(str(tmp_path)))
    assert time.monotonic() - began_s < 8
    assert report.lints[PATH].unchecked == (TrapName.Q4_0_CACHE_ON_BLACKWELL,)
    assert report.look.problem.startswith("the GPU driver hangs")


def test_a_box_without_gpus_has_a_reason(gpus: Gpus) -> None:
    """A driver that finds no card is no error of its own."""
    gpus.change({"count": 0})
    assert look_at_gpus().problem == "there is no GPU"


def test_the_build_of_an_engine_is_known_from_its_record(tmp_path: Path) -> None:
    """The record beside the unit says which build it is, and its traps go by it."""
    program = tmp_path / "llama-server"
    program.touch()
    spec = spec_of_profile("llama-server", "kv = 'q4_0'", binary=str(program))
    record = BuildRecord(
        program=str(program),
        build=EngineBuild(version="b11549 (1a2b3c4d)"),
        stamps={str(program): stamp(program)},
    )
    (tmp_path / "p.json").write_text(encoded(record))
    report = lint_profiles([spec], CurrentBuilds(str(tmp_path)))
    assert report.lints[PATH].unchecked == ()
    build_found = report.builds[PATH]
    assert build_found is not None
    assert build_found.version == "b11549 (1a2b3c4d)"


def test_a_unit_that_systemd_does_not_have_is_told(tmp_path: Path) -> None:
    """A name in order.after, or in an override, that no unit file has is told; each once."""
    keys = (
        "gpus = []\norder = { after = ['no-such-thing.service'] }\n"
        "unit = { Unit = { After = ['no-such-thing.service', 'srv.mount'] } }"
    )
    if not Path("/usr/lib/systemd/system").is_dir():
        pytest.skip("this machine has no systemd; that such a unit is told stays unproved")
    (warning,) = trap_warnings([spec_of_profile("vllm", keys)], CurrentBuilds(str(tmp_path)))[PATH]
    assert warning.startswith("p: trap missing-unit: ")
    assert "; here no-such-thing.service: " in warning


def test_a_profile_without_traps_has_no_warnings(tmp_path: Path) -> None:
    """Each profile has its entry, also where there is nothing to tell."""
    assert trap_warnings([spec_of_profile("xllamacpp")], CurrentBuilds(str(tmp_path))) == {PATH: ()}


def test_a_box_whose_memory_is_not_known(tmp_path: Path) -> None:
    """Traps of main memory stay silent where the kernel does not tell its size."""
    report = lint_profiles(
        [spec_of_profile("xllamacpp")], CurrentBuilds(str(tmp_path)), root=f"{tmp_path}/"
    )
    assert report.lints[PATH].sprung == ()
