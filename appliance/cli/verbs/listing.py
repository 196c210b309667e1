"""Verb `appliance list`."""

from __future__ import annotations

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of, read_status
from appliance.cli.status_screens import show_list
from appliance.cli.terminal import Streams, Terminal
from appliance.wire.control import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from appliance.status.document import ProfileRow, StatusDocument


def run(arguments: Arguments, streams: Streams) -> int:
    """Print one line for each profile; retired ones with --all only."""
    document = read_status(places_of(arguments))
    rows = [row for row in document["profiles"] if _wanted(row, arguments)]
    if arguments.json:
        streams.out.document(rows)
    else:
        show_list(rows, streams.out)
        _explain_absence(document, rows, streams.err)
    return int(Exit.OK)


def _wanted(row: ProfileRow, arguments: Arguments) -> bool:
    if arguments.mark is not None:
        return bool(row["mark"] == arguments.mark)
    return bool(arguments.all) or row["mark"] != "retired" or row["state"] != "stopped"


def _explain_absence(document: StatusDocument, rows: Iterable[ProfileRow], err: Terminal) -> None:
    if not document["profiles"]:
        err.line("no profile is applied: sudo appliance apply")
    elif all(row["mark"] is None for row in document["profiles"]):
        err.line("marks are not known while the supervisor does not answer")
    elif not list(rows):
        err.line("no such profile: appliance list --all")
