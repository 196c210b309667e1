"""Screens of a bench: progress, tables that read like the published ones, a line for each raw row, and plots."""

import csv
import io
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from appliance.cli.plot import new_chart, write_chart
from appliance.cli.table import Column, fitted
from appliance.cli.terminal import Style, Terminal
from appliance.model.amounts import duration
from appliance.model.profile import Applied
from appliance.speed.bench_comparison import Winner
from appliance.speed.bench_plan import Stage, time_left_s
from appliance.speed.bench_report import (
    BenchOutcome,
    ComparedProfiles,
    ProfileResult,
    comparisons,
    profile_results,
)
from appliance.speed.bench_rows import Part, RequestRow, latencies_ms, mean_rate, request_tok_s

_MOST_CACHED: Final = 0.05
"""Share of prompt tokens that may come from a cache; a chat template's beginning always does."""
_FULL: Final = 0.5
"""Share of its time that a level must have had as many requests in flight as it is named for."""
_NOTHING: Final = "-"


def show_bench(outcome: BenchOutcome, profiles: Sequence[Applied], terminal: Terminal) -> None:
    """Print everything that was measured."""
    if outcome.invalid:
        invalid = f"INVALID: {outcome.invalid}; the figures below do not count"
        terminal.line(terminal.paint(invalid, Style.RED))
        terminal.line()
    for result in profile_results(outcome, profiles):
        for line in _profile_lines(result, terminal):
            terminal.line(line)
        terminal.line()
    for compared in comparisons(outcome, [profile.name for profile in profiles]):
        for line in _comparison_lines(compared, terminal):
            terminal.line(line)


def _profile_lines(result: ProfileResult, terminal: Terminal) -> Iterable[str]:
    applied = result.applied
    title = "  ".join(word for word in (applied.name, applied.engine, applied.model) if word)
    yield terminal.paint(title, Style.BOLD)
    single = result.part(Part.SINGLE)
    if single:
        yield from _table(
            ["1 at a time", *result.prompts, "mean"],
            [["tok/s", *map(_rate, result.prompts.values()), _rate(result.mean_tok_s)]],
            terminal,
        )
        yield f"  {_latency_text(single)}"
    if result.swarm:
        yield ""
        yield from _table(
            [
                "at a time",
                "reached",
                "effective tok/s",
                "per task",
                "contention",
                "speed-up",
                "TTFT",
            ],
            [
                [
                    str(level.concurrency),
                    f"{level.reached.mean:.1f}",
                    _rate(level.effective_tok_s),
                    _rate(level.per_task_tok_s),
                    _percent(level.contention),
                    _NOTHING if level.speedup is None else f"{level.speedup:.2f}x",
                    _ms(
                        latencies_ms(
                            r for r in result.part(Part.SWARM) if r.concurrency == level.concurrency
                        )["median_ttft_ms"]
                    ),
                ]
                for level in result.swarm
            ],
            terminal,
        )
        short = [str(x.concurrency) for x in result.swarm if x.reached.full_share < _FULL]
        if short:
            yield f"  {', '.join(short)} at a time was reached for less than half of its time"
    if result.depths:
        yield ""
        yield from _table(
            ["prompt tokens", "prefill tok/s", "decode tok/s"], _depth_rows(result), terminal
        )
    yield from _remarks(result, terminal)


def _depth_rows(result: ProfileResult) -> Sequence[Sequence[str]]:
    """Return a row for each depth, from the two that llama-bench has of it."""
    found: dict[str, list[str]] = {}
    for row in result.depths:
        is_prefill = bool(row["n_prompt"])
        tokens = str(row["n_prompt"] if is_prefill else row["n_depth"])
        cells = found.setdefault(tokens, [tokens, _NOTHING, _NOTHING])
        cells[1 if is_prefill else 2] = f"{row['avg_ts']:.1f}"
    return list(found.values())


def _remarks(result: ProfileResult, terminal: Terminal) -> Iterable[str]:
    if result.joules_per_token is not None:
        yield f"  {result.joules_per_token:.2f} J per token"
    if result.cached_share is not None and result.cached_share > _MOST_CACHED:
        share = f"a cache held {result.cached_share:.0%} of the prompt tokens, salted as they were"
        yield terminal.paint(f"  {share}", Style.YELLOW)
    if result.failed:
        faults = sorted({row.error for row in result.rows if row.error})
        text = f"{result.failed} of {len(result.rows)} requests failed: {'; '.join(faults)}"
        yield terminal.paint(f"  {text}", Style.RED)


def _comparison_lines(compared: ComparedProfiles, terminal: Terminal) -> Iterable[str]:
    first, second = compared.names
    interval = compared.interval
    if interval is not None:
        text = f"{second} has {interval.ratio:.3f} times the tok/s of {first}"
        if interval.low is not None and interval.high is not None:
            text += f" ({interval.low:.3f} to {interval.high:.3f} with 95 % confidence"
            text += f", {interval.pairs} pairs)"
        yield text
    if compared.answers.between is not None:
        own = compared.answers.own
        repeated = "" if own is None else f"; each repeats {own:.0%} of its own"
        yield f"{compared.answers.between:.0%} of the greedy answers are the same{repeated}"
    won = compared.verdict.winner is not Winner.NEITHER
    verdict = compared.verdict.why if won else f"no winner: {compared.verdict.why}"
    yield terminal.paint(verdict, Style.GREEN if won else Style.YELLOW)


def _latency_text(rows: Iterable[RequestRow]) -> str:
    found = latencies_ms(rows)
    return "   ".join(
        f"{name.upper()} {_ms(found[f'median_{name}_ms'])} (p99 {_ms(found[f'p99_{name}_ms'])})"
        for name in ("ttft", "tpot", "itl")
    )


def _table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], terminal: Terminal
) -> Iterable[str]:
    """Return lines of a table of figures whose first column is left-aligned."""
    columns = [Column(head, is_right=at > 0) for at, head in enumerate(heads)]
    return fitted(columns, rows, terminal, indent=2).lines()


def csv_text(rows: Iterable[RequestRow]) -> str:
    """Return raw rows as CSV, warm-ups included; times are in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "profile",
            "part",
            "run",
            "concurrency",
            "prompt",
            "depth",
            "sent_s",
            "ttft_s",
            "e2e_s",
            "wall_s",
            "tpot_s",
            "input_tokens",
            "output_tokens",
            "cached_tokens",
            "tok_s",
            "error",
        ]
    )
    for row in rows:
        writer.writerow(
            [
                row.profile,
                row.part.value,
                row.run,
                row.concurrency,
                row.prompt,
                row.depth,
                *map(_seconds, (row.sent_s, row.ttft_s, row.e2e_s, row.wall_s, row.tpot_s)),
                row.input_tokens,
                row.output_tokens,
                "" if row.cached_tokens is None else row.cached_tokens,
                _seconds(request_tok_s(row)),
                row.error,
            ]
        )
    return text.getvalue()


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _rate(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return _NOTHING if value is None else f"{value:.0%}"


def _ms(value: float | None) -> str:
    if value is None:
        return _NOTHING
    return f"{value:.1f} ms" if value < 100 else f"{value / 1000:.2f} s"  # noqa: PLR2004


_CLEAR = "\r\x1b[2K"
LINE_S: Final = 30.0
"""Longest silence where there is no terminal: a request may take minutes."""


class BenchProgress:
    """Progress display: one line that is redrawn on a terminal, else a line now and then.

    Elsewhere a line is written when a stage begins, when it ends, and each half minute.

    Args:
        terminal: Stream for people.
        plan: Profile and stage of everything that the bench does, in its order.
        silent: Whether to show nothing.
        clock: Seconds of a monotonic clock.
    """

    def __init__(
        self,
        terminal: Terminal,
        plan: Sequence[tuple[str, Stage]],
        *,
        silent: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal = terminal
        self._plan = plan
        self._silent = silent
        self._clock = clock
        self._began_s = clock()
        self._text = ""
        """Text that was shown last; empty: none."""
        self._answered_s = self._lined_s = self._began_s
        """Time of the last response, or of the stage's beginning; time of the last line."""
        self._done = 0
        """Stages that are over."""
        self._drawn = False

    def say(self, text: str) -> None:
        """Print a sentence on a line of its own."""
        if not self._silent:
            self._wipe()
            self._terminal.line(text)

    def show(self, stage: Stage, rows: Sequence[RequestRow]) -> None:
        """Show the stage at its beginning, or after one more of its requests."""
        if self._silent:
            return
        name = self._plan[self._done][0]
        ended = len(rows) == len(stage.prompts)
        rest = [one for _, one in self._plan[self._done + 1 :]]
        before = [one for _, one in self._plan[: self._done]]
        self._answered_s = self._clock()
        spent_s = self._answered_s - self._began_s
        left_s = time_left_s(before, stage, len(rows), rest, spent_s)
        text = f"{name}: {_stage_text(stage)}  {len(rows)}/{len(stage.prompts)}{_rate_so_far(rows)}"
        if left_s is not None and (rest or not ended):
            text += f"  about {duration(left_s)} left"
        self._done += ended
        self._text = text
        self._put(text, at_once=ended or not rows)

    def tick(self) -> None:
        """Show that the bench waits for a response, some time after the last one."""
        if self._text and not self._silent:
            waited_s = self._clock() - self._answered_s
            self._put(f"{self._text}  waiting for {duration(waited_s)}", at_once=False)

    def _put(self, text: str, *, at_once: bool) -> None:
        if self._terminal.interactive:
            self._terminal.draw(_CLEAR, text[: self._terminal.width() - 1])
            self._drawn = True
        elif at_once or self._clock() - self._lined_s >= LINE_S:
            self._terminal.line(text)
            self._lined_s = self._clock()

    def end(self) -> None:
        """Clear a line that was redrawn."""
        self._wipe()

    def _wipe(self) -> None:
        if self._drawn:
            self._terminal.draw(_CLEAR)
            self._drawn = False


def _stage_text(stage: Stage) -> str:
    texts = {
        Part.SINGLE: "one at a time",
        Part.SWARM: f"{stage.concurrency} at a time",
        Part.DEPTH: f"depth {stage.depth}",
        Part.ANSWERS: "greedy answers",
    }
    return f"run {stage.run}, {texts[stage.part]}" if stage.run else f"warm-up, {texts[stage.part]}"


def _rate_so_far(rows: Sequence[RequestRow]) -> str:
    failed = sum(1 for row in rows if row.error)
    rate = mean_rate(request_tok_s(row) for row in rows)
    shown = "" if rate is None else f"  {rate:.1f} tok/s"
    return f"{shown}  {failed} failed" if failed else shown


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
