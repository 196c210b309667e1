"""Verb `appliance bench`: measure one profile, or compare several in turns."""

import getpass
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.bench.bench_screen import BenchProgress, csv_text, plot_bench, show_bench
from appliance.cli.bench.bench_session import BenchOrder, BenchSession
from appliance.cli.box import applied_of, places_of
from appliance.cli.failures import CliError
from appliance.cli.paths import Places
from appliance.cli.plot import new_chart
from appliance.cli.progress_lines import progress_for
from appliance.cli.terminal import Streams, Terminal
from appliance.model.errors import ApplianceError, BackendError
from appliance.model.gateway import is_loopback
from appliance.model.profile import Applied, text_request
from appliance.model.wording import joined
from appliance.speed.bench_comparison import turns
from appliance.speed.bench_plan import Workload, swarm_levels
from appliance.speed.bench_report import BenchOutcome, Document, bench_document, bench_summary
from appliance.system.applied.manifest import recover_configuration
from appliance.system.front_client import FrontClient
from appliance.wire.client import ask
from appliance.wire.control import Exit
from appliance.wire.health_socket import HEALTH, AcceptBaselineRequest, StoreBenchRequest

KEY_VARIABLE: Final = "APPLIANCE_KEY"
"""Variable with the inference key, for gateways that want one on this machine, too."""
_COMPARISON_RUNS: Final = 2
_MOST_PROFILES: Final = 4


def run(arguments: Arguments, streams: Streams) -> int:
    """Measure, show the figures, and return 1 if they do not count or every request failed, 130 after Ctrl-C."""
    places = places_of(arguments)
    profiles = _profiles(arguments, places)
    order = _order(arguments, profiles)
    if arguments.plot is not None:
        _check_plot(arguments.plot)
    silent = arguments.json and not streams.err.interactive
    progress = BenchProgress(streams.err, order.plan, silent=silent)
    session = BenchSession(
        order,
        places,
        _client(places),
        progress=progress,
        switching=progress_for(streams.err, silent=silent),
    )
    measured = session.run()
    outcome = replace(measured, invalid=_fault(measured))
    document = bench_document(outcome, profiles)
    if not session.interrupted:
        _show(outcome, document, profiles, arguments, streams.out)
    elif outcome.blocks:
        try:
            _show(outcome, document, profiles, arguments, streams.out)
        except BrokenPipeError:  # the same Ctrl-C has ended the reader
            os.dup2(os.open(os.devnull, os.O_WRONLY), streams.out.stream.fileno())
            _show(outcome, document, profiles, arguments, streams.err)
    if outcome.invalid:
        progress.say(f"invalid: {outcome.invalid}")
        return int(Exit.DETACHED if session.interrupted else Exit.FAILED)
    if outcome.leased:
        _keep(places, profiles, document, progress)
    if arguments.save_baseline:
        _accept(places, profiles[0].name, streams)
    return int(Exit.OK)


def _show(
    outcome: BenchOutcome,
    document: Document,
    profiles: Sequence[Applied],
    arguments: Arguments,
    out: Terminal,
) -> None:
    if arguments.json:
        out.document(document)
    elif arguments.csv:
        out.write(csv_text(row for block in outcome.blocks for row in block.rows))
    else:
        show_bench(outcome, profiles, out)
    if arguments.plot is not None:
        plot_bench(arguments.plot, outcome, profiles)


def _check_plot(path: str) -> None:
    """Check that a plot can be drawn: said before the bench, which may take hours.

    Raises:
        CliError: it cannot.
    """
    if not Path(path).absolute().parent.is_dir():
        raise CliError(f"--plot {path}: no such directory", Exit.USAGE)
    new_chart("XY")


def _profiles(arguments: Arguments, places: Places) -> Sequence[Applied]:
    names = list(dict.fromkeys(arguments.names))
    if not names or len(names) != len(arguments.names) or len(names) > _MOST_PROFILES:
        text = f"name 1 to {_MOST_PROFILES} profiles, each once: appliance bench --help"
        raise CliError(text, Exit.USAGE)
    if arguments.save_baseline and len(names) > 1:
        raise CliError("--save-baseline is for one profile", Exit.USAGE)
    found = [applied_of(places, name) for name in names]
    for applied in found:
        if text_request(applied, "") is None:
            raise BackendError(f"{applied.name} generates no text: bench measures models that do")
    return found


def _order(arguments: Arguments, profiles: Sequence[Applied]) -> BenchOrder:
    """Return the order: one profile has all runs in a block, several have one run in each."""
    several = len(profiles) > 1
    runs = arguments.run_count or (_COMPARISON_RUNS if several else 1)
    workload = Workload(
        runs=1 if several else runs,
        levels=() if arguments.swarm is None else swarm_levels(*arguments.swarm),
        depths=tuple(arguments.depth or ()),
        tokens=arguments.tokens,
        answers=several,
    )
    return BenchOrder(
        profiles=profiles,
        workload=workload,
        order=turns(len(profiles), runs),
        exclusive=arguments.exclusive,
    )


def _client(places: Places) -> FrontClient:
    """Return the client of the gateway at an address that only this machine can reach, if it has one.

    Raises:
        StoreError: the gateway's configuration is damaged.
    """
    found = recover_configuration(Path(places.applied_dir)).content
    host = next(filter(is_loopback, found.addresses), None)
    if host is None:
        raise CliError(
            "the gateway has no address that only this machine can reach: add 127.0.0.1 to "
            "listen of [gateway], then sudo appliance apply",
            Exit.CONFIG,
        )
    return FrontClient(host, found.port, key=os.environ.get(KEY_VARIABLE) or None)


def _fault(outcome: BenchOutcome) -> str:
    """Return why the figures do not count; empty: they do."""
    if outcome.invalid:
        return outcome.invalid
    rows = [row for block in outcome.blocks for row in block.rows]
    if all(row.error for row in rows):
        faults = joined(sorted({row.error for row in rows}))
        return f"every request failed: {faults}"
    return ""


def _keep(
    places: Places, profiles: Sequence[Applied], document: Document, progress: BenchProgress
) -> None:
    """Have the health agent keep the figures; a bench does not fail for it."""
    names = " ".join(profile.name for profile in profiles)
    request = StoreBenchRequest(name=names, document=bench_summary(document))
    try:
        ask(HEALTH, places.health_socket, request)
    except ApplianceError as error:
        progress.say(f"warning: the figures are not kept: {error}")


def _accept(places: Places, name: str, streams: Streams) -> None:
    request = AcceptBaselineRequest(name=name, by=getpass.getuser())
    streams.err.line(ask(HEALTH, places.health_socket, request).message)
