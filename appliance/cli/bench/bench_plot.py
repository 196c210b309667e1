"""Plot of a bench as SVG, drawn by pygal, which is an extra."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from appliance.cli.failures import CliError
from appliance.domain.profile import Applied
from appliance.planning.bench.bench_report import BenchOutcome, ProfileResult, profile_results
from appliance.protocol.control import Exit

try:
    import pygal
except ImportError as error:
    raise CliError(
        "--plot needs pygal: sudo /opt/appliance/current/bin/pip install pygal", Exit.FAILED
    ) from error


def write_plot(path: Path, outcome: BenchOutcome, profiles: Sequence[Applied]) -> None:
    """Write the plot of a bench: by concurrency, else by depth, else by prompt.

    Raises:
        CliError: the file cannot be written.
    """
    text = _chart(profile_results(outcome, profiles), outcome.invalid).render()
    try:
        path.write_bytes(text)
    except OSError as error:
        raise CliError(f"{path}: {error.strerror or error}", Exit.FAILED) from error


def _chart(results: Sequence[ProfileResult], invalid: str) -> Any:
    if any(result.swarm for result in results):
        return _by_concurrency(results, invalid)
    if any(result.depths for result in results):
        return _by_depth(results, invalid)
    return _by_prompt(results, invalid)


def _by_concurrency(results: Sequence[ProfileResult], invalid: str) -> Any:
    chart = _new(pygal.XY, "requests at a time", invalid)
    for result in results:
        levels = result.swarm
        name = result.applied.name
        chart.add(f"{name}: effective", [(x.concurrency, x.effective_tok_s) for x in levels])
        chart.add(f"{name}: per task", [(x.concurrency, x.per_task_tok_s) for x in levels])
    return chart


def _by_depth(results: Sequence[ProfileResult], invalid: str) -> Any:
    chart = _new(pygal.XY, "prompt tokens before the answer", invalid)
    for result in results:
        decoded = [row for row in result.depths if row["n_gen"]]
        chart.add(result.applied.name, [(row["n_depth"], row["avg_ts"]) for row in decoded])
    return chart


def _by_prompt(results: Sequence[ProfileResult], invalid: str) -> Any:
    chart = _new(pygal.Bar, "coding task, one request at a time", invalid)
    chart.x_labels = [*next((result.prompts for result in results), ()), "mean"]
    for result in results:
        chart.add(result.applied.name, [*result.prompts.values(), result.mean_tok_s])
    return chart


def _new(kind: Any, x_title: str, invalid: str) -> Any:
    """Return an empty chart that needs no script: a picture asks no server for anything."""
    return kind(
        js=(),
        title=f"INVALID: {invalid}" if invalid else "appliance bench",
        x_title=x_title,
        y_title="tok/s",
        legend_at_bottom=True,
    )
