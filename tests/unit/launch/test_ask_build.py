"""The program of the units that ask engines, as a real process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from appliance.launch.ask_build import MAX_BYTES, NoAnswerError, ask, output_of, stored, version_in
from appliance.launch.program import UsageError
from appliance.model.engine_build import HELP_QUESTION, EngineBuild, distribution_question
from appliance.wire.build_record import BuildRecord, decoded, encoded
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


SOON_S = 0.3


def printed_by(code: str, *, within_s: float = PATIENCE_S) -> str:
    argv = (sys.executable, "-S", "-c", code, "--help")
    return output_of(argv, deadline_s=time.monotonic() + within_s)


def test_both_streams_are_read() -> None:
    """llama.cpp prints its help on one stream and its version on the other."""
    text = printed_by("import sys; print('a', flush=True); print('b', file=sys.stderr)")
    assert text == "a\nb\n"


def test_bytes_that_are_no_text_are_read() -> None:
    """Bytes that are not UTF-8 are replaced."""
    assert printed_by("import os; os.write(1, b'\\xff-c\\n')") == "�-c\n"


@pytest.mark.parametrize(
    ("code", "reason", "within_s"),
    [
        ("raise SystemExit(3)", "--help ended with status 3", PATIENCE_S),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "more than 1 MiB", PATIENCE_S),
        ("import time; time.sleep(600)", "did not answer in time", SOON_S),
        ("import os, time; os.close(1); os.close(2); time.sleep(600)", "in time", SOON_S),
        ("import os, time; os.fork() or time.sleep(600)", "in time", SOON_S),
    ],
    ids=["status", "endless", "silent", "closed", "child"],
)
def test_a_program_that_does_not_answer_is_ended(code: str, reason: str, within_s: float) -> None:
    """Each of them ends within bounds, with a reason."""
    with pytest.raises(NoAnswerError, match=reason):
        printed_by(code, within_s=within_s)


def test_nothing_of_the_program_stays(tmp_path: Path) -> None:
    """Children of the program are killed with it."""
    note = tmp_path / "pid"
    code = (
        "import os, time, pathlib\n"
        "if os.fork() == 0:\n"
        f"    pathlib.Path({str(note)!r}).write_text(str(os.getpid()))\n"
        "    os.write(1, b'x'); time.sleep(600)\n"
        "os.wait()"
    )
    with pytest.raises(NoAnswerError):
        printed_by(code, within_s=2.0)
    status = Path(f"/proc/{note.read_text()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_a_missing_program_is_told() -> None:
    """A program that cannot be run gives a reason."""
    with pytest.raises(NoAnswerError, match="cannot be run: No such file"):
        output_of(("/missing", "--help"), deadline_s=time.monotonic() + PATIENCE_S)


def test_the_program_cannot_report_itself_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket of the service manager is not among its variables."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    assert printed_by("import os; print(os.environ.get('NOTIFY_SOCKET'))") == "None\n"
    assert os.environ["NOTIFY_SOCKET"] == "/run/x"


def test_an_answer_may_be_as_large_as_the_bound() -> None:
    """A mebibyte is an answer."""
    code = f"import os\nfor _ in range({MAX_BYTES >> 16}): os.write(1, b'x' * 65536)"
    assert len(printed_by(code)) == MAX_BYTES


VLLM = distribution_question("vllm", "vllm/engine/arg_utils.py")


def installed(path: Path, build: tuple[str, list[list[str]]] = scripted.AFTER) -> Path:
    path.write_text(scripted.text_of(build, sys.executable))
    path.chmod(0o755)
    return path


def answer(program: Path | str, question: str = HELP_QUESTION) -> BuildRecord:
    return ask(question, str(program), timeout_s=PATIENCE_S)


def kept(record: BuildRecord, path: Path) -> str:
    path.write_text(encoded(record))
    return str(path)


@pytest.mark.parametrize(
    ("build", "version", "mlock", "load_mode", "mtp"),
    [
        (scripted.BEFORE, "b8900 (0123abc)", True, False, False),
        (scripted.BETWEEN, "b10000 (0456def)", True, False, True),
        (scripted.AFTER, "b11549 (0789abc)", False, True, True),
    ],
)
def test_three_builds_tell_what_they_have(
    tmp_path: Path,
    build: tuple[str, list[list[str]]],
    version: str,
    *,
    mlock: bool,
    load_mode: bool,
    mtp: bool,
) -> None:
    """The builds before, between and after the changes of 2026 tell version and options."""
    found = answer(installed(tmp_path / "llama-server", build)).build
    assert (found.version, found.problem, found.is_complete) == (version, "", True)
    assert found.has("--mlock") is mlock
    assert found.has("--load-mode") is load_mode
    assert found.has("--spec-type", "draft-mtp") is mtp
    assert abs(found.asked_unix_s - time.time()) < PATIENCE_S


def test_an_answer_stands_until_the_program_is_replaced(tmp_path: Path) -> None:
    """A new file, another program and a new file beside it all call for a new question."""
    program = installed(tmp_path / "bin")
    path = kept(answer(program), tmp_path.parent / f"{tmp_path.name}.json")
    assert stored(path, str(program)) is not None
    assert stored(path, "/opt/other") is None
    (tmp_path / "libllama.so").touch()
    assert stored(path, str(program)) is None
    path = kept(answer(program), Path(path))
    assert stored(path, str(program)) is not None
    os.utime(program, (1, 1))
    assert stored(path, str(program)) is None


def test_a_link_that_is_turned_calls_for_a_new_question(tmp_path: Path) -> None:
    """The target of a link counts, as for a link to the current build."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        installed(tmp_path / name / "llama-server")
    current = tmp_path / "current"
    current.symlink_to("old")
    program = str(current / "llama-server")
    path = kept(answer(program), tmp_path / "record.json")
    assert stored(path, program) is not None
    current.unlink()
    current.symlink_to("new")
    (tmp_path / "old/llama-server").unlink()
    assert stored(path, program) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("#!/bin/sh\nexit 4\n", "--help ended with status 4"),
        ("#!/bin/sh\necho hello\n", "its help does not list --model and --port"),
        ("no program\n", "it cannot be run: Exec format error"),
    ],
)
def test_a_program_that_tells_nothing_has_a_problem(
    tmp_path: Path, text: str, problem: str
) -> None:
    """The reason stands in the record, and is asked again after an hour."""
    program = tmp_path / "llama-server"
    program.write_text(text)
    program.chmod(0o755)
    record = answer(program)
    assert record.build.problem == problem
    path = kept(record, tmp_path.parent / f"{tmp_path.name}.json")
    assert stored(path, str(program)) is not None
    for moment in (time.time() - 4000, time.time() + 4000):
        old = EngineBuild(problem=problem, asked_unix_s=moment)
        again = BuildRecord(program=str(program), build=old, stamps=record.stamps)
        assert stored(kept(again, Path(path)), str(program)) is None


def test_a_version_may_be_missing(tmp_path: Path) -> None:
    """Options count without a version."""
    program = tmp_path / "llama-server"
    help_text = scripted.help_of(scripted.AFTER[1])
    program.write_text(f"#!/bin/sh\n[ $1 = --help ] || exit 1\ncat <<'E'\n{help_text}E\n")
    program.chmod(0o755)
    build = answer(program).build
    assert (build.version, build.problem) == ("", "")
    assert build.has("--port")


def test_a_program_that_replaces_itself_is_not_believed(tmp_path: Path) -> None:
    """The stamps from before and after the question must be one."""
    program = tmp_path / "llama-server"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/other; echo x\n")
    program.chmod(0o755)
    record = answer(program)
    assert record.build.problem == "it was replaced meanwhile"
    assert stored(kept(record, tmp_path / "r.json"), str(program)) is None


def test_a_package_is_asked_without_running_it(tmp_path: Path) -> None:
    """The question to a package reads its files, and the stamps are theirs."""
    packages = tmp_path / "lib/python3.12/site-packages"
    (packages / "vllm-0.33.0.dist-info").mkdir(parents=True)
    program = tmp_path / "bin/vllm"
    program.parent.mkdir()
    program.write_text(f"#!{tmp_path}/bin/python\nraise SystemExit(1)\n")
    record = answer(program, VLLM)
    assert record.build.version == "0.33.0"
    path = kept(record, tmp_path / "record.json")
    assert stored(path, str(program)) is not None
    (packages / "vllm-0.33.0.dist-info").rename(packages / "vllm-0.34.0.dist-info")
    assert stored(path, str(program)) is None


@pytest.mark.parametrize("question", ["", "help:x", "distribution", "magic"])
def test_another_question_is_an_error(question: str) -> None:
    """A question that nobody asks is a fault of the unit."""
    with pytest.raises(UsageError, match="no such question"):
        ask(question, "/bin/true")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("version: 9596 (18ef86ece)\nbuilt with GCC", "b9596 (18ef86ece)"),
        ("version: 0.1.0-dev (build 11434, commit 18ef86ece)\nbuilt with", "b11434 (18ef86ece)"),
        ("version: 0.6.0 (build 11434, commit unknown)", "b11434"),
        ("version: 0.1.0 (build unknown)", "0.1.0"),
        ("llama-server version 1.2.3", "1.2.3"),
        ("ggml: found 2 devices\nversion: 1 (abcdef0)", "b1 (abcdef0)"),
        ("nothing", ""),
        ("version: " + "9" * 100_000, "9" * 64),
    ],
)
def test_a_version_is_read_as_the_engine_calls_it(text: str, version: str) -> None:
    """A build of llama.cpp is called by its number with a b, and its commit."""
    assert version_in(text) == version
