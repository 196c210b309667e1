"""Patch hook: a command that must report every expected patch as applied.

A patch that silently did not apply makes a model slower or wrong without a trace, so a start
without proof is refused (`appliance.model.patch_report`).
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

from appliance.launch.readiness import ProgressSampler
from appliance.model.patch_report import missing
from appliance.system.kernel.processes import control_group
from appliance.wire.sd_notify import extend, notify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_WAKE_S = 1.0
_CHUNK_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 16


def run(command: Sequence[str], expected: Sequence[str], *, no_progress_s: float) -> str:
    """Run the command and pass its output on; returns the problem as a sentence, empty: none."""
    environment = {k: v for k, v in os.environ.items() if k != "NOTIFY_SOCKET"}
    try:
        process = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return f"patch command {command[0]}: {error.strerror}"
    notify("STATUS=applying patches", extend(no_progress_s))
    with process:
        output = _output(process, no_progress_s)
        if output is None:
            os.killpg(process.pid, signal.SIGKILL)
            return f"patch command {command[0]} made no progress for {no_progress_s:.0f} s"
    if process.returncode != 0:
        return f"patch command {command[0]} ended with status {process.returncode}"
    absent = missing(output.decode(errors="replace").splitlines(), expected)
    if absent:
        return f"not reported as applied: {', '.join(absent)}"
    return ""


def _output(process: subprocess.Popen[bytes], no_progress_s: float) -> bytes | None:
    """Return everything that the command writes, which is also passed on; None: no progress."""
    assert process.stdout is not None  # noqa: S101
    source = process.stdout.fileno()
    progress = ProgressSampler(control_group("self"), without=os.getpid())
    poll = select.poll()
    poll.register(source, select.POLLIN)
    moved_s = sampled_s = time.monotonic()
    kept = bytearray()
    while True:
        if poll.poll(_WAKE_S * 1000):
            chunk = os.read(source, _CHUNK_BYTES)
            if not chunk:
                return bytes(kept)
            kept += chunk
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            moved_s = time.monotonic()
        now_s = time.monotonic()
        if now_s - sampled_s >= _WAKE_S:
            sampled_s = now_s
            if progress.sample():
                moved_s = now_s
            if now_s - moved_s < _WAKE_S:
                notify(extend(no_progress_s))
        if now_s - moved_s >= no_progress_s:
            return None
