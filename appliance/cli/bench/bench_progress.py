"""Progress of a bench on stderr: the running stage, its rate, and the time that is left."""

import time
from collections.abc import Callable, Sequence
from typing import Final

from appliance.cli.terminal import Terminal
from appliance.model.amounts import duration
from appliance.speed.bench_plan import Stage, time_left_s
from appliance.speed.bench_rows import Part, RequestRow, mean_rate, request_tok_s

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
        text = f"{name}: {_stage_text(stage)}  {len(rows)}/{len(stage.prompts)}{_rate(rows)}"
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


def _rate(rows: Sequence[RequestRow]) -> str:
    failed = sum(1 for row in rows if row.error)
    rate = mean_rate(request_tok_s(row) for row in rows)
    shown = "" if rate is None else f"  {rate:.1f} tok/s"
    return f"{shown}  {failed} failed" if failed else shown
