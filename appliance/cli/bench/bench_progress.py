"""Progress of a bench on stderr: the running stage, its rate, and the time that is left."""

import time
from collections.abc import Sequence

from appliance.cli.terminal import Terminal
from appliance.domain.amounts import duration
from appliance.planning.bench.load_plan import Stage, time_left_s
from appliance.planning.bench.rates import mean_rate, request_tok_s
from appliance.planning.bench.request_row import Part, RequestRow

_CLEAR = "\r\x1b[2K"


class BenchProgress:
    """Progress display: one line that is redrawn on a terminal, else a line for each stage.

    Args:
        terminal: Stream for people.
        plan: Profile and stage of everything that the bench does, in its order.
        silent: Whether to show nothing.
    """

    def __init__(
        self, terminal: Terminal, plan: Sequence[tuple[str, Stage]], *, silent: bool = False
    ) -> None:
        self._terminal = terminal
        self._plan = plan
        self._silent = silent
        self._began_s = time.monotonic()
        self._done = 0
        """Stages that are over."""
        self._drawn = False

    def say(self, text: str) -> None:
        """Print a sentence on a line of its own."""
        if not self._silent:
            self._wipe()
            self._terminal.line(text)

    def show(self, stage: Stage, rows: Sequence[RequestRow]) -> None:
        """Show the stage after one more of its requests."""
        if self._silent:
            return
        name = self._plan[self._done][0]
        ended = len(rows) == len(stage.prompts)
        rest = [one for _, one in self._plan[self._done + 1 :]]
        before = [one for _, one in self._plan[: self._done]]
        spent_s = time.monotonic() - self._began_s
        left_s = time_left_s(before, stage, len(rows), rest, spent_s)
        text = f"{name}: {_stage_text(stage)}  {len(rows)}/{len(stage.prompts)}{_rate(rows)}"
        if left_s is not None and (rest or not ended):
            text += f"  about {duration(left_s)} left"
        self._done += ended
        if self._terminal.interactive:
            self._terminal.draw(_CLEAR, text[: self._terminal.width() - 1])
            self._drawn = True
        elif ended:
            self._terminal.line(text)

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


def _rate(rows: Sequence[RequestRow]) -> str:
    failed = sum(1 for row in rows if row.error)
    rate = mean_rate(request_tok_s(row) for row in rows)
    shown = "" if rate is None else f"  {rate:.1f} tok/s"
    return f"{shown}  {failed} failed" if failed else shown
