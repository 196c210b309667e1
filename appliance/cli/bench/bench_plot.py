"""Plot of a bench: by concurrency, else by depth, else by prompt."""

from collections.abc import Sequence
from typing import Any

from appliance.cli.plot import new_chart, write_chart
from appliance.model.profile import Applied
from appliance.speed.bench_report import BenchOutcome, ProfileResult, profile_results


def plot_bench(path: str, outcome: BenchOutcome, profiles: Sequence[Applied]) -> None:
    """Write the plot of a bench.

    Raises:
        CliError: the file cannot be written, or pygal is missing.
    """
    write_chart(path, _chart(profile_results(outcome, profiles), outcome.invalid))


def _chart(results: Sequence[ProfileResult], invalid: str) -> Any:
    if any(result.swarm for result in results):
        return _by_concurrency(results, invalid)
    if any(result.depths for result in results):
        return _by_depth(results, invalid)
    return _by_prompt(results, invalid)


def _by_concurrency(results: Sequence[ProfileResult], invalid: str) -> Any:
    chart = _new("XY", "requests at a time", invalid)
    for result in results:
        levels = result.swarm
        name = result.applied.name
        chart.add(f"{name}: effective", [(x.concurrency, x.effective_tok_s) for x in levels])
        chart.add(f"{name}: per task", [(x.concurrency, x.per_task_tok_s) for x in levels])
    return chart


def _by_depth(results: Sequence[ProfileResult], invalid: str) -> Any:
    chart = _new("XY", "prompt tokens before the answer", invalid)
    for result in results:
        decoded = [row for row in result.depths if row["n_gen"]]
        chart.add(result.applied.name, [(row["n_depth"], row["avg_ts"]) for row in decoded])
    return chart


def _by_prompt(results: Sequence[ProfileResult], invalid: str) -> Any:
    chart = _new("Bar", "coding task, one request at a time", invalid)
    chart.x_labels = [*next((result.prompts for result in results), ()), "mean"]
    for result in results:
        chart.add(result.applied.name, [*result.prompts.values(), result.mean_tok_s])
    return chart


def _new(kind: str, x_title: str, invalid: str) -> Any:
    title = f"INVALID: {invalid}" if invalid else "appliance bench"
    return new_chart(kind, title=title, x_title=x_title, y_title="tok/s")
