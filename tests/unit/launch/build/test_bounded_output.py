"""Programs that answer, and those that print garbage, too much, without end, or nothing."""

import os
import sys
import time
from pathlib import Path

import pytest

from appliance.launch.build.bounded_output import MAX_BYTES, NoAnswerError, output_of
from tests.programs import PATIENCE_S

SOON_S = 0.3


def asked(code: str, *, within_s: float = PATIENCE_S) -> str:
    argv = (sys.executable, "-S", "-c", code, "--help")
    return output_of(argv, deadline_s=time.monotonic() + within_s)


def test_both_streams_are_read() -> None:
    """llama.cpp prints its help on one stream and its version on the other."""
    text = asked("import sys; print('a', flush=True); print('b', file=sys.stderr)")
    assert text == "a\nb\n"


def test_bytes_that_are_no_text_are_read() -> None:
    """Bytes that are not UTF-8 are replaced."""
    assert asked("import os; os.write(1, b'\\xff-c\\n')") == "�-c\n"


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
        asked(code, within_s=within_s)


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
        asked(code, within_s=2.0)
    status = Path(f"/proc/{note.read_text()}/status")
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_a_missing_program_is_told() -> None:
    """A program that cannot be run gives a reason."""
    with pytest.raises(NoAnswerError, match="cannot be run: No such file"):
        output_of(("/missing", "--help"), deadline_s=time.monotonic() + PATIENCE_S)


def test_the_program_cannot_report_itself_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """The socket of the service manager is not among its variables."""
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    assert asked("import os; print(os.environ.get('NOTIFY_SOCKET'))") == "None\n"
    assert os.environ["NOTIFY_SOCKET"] == "/run/x"


def test_an_answer_may_be_as_large_as_the_bound() -> None:
    """A mebibyte is an answer."""
    code = f"import os\nfor _ in range({MAX_BYTES >> 16}): os.write(1, b'x' * 65536)"
    assert len(asked(code)) == MAX_BYTES
