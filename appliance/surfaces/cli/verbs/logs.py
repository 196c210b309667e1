"""`appliance logs`: journalctl on the right units."""

import os
import sys
from argparse import Namespace

from appliance.domain.names import SUPERVISOR_UNIT, unit_of
from appliance.domain.protocol import Exit
from appliance.domain.quantities import duration_s
from appliance.surfaces.cli.box import places_of
from appliance.surfaces.cli.catalogue import applied_of
from appliance.surfaces.cli.failure import CliError
from appliance.surfaces.cli.terminal import Streams

_LINES = 100


def run(arguments: Namespace, streams: Streams) -> int:
    """Become journalctl."""
    if arguments.name is not None:
        applied_of(places_of(arguments), arguments.name)
    streams.out.stream.flush()
    command = journal_command(arguments, terminal=sys.stdout.isatty())
    try:
        os.execvp(command[0], command)  # noqa: S606 - no shell, and this process has no more to do
    except OSError as error:
        raise CliError(f"journalctl cannot be run: {error.strerror}", Exit.FAILED) from error


def journal_command(arguments: Namespace, *, terminal: bool) -> list[str]:
    """The journalctl command line."""
    command = ["journalctl"]
    if arguments.name is None:
        command += ["-u", SUPERVISOR_UNIT, "-u", unit_of("*")]
    else:
        command += ["-u", unit_of(arguments.name)]
    if arguments.since is not None:
        command += ["--since", _since(arguments.since)]
    if arguments.lines is not None or arguments.since is None:
        command += ["-n", str(_LINES if arguments.lines is None else arguments.lines)]
    if arguments.follow:
        command.append("-f")
    if arguments.json:
        command += ["-o", "json"]
    return command if terminal else [*command, "--no-pager"]


def _since(text: str) -> str:
    """An age as in ``10m`` becomes journalctl's ``-600s``; anything else is its own business."""
    seconds = duration_s(text)
    return text if seconds is None else f"-{seconds:.0f}s"
