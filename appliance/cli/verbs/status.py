"""Verb `appliance status`."""

from __future__ import annotations

import time

from appliance.cli.arguments import Arguments
from appliance.cli.box import places_of, read_status, row_of
from appliance.cli.failures import CliError
from appliance.cli.paths import Places
from appliance.cli.speed_question import SpeedQuestion
from appliance.cli.status_screens import show_one, show_status
from appliance.cli.terminal import Streams, Terminal
from appliance.planning.status.profile_verdict import profile_exit
from appliance.presentation.alert_texts import alerts_of
from appliance.protocol.control import Exit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.planning.status.document import StatusDocument

_WATCH_S: Final = 2.0
_HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"


def run(arguments: Arguments, streams: Streams) -> int:
    """Print the status once, or repeatedly until Ctrl-C."""
    places = places_of(arguments)
    if not arguments.watch:
        return _once(places, arguments, streams, indent=2)
    while True:
        if streams.out.interactive and not arguments.json:
            streams.out.write(_HOME_AND_CLEAR)
        _once(places, arguments, streams, indent=None)
        time.sleep(_WATCH_S)


def _once(places: Places, arguments: Arguments, streams: Streams, *, indent: int | None) -> int:
    out = streams.out
    if arguments.markdown and arguments.name is not None:
        raise CliError("--markdown is of the whole box: appliance status --help", Exit.USAGE)
    question = SpeedQuestion(places.health_socket)
    document = read_status(places)
    document["speed"] = question.answer()
    document["alerts"] = question.alerts
    if arguments.name is not None:
        return _one(document, arguments, out, indent=indent)
    if arguments.json:
        out.document(document, indent=indent)
    elif arguments.markdown:
        from appliance.presentation.status_markdown import markdown_lines  # noqa: PLC0415 - few statuses

        for line in markdown_lines(document, now=time.time()):
            out.line(line)
    else:
        show_status(document, out, now=time.time())
    return document["verdict"]["exit"]


def _one(
    document: StatusDocument, arguments: Arguments, out: Terminal, *, indent: int | None
) -> int:
    row, speed, alerts = row_of(document, arguments.name), document["speed"], document["alerts"]
    if arguments.json:
        own = None if alerts is None else alerts_of(alerts, row["name"])
        report = speed["profiles"].get(row["name"])
        out.document({**row, "speed": report, "alerts": own}, indent=indent)
    else:
        show_one(row, out, now=time.time(), speed=speed, alerts=alerts)
    return profile_exit(row)
