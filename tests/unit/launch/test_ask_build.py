"""The program of the units that ask engines, as a real process."""

import subprocess
import sys
from pathlib import Path

from appliance.wire.build_record import decoded
from tests.fakes import scripted_llama_server as scripted
from tests.programs import PATIENCE_S, program


def asked(
    record: Path, engine: Path, *, question: str = "help"
) -> subprocess.CompletedProcess[str]:
    """Run the program with the record as its standard output, as systemd opens it."""
    argv = program("ask_build", "--record", record, "--ask", question, "--", engine)
    with record.open("r+" if record.exists() else "w") as output:
        return subprocess.run(
            argv, check=False, stdout=output, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S
        )


def test_a_record_is_written_once_for_each_program(tmp_path: Path) -> None:
    """A record that is current stays, and one of a longer answer is replaced whole."""
    folder = tmp_path / "bin"
    folder.mkdir()
    engine, record = folder / "llama-server", tmp_path / "record.json"
    engine.write_text(scripted.text_of(scripted.AFTER, sys.executable))
    engine.chmod(0o755)
    done = asked(record, engine)
    assert (done.returncode, "is b11549 (0789abc)" in done.stderr) == (0, True)
    first = record.read_text()
    assert asked(record, engine).returncode == 0
    assert record.read_text() == first
    engine.write_text("#!/bin/sh\n")
    done = asked(record, engine)
    assert (done.returncode, "tells nothing about its build" in done.stderr) == (0, True)
    found = decoded(record.read_text())
    assert found is not None
    assert found.build.problem


def test_a_wrong_command_line_is_told(tmp_path: Path) -> None:
    """A question that nobody asks, and a missing program, end with the status of wrong usage."""
    assert asked(tmp_path / "r", tmp_path, question="magic").returncode == 64
    argv = program("ask_build", "--record", tmp_path / "r", "--ask", "help")
    done = subprocess.run(argv, check=False, capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 64
