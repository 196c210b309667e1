"""The relay holds what it must, for the seeds and some thousand inputs of chance; `make fuzz` has more."""

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.answers import NonsenseError, Told, read_answers
from tests.fuzz.inputs import read, seeds
from tests.fuzz.targets import Stage

RUNS = 6000
"""Number of inputs, the seeds among them: some 6 s of CPU time."""
ROOT = Path(__file__).parents[2]


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A world to play in."""
    found = Stage()
    yield found
    found.close()


def test_every_seed_holds(stage: Stage) -> None:
    """The whole corpus, at once and in pieces, leaves nothing behind and nobody out of step."""
    names = []
    for name, data in seeds():
        stage.play(read(data))
        names.append(name)
    assert len(names) == len(set(names)) >= 1000


@pytest.mark.slow
def test_chance_breaks_nothing(tmp_path: Path) -> None:
    """Thousands of inputs that fuzzing made violate no invariant, in bounded memory."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no wheel for this Python: only the seeds are proved")
    command = [sys.executable, "-m", "tests.fuzz", "--workers", "1", "--runs", str(RUNS)]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (count,) = re.findall(r"stat::number_of_executed_units: (\d+)", done.stderr)
    assert int(count) >= RUNS > 2 * len(list(seeds()))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", [(200, b"hi", True)]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", [(200, b"hi", False)]),
        (b"HTTP/1.1 100 \r\n\r\nHTTP/1.1 204 \r\n\r\n", [(204, b"", True)]),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            [(200, b"hi", True)],
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
            [(200, b"hi", False)],
        ),
    ],
)
def test_answers_are_read_to_their_end(raw: bytes, told: list[tuple[int, bytes, bool]]) -> None:
    """The reader that judges the gateway knows a half answer from a whole one."""
    found: list[Told] = read_answers(raw)
    assert [(one.status, one.body, one.whole) for one in found] == told


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX",
        b"HTTP/1.1 200 OK\r\nX\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nhi",
    ],
)
def test_nonsense_is_no_answer(raw: bytes) -> None:
    """The reader that judges the gateway takes nothing that two clients could read in two ways."""
    with pytest.raises(NonsenseError):
        read_answers(raw)
