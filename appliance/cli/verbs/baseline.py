"""Verb `appliance baseline`: show, accept or reset the speeds that probes are compared with."""

import sys

from appliance.cli.arguments import Arguments
from appliance.cli.baseline_lines import accept_text, level_text, show_baselines
from appliance.cli.failures import CliError
from appliance.cli.health_questions import details_of, measured_profile, result_of
from appliance.cli.terminal import Streams
from appliance.wire.control import Exit
from appliance.wire.health_socket import (
    AcceptBaselineRequest,
    BaselineRequest,
    ResetBaselineRequest,
)
from appliance.wire.json_values import Json, objects_in, text_in


def run(arguments: Arguments, streams: Streams) -> int:
    """Show the baselines of a profile, or change them after a question."""
    name = measured_profile(arguments, changes=arguments.action != "show")
    if arguments.action == "show":
        report = details_of(arguments, BaselineRequest(name))
        if arguments.json:
            streams.out.document(report)
        else:
            streams.out.line(name)
            show_baselines(report, streams.out)
        return int(Exit.OK)
    accepts = arguments.action == "accept"
    if not arguments.yes and not _agreed(name, arguments, streams):
        raise CliError(f"the baseline of {name} is unchanged", Exit.FAILED)
    request = AcceptBaselineRequest(name) if accepts else ResetBaselineRequest(name)
    result = result_of(arguments, request)
    if arguments.json:
        streams.out.document({"name": name, "message": result.message})
    else:
        streams.out.line(result.message)
    return int(Exit.OK)


def _agreed(name: str, arguments: Arguments, streams: Streams) -> bool:
    """Show what would change, and ask the person at the terminal. Raises `CliError` without one."""
    action = arguments.action
    if arguments.json or not sys.stdin.isatty():
        raise CliError(
            f"baseline {action} asks on a terminal; without one: "
            f"appliance baseline {action} {name} --yes",
            Exit.USAGE,
        )
    report = details_of(arguments, BaselineRequest(name))
    for series in objects_in(report, "series"):
        change = _consequence(series, action)
        streams.err.line(f"{text_in(series, 'series'):8} {change}")
    streams.err.write("keep? [y/N] " if action == "accept" else "forget it? [y/N] ")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _consequence(series: Json, action: str) -> str:
    if action == "accept":
        return accept_text(series) or "nothing to compare: the next probes make the baseline"
    return f"{level_text(series)} → none, until the next probes have made another"
