"""Verb `appliance history`: rates over time as a table, CSV, JSON or a plot."""

import time
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError
from appliance.cli.health_questions import details_of, measured_profile
from appliance.cli.history_screen import show_history
from appliance.cli.terminal import Streams, Terminal
from appliance.presentation.clock_times import utc_second
from appliance.presentation.speed_history import History, history_in
from appliance.status.history import RateSummary
from appliance.status.history_calendar import span_of, unit_for
from appliance.wire.control import Exit
from appliance.wire.health_socket import HistoryRequest

_DEFAULT_S: Final = 7 * 86400.0
_COLUMNS: Final = ("time", "series", *RateSummary._fields)


def run(arguments: Arguments, streams: Streams) -> int:
    """Print or plot the history of one profile."""
    if arguments.json and (arguments.csv or arguments.plot is not None):
        raise CliError("--json is another form: leave --csv and --plot out", Exit.USAGE)
    name, now = measured_profile(arguments), time.time()
    length_s = _DEFAULT_S if arguments.since_s is None else arguments.since_s
    since_unix_s = max(0.0, now - length_s)
    if arguments.raw:
        from appliance.cli.probe_table import stored_probes, write_probes  # noqa: PLC0415 - 10 ms

        probes = stored_probes(arguments, name, since_unix_s)
        write_probes(probes, streams.out, as_json=arguments.json)
        return int(Exit.OK)
    unit = unit_for(length_s)
    is_table = not (arguments.json or arguments.csv or arguments.plot is not None)
    span_s = span_of(unit) if is_table else None
    request = HistoryRequest(name, since_unix_s, arguments.series, span_s)
    details = details_of(arguments, request)
    history = history_in(name, since_unix_s, details)
    if arguments.json:
        streams.out.document({"name": name, "since_unix_s": since_unix_s, **details})
    elif arguments.csv:
        _write_csv(history, streams.out)
    elif arguments.plot is not None:
        from appliance.cli.history_plot import plot_history  # noqa: PLC0415 - an extra

        plot_history(history, arguments.plot)
        streams.err.line(f"plotted: {arguments.plot}")
    else:
        show_history(history, unit, streams.out, now=now)
    return int(Exit.OK)


def _write_csv(history: History, out: Terminal) -> None:
    import csv  # noqa: PLC0415 - 4 ms that the table does without

    table = csv.writer(out, lineterminator="\n")
    table.writerow(_COLUMNS)
    for series, rows in history.rows.items():
        for row in rows:
            table.writerow([utc_second(row.unix_s), series, *row])
