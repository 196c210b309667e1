"""Command `appliance`: parse, run one verb, and make an exit status of every ending."""

from __future__ import annotations

import gc
import os
import sys

from appliance.cli.arguments import Arguments, read_usual
from appliance.cli.failures import status_of
from appliance.cli.terminal import Streams, standard_streams
from appliance.model.errors import ApplianceError
from appliance.wire.control import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Final, NoReturn

    Run = Callable[[Arguments, Streams], int]

_NO_WORDS: Final = ("status",)
"""Words in place of a command line that has none."""
_CLOSED_PIPE: Final = 141
"""Status 128 + SIGPIPE, which a shell reports for any program whose reader has closed the pipe."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    if "_ARGCOMPLETE" in os.environ:
        _complete()
    words = (sys.argv[1:] if argv is None else argv) or _NO_WORDS
    arguments = read_usual(words) or _parsed(words)
    streams = standard_streams()
    try:
        verb = _verb(arguments.runs)
        _collect_garbage()
        status = verb(arguments, streams)
        streams.out.stream.flush()
    except ApplianceError as error:
        return _failed(error, arguments, streams)
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    except KeyboardInterrupt:
        return int(Exit.DETACHED)
    return status


def _parsed(words: Sequence[str]) -> Arguments:
    from appliance.cli.argument_parser import build_parser  # noqa: PLC0415 - 2 ms that few command lines need

    return build_parser(words).parse_args(words, Arguments())


def _verb(runs: str) -> Run:
    module, _, function = runs.partition(":")
    # Called directly: importlib takes 0.4 ms to import.
    run: Run = getattr(__import__(module, fromlist=[function]), function)
    return run


def _collect_garbage() -> None:
    """Turn the collector on, which the start script turned off, and exempt imported objects."""
    gc.freeze()
    gc.enable()


def _failed(error: ApplianceError, arguments: Arguments, streams: Streams) -> int:
    status = status_of(error)
    streams.err.line(str(error))
    if arguments.json:
        event = {"event": "error", "exit": status, "message": str(error)}
        streams.out.document(event, indent=None)
    return status


def _complete() -> None:
    import argcomplete  # noqa: PLC0415 - only while a shell asks

    from appliance.cli.argument_parser import build_parser  # noqa: PLC0415
    from appliance.cli.verbs.completion import examples, profile_names  # noqa: PLC0415

    argcomplete.autocomplete(build_parser(names=profile_names, examples=examples))


def run() -> NoReturn:
    """Run the console script; ends at once, without the interpreter's clean-up (3 ms)."""
    status = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)  # whatever the flush raised


if __name__ == "__main__":
    run()
