"""Second run of files with failures: a test that fails twice has failed."""

import subprocess
import sys
from pathlib import Path

import pytest

RERUN = Path(__file__).parents[1] / "rerun.py"
STEADY = "def test_steady():\n    pass\n"
BROKEN = "def test_broken():\n    raise AssertionError\n"
ONCE = """
from pathlib import Path


def test_once():
    seen = Path(__file__).with_suffix(".seen")
    is_second = seen.exists()
    seen.touch()
    assert is_second
"""


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a directory as `make test` does."""
    command = [sys.executable, "-m", "pytest", "-q"]
    return subprocess.run(
        [sys.executable, str(RERUN), *command, "--", ".", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )


def write(directory: Path, *texts: str) -> None:
    """Write a file of tests for each text."""
    (directory / "pytest.ini").write_text("[pytest]\n")
    for number, text in enumerate(texts):
        (directory / f"test_{number}.py").write_text(text)


def test_tests_that_pass_run_once(tmp_path: Path) -> None:
    """A run without failures has no second one."""
    write(tmp_path, STEADY)
    done = run(tmp_path)
    assert (done.returncode, done.stdout.count("1 passed")) == (0, 1)
    assert "again" not in done.stdout


def test_a_test_that_passes_alone_is_named(tmp_path: Path) -> None:
    """The file of the failure runs again, no other."""
    write(tmp_path, STEADY, ONCE)
    done = run(tmp_path)
    assert done.returncode == 0
    assert "1 failed, 1 passed" in done.stdout
    assert "1 passed in" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("test_1.py::test_once")


def test_a_test_that_fails_twice_has_failed(tmp_path: Path) -> None:
    """Also beside one that fails once."""
    write(tmp_path, ONCE, BROKEN)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "passed when run again" not in done.stdout


def test_failures_in_many_files_count_at_once(tmp_path: Path) -> None:
    """A machine that stands still fails few; a change that breaks things fails many."""
    write(tmp_path, *[ONCE] * 5)
    done = run(tmp_path)
    assert (done.returncode, done.stdout.count("5 failed")) == (1, 1)
    assert "again" not in done.stdout


@pytest.mark.parametrize(
    ("text", "arguments", "status"),
    [("import nothing_of_this_name\n", [], 2), (STEADY, ["--nosuch"], 4), ("", [], 5)],
    ids=["cannot be collected", "usage", "no test"],
)
def test_other_ends_of_pytest_count_at_once(
    tmp_path: Path, text: str, arguments: list[str], status: int
) -> None:
    """A file that cannot be imported, a wrong option and a run without tests have no second run."""
    write(tmp_path, text)
    assert run(tmp_path, *arguments).returncode == status


def test_failures_without_a_note_count(tmp_path: Path) -> None:
    """A pytest that keeps no notes has nothing run again, and passes nothing."""
    write(tmp_path, BROKEN)
    assert run(tmp_path, "-p", "no:cacheprovider").returncode == 1
