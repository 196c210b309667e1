"""Question to an engine's program about its build, and its answer with the stamps of its files."""

from __future__ import annotations

import os
import re
import time

from appliance.launch.program import UsageError
from appliance.model.engine_build import DISTRIBUTION_QUESTION, HELP_QUESTION, EngineBuild
from appliance.system.build_records import is_current, read_record
from appliance.system.files.regular import stamp
from appliance.wire.build_record import BuildRecord

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
        from appliance.launch.build.distribution import Distribution  # noqa: PLC0415

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
    from appliance.launch.build.bounded_output import NoAnswerError, output_of  # noqa: PLC0415
    from appliance.launch.build.help_text import HelpText  # noqa: PLC0415

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
