"""Program that asks an engine about its build: ``ExecStart=`` of the unit beside a backend's.

It runs as the engine's user in a sandbox like that of the engine, without GPUs and without network.
Its standard output is the record, a file that systemd opened: the directory is root's. A record that
is current is left alone.
"""

from __future__ import annotations

import os
import sys

from appliance.launch.build.question import ask, stored
from appliance.launch.program import ERROR, EX_USAGE, INFO, WARNING, Options, UsageError, say
from appliance.wire.build_record import encoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

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
