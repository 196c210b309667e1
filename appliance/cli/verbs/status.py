"""Verb `appliance status`."""

from __future__ import annotations

import time

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of, read_status, row_of
from appliance.cli.failures import CliError
from appliance.cli.speed_question import SpeedQuestion
from appliance.cli.status_screens import show_one, show_status
from appliance.cli.terminal import Streams, Terminal
from appliance.presentation.alert_texts import alerts_of
from appliance.presentation.health_sections import with_alerts
from appliance.status.profile_verdict import profile_exit
from appliance.wire.control import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.status.document import StatusDocument


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the status once, or each change of it until Ctrl-C."""
    places = places_of(arguments)
    if arguments.markdown and arguments.names:
        raise CliError("--markdown is of the whole box: appliance status --help", Exit.USAGE)
    if arguments.watch:
        from appliance.cli.live.status_watch import watch_status  # noqa: PLC0415 - few statuses

        return watch_status(
            places,
            streams.out,
            lambda document, out: _show(document, arguments, out),
            names=arguments.names,
            json=arguments.json,
        )
    question = SpeedQuestion(places.health_socket)
    found = read_status(places)
    found["speed"] = question.answer()
    document = with_alerts(found, question.alerts)
    _show(document, arguments, streams.out)
    if arguments.names:
        return max(profile_exit(row_of(document, name)) for name in arguments.names)
    return document["verdict"]["exit"]


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
    speed, alerts = document["speed"], document["alerts"]
    if not arguments.json:
        for row in rows:
            show_one(row, out, now=time.time(), speed=speed, alerts=alerts)
        return
    told = [
        {
            **row,
            "speed": speed["profiles"].get(row["name"]),
            "alerts": None if alerts is None else alerts_of(alerts, row["name"]),
        }
        for row in rows
    ]
    if len(told) == 1:
        out.document(told[0], indent=indent)
    else:
        out.document(told, indent=indent)
