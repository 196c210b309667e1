"""Start scripts that install.sh writes: what they name, how they isolate, what they import."""

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from appliance.model.paths import BACKEND_SCRIPT, GATE_SCRIPT
from appliance.switch.memory.peak import ObservedPeak, encoded
from tests.programs import ROOT, free_port, run
from tests.system.rig.host import mark_owned

WRITE = 'source "$1"; write_start_scripts "$2"'


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release whose packages are those of this checkout."""
    prefix = tmp_path_factory.mktemp("release")
    venv.create(prefix, symlinks=True)
    (packages,) = prefix.glob("lib/python3*/site-packages")
    (packages / "appliance").symlink_to(ROOT / "appliance")
    argv = ["bash", "-c", WRITE, "bash", str(ROOT / "scripts" / "install.sh"), str(prefix)]
    subprocess.run(argv, check=True)
    return prefix


def arguments(script: str, root: Path) -> list[str]:
    """Return what a unit passes to gate or wrapper; the folders are below `root`."""
    common = ["--name", "a", "--lease", "cpu:exclusive", "--lease-dir", str(root / "leases")]
    if script == BACKEND_SCRIPT:
        return [
            *common,
            "--port",
            str(free_port()),
            "--no-progress-s",
            "60",
            "--",
            "/bin/echo",
            "x",
        ]
    need = ["--rival", "b", "--ram-bytes", "4096", "--gate-dir", str(root)]
    return [*common, *need, "--observed", str(root / "a.json"), "--fingerprint", "f"]


def test_what_units_start_is_what_install_writes(prefix: Path) -> None:
    """The command, gate and wrapper are root's alone to write, and run `python -IS`."""
    scripts = {f"bin/{p.name}": p for p in (prefix / "bin").glob("appliance*")}
    assert set(scripts) == {"bin/appliance", GATE_SCRIPT, BACKEND_SCRIPT}
    for script in scripts.values():
        assert script.read_text().splitlines()[0] == f"#!{prefix}/bin/python -IS"
        assert script.stat().st_mode & 0o777 == 0o755


def test_environment_and_directory_choose_no_import(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gate and wrapper start beside a directory of modules that would end them."""
    for name in ("appliance", "gc", "os", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)\n")
    monkeypatch.chdir(tmp_path)
    strange = {"PYTHONPATH": str(tmp_path), "PYTHONHOME": str(tmp_path)}
    for script, written in ((GATE_SCRIPT, ""), (BACKEND_SCRIPT, "x\n")):
        argv = [str(prefix / script), *arguments(script, tmp_path)]
        done = run(argv, environment=strange)
        assert (done.returncode, done.stdout, done.stderr) == (0, written, "")


OURS = {
    *("", "system", "system.files", "system.files.regular", "system.kernel"),
    *("system.kernel.processes", "system.kernel.text_files", "model", "model.names"),
    *("model.paths", "launch", "launch.leases"),
    *("launch.obstacles", "launch.port", "launch.release"),
    *("model.json_reader", "model.plain_text", "launch.gate", "launch.program"),
    *("switch", "switch.memory", "switch.memory.fit", "switch.memory.peak"),
    *("switch.memory.requirement", "wire", "wire.gate_verdict"),
}
STANDARD = {
    *(
        "__future__",
        "_collections_abc",
        "_json",
        "_socket",
        "_stat",
        "errno",
        "fcntl",
        "gc",
        "genericpath",
    ),
    *("grp", "os", "posixpath", "stat"),
}
"""Modules of the standard library, beside those of an interpreter that does nothing."""


def imported(prefix: Path, *words: str) -> set[str]:
    """Modules that an isolated interpreter imports for `words`."""
    argv = [str(prefix / "bin" / "python"), "-IS", "-X", "importtime", *words]
    done = run(argv)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    return {x.rpartition("|")[2].strip() for x in lines if x.startswith("import time:")}


def test_a_gate_that_admits_imports_no_more_than_it_needs(prefix: Path, tmp_path: Path) -> None:
    """Each module costs every start of a model some 0.1 ms."""
    (tmp_path / "a.json").write_text(encoded(ObservedPeak(fingerprint="f", ram_bytes=4096)))
    gate = [str(prefix / GATE_SCRIPT), *arguments(GATE_SCRIPT, tmp_path)]
    found = imported(prefix, *gate) - imported(prefix, "-c", "pass") - {"imported package"}
    ours = {name for name in found if name.partition(".")[0] == "appliance"}
    assert {name.removeprefix("appliance").removeprefix(".") for name in ours} == OURS
    assert found - ours <= STANDARD


def test_the_collector_runs_in_gate_and_wrapper() -> None:
    """The garbage collector, which the start script turns off, is on once the imports are done."""
    program = (
        f"import gc, sys; gc.disable(); sys.path.append({str(ROOT)!r}); "
        "from appliance.launch.program import run_program; "
        "run_program(lambda words: 7 if gc.isenabled() and words == ['a'] else 1)"
    )
    assert run([sys.executable, "-IS", "-c", program, "a"]).returncode == 7


def test_a_second_demo_is_refused_while_one_runs(tmp_path: Path) -> None:
    """With the process that the first one is of, and before anything is fetched or touched."""
    box = tmp_path / "demo"
    box.mkdir()
    mark_owned(box)
    demo = subprocess.run(
        ["/usr/bin/python3", "-B", "-m", "scripts.demo"],
        cwd=ROOT,
        env={"APPLIANCE_RIG_DIR": str(tmp_path), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (demo.returncode, demo.stdout) == (75, "")
    assert (
        f"demo.sh: {box} belongs to process {os.getpid()}: kill {os.getpid()} ends it"
        in demo.stderr
    )
    assert "Traceback" not in demo.stderr
    assert (box / "owner").exists()
