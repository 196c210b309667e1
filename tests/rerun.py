"""Run pytest; run files with failures once more, by themselves: `python -m tests.rerun COMMAND -- ARGUMENT...`.

Tests on real clocks, beside three others on two cores, meet moments in which the machine stands still. One
that fails twice, the second time alone, has failed; one that passes then is named at the end. Failures in
more than a few files, and every other end of pytest than "tests failed", count at once.

The command must end in what runs pytest, as in ``coverage run --append -m pytest``; the arguments select
tests, and stand for files in the second run.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOST_FILES: Final = 4
TESTS_FAILED: Final = 1
"""Exit status of pytest when tests ran and some of them failed."""


def main(command: Sequence[str], arguments: Sequence[str]) -> int:
    """Run both; returns the exit status of the last run.

    Args:
        command: Runs pytest.
        arguments: For the first run only.
    """
    with tempfile.TemporaryDirectory() as cache:
        pytest = [*command, "-o", f"cache_dir={cache}"]
        status = _run([*pytest, *arguments])
        if status != TESTS_FAILED:
            return status
        failed = _failed(Path(cache))
        files = sorted({test.partition("::")[0] for test in failed})
        if not 0 < len(files) <= MOST_FILES:
            return status
        _say(f"{len(failed)} failed: {', '.join(files)} again, alone")
        status = _run([*pytest, *files])
    if status == 0:
        _say(f"passed when run again, alone: {', '.join(failed)}")
    return status


def _run(command: Sequence[str]) -> int:
    return subprocess.run(command, check=False).returncode


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - in the log of the run, between those of pytest


def _failed(cache: Path) -> Sequence[str]:
    """Return the tests that the last run of pytest noted as failed; none where it noted nothing."""
    try:
        return sorted(json.loads((cache / "v/cache/lastfailed").read_bytes()))
    except OSError:
        return []


if __name__ == "__main__":
    at = sys.argv.index("--")
    raise SystemExit(main(sys.argv[1:at], sys.argv[at + 1 :]))
