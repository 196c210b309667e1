"""Verb `appliance logs`: journalctl for the right units, with its lines as plain text.

Engines colour their lines and redraw their progress. journalctl alone prints ``[35B blob data]`` in
place of such a line, or sends all of it to the terminal.
"""

import codecs
import os
import subprocess
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from appliance.cli.arguments import Arguments
from appliance.cli.box import applied_of, places_of
from appliance.cli.failures import CliError
from appliance.cli.terminal import Streams, Terminal, json_text
from appliance.model.json_reader import decode_json
from appliance.model.names import SUPERVISOR_UNIT, unit_of
from appliance.model.plain_text import JournalLines
from appliance.model.quantities import duration_s
from appliance.wire.control import Exit

MOST_LINE_BYTES = 65_536
"""Longest line that is shown whole; journald cuts those of engines at 48 KiB (LineMax=)."""
_LINES = 100
_READ_BYTES = 65_536
_JOURNALS = (Path("/var/log/journal"), Path("/run/log/journal"))


def run(arguments: Arguments, streams: Streams) -> int:
    """Print what journalctl prints, and return its exit status."""
    for name in arguments.names:
        applied_of(places_of(arguments), name)
    if os.geteuid() != 0 and not is_journal_readable():
        streams.err.line(
            "permission denied: sudo usermod -aG systemd-journal $USER, then log in again"
            " (or sudo appliance logs)"
        )
        return int(Exit.PERMISSION)
    try:
        return _relay(journal_command(arguments), streams.out, as_json=arguments.json)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(f"journalctl cannot be run: {error.strerror}", Exit.FAILED) from error


def _relay(command: Sequence[str], out: Terminal, *, as_json: bool) -> int:
    """Pass on the output of a command while it comes; return its exit status."""
    lines, text = JournalLines(MOST_LINE_BYTES), codecs.getincrementaldecoder("utf-8")("replace")
    with subprocess.Popen(  # noqa: S603 - no shell
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as journal:
        try:
            while journal.stdout is not None and (
                data := os.read(journal.stdout.fileno(), _READ_BYTES)
            ):
                if as_json:
                    out.write(json_text(text.decode(data)))
                else:
                    out.write("".join(f"{line}\n" for line in lines.take(data)))
        except BaseException:
            journal.kill()
            raise
        out.write("".join(f"{line}\n" for line in lines.end()))
        return journal.wait()


def is_journal_readable(journals: Sequence[Path] = _JOURNALS) -> bool:
    """Tell whether this user may read the system's journal; True too where there is none.

    journalctl itself shows others nothing of the system, and ends with success.
    """
    files = [file for directory in journals for file in directory.glob("*/system.journal")]
    return not files or any(os.access(file, os.R_OK) for file in files)


def journal_command(arguments: Arguments) -> list[str]:
    """Return the journalctl command line. Raises `OSError` where there is no journalctl."""
    command = ["journalctl"]
    units = [unit_of(name) for name in arguments.names] or [SUPERVISOR_UNIT, unit_of("*")]
    for unit in units:
        command += ["-u", unit]
    command += _window(command, arguments)
    if arguments.follow:
        command.append("-f")
    return [*command, *(("-o", "json") if arguments.json else ("--all",)), "--no-pager"]


def _window(command: Sequence[str], arguments: Arguments) -> tuple[str, ...]:
    """Return options that limit which entries of `command` are shown."""
    if arguments.since is None:
        return ("-n", str(_LINES if arguments.lines is None else arguments.lines))
    since = ("--since", _since(arguments.since))
    if arguments.lines is None:
        return since
    if cursor := _cursor([*command, *since], arguments.lines):
        # Without --no-tail, following would skip to the last ten.
        return (f"--cursor={cursor}", "--no-tail")
    return (*since, "-n", str(arguments.lines))


def _cursor(command: Sequence[str], lines: int) -> str | None:
    """Return the cursor of the first of the last `lines` entries of `command`; None: no entry.

    Given --since, ``journalctl -n`` of systemd 252 counts from the oldest entry; with -r from the
    newest.
    """
    newest = ("-r", "-n", str(lines), "-o", "json", "--output-fields=_PID", "-q", "--no-pager")
    with subprocess.Popen(  # noqa: S603 - no shell
        [*command, *newest],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as journal:
        oldest = deque(journal.stdout or (), maxlen=1)
    return str(decode_json(oldest[0])["__CURSOR"]) if oldest else None


def _since(text: str) -> str:
    """Return an age such as ``10m`` as journalctl's ``-600s``, and anything else as it is."""
    seconds = duration_s(text)
    return text if seconds is None else f"-{seconds:.0f}s"
