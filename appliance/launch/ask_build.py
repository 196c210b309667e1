"""Program that asks an engine about its build: ``ExecStart=`` of the unit beside a backend's.

It runs as the engine's user in a sandbox like that of the engine, without GPUs and without network.
Its standard output is the record, a file that systemd opened: the directory is root's. A record that
is current is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time

from appliance.launch.program import ERROR, EX_USAGE, INFO, WARNING, Options, UsageError, say
from appliance.model.engine_build import DISTRIBUTION_QUESTION, HELP_QUESTION, EngineBuild
from appliance.system.build_records import is_current, read_record
from appliance.system.files.regular import stamp
from appliance.wire.build_record import BuildRecord, encoded

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


_TIMEOUT_S = 20.0
_ASK_AGAIN_S = 3600.0
"""Seconds after which a program that gave no answer is asked again, though it has not changed."""
_CORE = ("--model", "--port")
"""Options without which a text is not the help of an engine."""
_VERSION = re.compile(
    r"\bversion:? +(\S{1,64})(?: \((?:build (\d{1,9}), commit )?([0-9a-f]{6,40}|unknown)\))?",
    re.ASCII,
)


def stored(path: str, program: str) -> BuildRecord | None:
    """Return the record of `program` at `path`; None: the program is to be asked, again or for the first time."""
    record = read_record(path)
    if record is None or not is_current(record, program) or _is_due(record.build):
        return None
    return record


def ask(question: str, program: str, *, timeout_s: float = _TIMEOUT_S) -> BuildRecord:
    """Ask a program; one that does not answer gives a build with a problem.

    Raises:
        UsageError: there is no such question.
    """
    kind, *parts = question.split(":")
    now_unix_s = time.time()
    if kind == HELP_QUESTION and not parts:
        target = os.path.realpath(program)
        # A build beside its libraries changes in the directory, whatever file is replaced.
        files: tuple[str, ...] = (target, os.path.dirname(target))
        before = {path: stamp(path) for path in files}
        build = _from_help(program, now_unix_s, deadline_s=time.monotonic() + timeout_s)
    elif kind == DISTRIBUTION_QUESTION and parts:
        from appliance.launch.build_options import Distribution  # noqa: PLC0415

        distribution = Distribution(program, parts[0], parts[1:])
        files = (program, *distribution.files)
        before = {path: stamp(path) for path in files}
        build = distribution.build(now_unix_s)
    else:
        raise UsageError(f"no such question: {question}")
    if {path: stamp(path) for path in files} != before:
        build = EngineBuild(problem="it was replaced meanwhile", asked_unix_s=now_unix_s)
        before = {}
    return BuildRecord(program=program, build=build, stamps=before)


def _is_due(build: EngineBuild) -> bool:
    return bool(build.problem) and not 0 <= time.time() - build.asked_unix_s < _ASK_AGAIN_S


def _from_help(program: str, now_unix_s: float, *, deadline_s: float) -> EngineBuild:
    from appliance.launch.ask_build import NoAnswerError, output_of  # noqa: PLC0415
    from appliance.launch.build_options import HelpText  # noqa: PLC0415

    try:
        listed = HelpText(output_of((program, "--help"), deadline_s=deadline_s))
    except NoAnswerError as error:
        return EngineBuild(problem=str(error), asked_unix_s=now_unix_s)
    if any(option not in listed.options for option in _CORE):
        problem = f"its help does not list {' and '.join(_CORE)}"
        return EngineBuild(problem=problem, asked_unix_s=now_unix_s)
    try:
        version = version_in(output_of((program, "--version"), deadline_s=deadline_s))
    except NoAnswerError:
        version = ""
    return EngineBuild(
        version=version,
        options=listed.options,
        removed=listed.removed,
        asked_unix_s=now_unix_s,
    )


def version_in(text: str) -> str:
    """Return the version in what ``--version`` prints; empty: none.

    llama.cpp prints ``version: 9596 (18ef86ece)``, or since summer 2026 ``version: 0.1.0 (build 11434, commit
    18ef86ece)``, and calls such a build b9596. Who builds it without its history gets build 0 or 1.
    """
    match = _VERSION.search(text)
    if match is None:
        return ""
    number, counted, commit = match.groups()
    build = f"b{counted or number}" if counted or (commit and number.isdigit()) else number
    return f"{build} ({commit})" if commit and commit != "unknown" else build


_FLAGS = ("record", "ask")
_OUTPUT = 1


def main(argv: Sequence[str]) -> int:
    """Ask the program after ``--``, unless its record is current."""
    try:
        options = Options(argv, _FLAGS)
        path, question = options.text("record"), options.text("ask")
        program = _program(options)
        if stored(path, program) is not None:
            return 0
        record = ask(question, program)
    except UsageError as error:
        say(ERROR, f"ask_build: {error}")
        return EX_USAGE
    if record.build.problem:
        say(WARNING, f"{program} tells nothing about its build: {record.build.problem}")
    else:
        say(INFO, f"{program} is {record.build.version or 'of an unknown version'}")
    _replace(encoded(record).encode())
    return 0


def _program(options: Options) -> str:
    if len(options.rest) != 1:
        raise UsageError("no program after --")
    return options.rest[0]


def _replace(content: bytes) -> None:
    """Write standard output anew; a reader meanwhile finds no whole record."""
    os.ftruncate(_OUTPUT, 0)
    while content:
        content = content[os.write(_OUTPUT, content) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
