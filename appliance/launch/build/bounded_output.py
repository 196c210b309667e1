"""Output of a program that may print nothing, garbage or without end, within bounds of size and time."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16


class NoAnswerError(Exception):
    """Program that did not answer as asked; `str()` is a phrase."""


def output_of(argv: Sequence[str], *, deadline_s: float) -> str:
    """Run a program and return what it printed, on both of its streams.

    The program and all of its group are killed when the answer is there or will not come.

    Args:
        argv: Program by path, and arguments.
        deadline_s: Of `time.monotonic`.

    Raises:
        NoAnswerError: it cannot be run, failed, printed more than `MAX_BYTES` or took too long.
    """
    # An engine that speaks systemd's protocol must not report itself ready.
    environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
    try:
        process = subprocess.Popen(  # noqa: S603
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise NoAnswerError(f"it cannot be run: {error.strerror}") from error
    try:
        output = _read(process, deadline_s)
    finally:
        _kill(process)
    if process.returncode != 0:
        raise NoAnswerError(f"{argv[-1]} ended with status {process.returncode}")
    return output.decode(errors="replace")


def _read(process: subprocess.Popen[bytes], deadline_s: float) -> bytes:
    pipe = process.stdout
    if pipe is None:  # asked for above
        raise NoAnswerError("it has no output")
    output = bytearray()
    while (left_s := deadline_s - time.monotonic()) > 0:
        if not select.select([pipe], [], [], left_s)[0]:
            break
        chunk = os.read(pipe.fileno(), _CHUNK_BYTES)
        if not chunk:
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                break
            return bytes(output)
        output += chunk
        if len(output) > MAX_BYTES:
            raise NoAnswerError(f"it printed more than {MAX_BYTES >> 20} MiB")
    raise NoAnswerError("it did not answer in time")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
