"""Work that may stay behind: a child of the command, which goes on when the command has ended."""

import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

_TOLD = b"."


def stay_behind(work: Callable[[Callable[[], None]], int]) -> int:
    """Run `work` in a child, and return its status, or 0 as soon as it stays behind.

    Args:
        work: Is given the function that lets this process return, and goes on without a terminal then.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(reading)
        _run_in_child(work, writing)
    os.close(writing)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    # Ctrl-C reaches the child too, which ends in its own time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(reading, "rb") as told:
        if told.read(1) == _TOLD:
            return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_in_child(work: Callable[[Callable[[], None]], int], writing: int) -> None:
    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os.setsid()
        with Path(os.devnull).open("r+b") as null:
            for stream in range(3):
                os.dup2(null.fileno(), stream)
        os.write(writing, _TOLD)
        os.close(writing)

    status = 1
    try:
        status = work(leave)
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except KeyboardInterrupt:
        status = 130
    except Exception:  # noqa: BLE001  # nobody else would show it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(status)
