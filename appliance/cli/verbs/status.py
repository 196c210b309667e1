"""Verbs `appliance status` and `appliance list`."""

from __future__ import annotations

import time

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of, read_status, row_of
from appliance.cli.failures import CliError
from appliance.cli.health_questions import SpeedQuestion
from appliance.cli.status_screens import show_list, show_one, show_status
from appliance.cli.terminal import Streams, Terminal
from appliance.presentation.alert_texts import alerts_of
from appliance.presentation.health_sections import with_alerts
from appliance.status.profile_verdict import profile_exit
from appliance.wire.control import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from appliance.model.status import ProfileRow, StatusDocument


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the status once, or each change of it until Ctrl-C."""
    places = places_of(arguments)
    if arguments.markdown and arguments.names:
        raise CliError("--markdown is of the whole box: appliance status --help", Exit.USAGE)
    if arguments.watch:
        from appliance.cli.live.screen_loop import watch_status  # noqa: PLC0415 - few statuses

        return watch_status(
            places,
            streams.out,
            lambda document, out: _show(document, arguments, out),
            names=arguments.names,
            json=arguments.json,
        )
    question = SpeedQuestion(places.health_socket)
    found = read_status(places)
    speed = question.answer()
    document = with_alerts(found.replaced(speed=speed), question.alerts)
    _show(document, arguments, streams.out)
    if arguments.names:
        return max(profile_exit(row_of(document, name)) for name in arguments.names)
    return document.verdict.exit


def run_list(arguments: Arguments, streams: Streams) -> int:
    """Print one line for each profile; retired ones with --all only."""
    document = read_status(places_of(arguments))
    rows = [row for row in document.profiles if _wanted(row, arguments)]
    if arguments.json:
        streams.out.document(rows)
    else:
        show_list(rows, streams.out)
        _explain_absence(document, rows, streams.err)
    return int(Exit.OK)


def _show(document: StatusDocument, arguments: Arguments, out: Terminal) -> None:
    indent = None if arguments.watch else 2
    if arguments.names:
        _show_some(document, arguments, out, indent=indent)
    elif arguments.json:
        out.document(document, indent=indent)
    elif arguments.markdown:
        from appliance.presentation.status_markdown import markdown_lines  # noqa: PLC0415 - few statuses

        for line in markdown_lines(document, now=time.time()):
            out.line(line)
    else:
        show_status(document, out, now=time.time())


def _show_some(
    document: StatusDocument, arguments: Arguments, out: Terminal, *, indent: int | None
) -> None:
    rows = [row_of(document, name) for name in dict.fromkeys(arguments.names)]
    speed, alerts = document.speed or None, document.alerts or None
    if not arguments.json:
        for row in rows:
            show_one(row, out, now=time.time(), speed=speed, alerts=alerts)
        return
    told = [
        {
            **row.fields(),
            "speed": None if speed is None else speed.profiles.get(row.name),
            "alerts": None if alerts is None else alerts_of(alerts, row.name),
        }
        for row in rows
    ]
    if len(told) == 1:
        out.document(told[0], indent=indent)
    else:
        out.document(told, indent=indent)


def _wanted(row: ProfileRow, arguments: Arguments) -> bool:
    if arguments.mark is not None:
        return bool(row.mark == arguments.mark)
    return bool(arguments.all) or row.mark != "retired" or row.state != "stopped"


def _explain_absence(document: StatusDocument, rows: Iterable[ProfileRow], err: Terminal) -> None:
    if not document.profiles:
        err.line("no profile is applied: sudo appliance apply")
    elif all(row.mark is None for row in document.profiles):
        err.line("marks are not known while the supervisor does not answer")
    elif not list(rows):
        err.line("no such profile: appliance list --all")
