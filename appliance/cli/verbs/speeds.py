"""Verbs `appliance baseline` and `appliance probe`: speeds that probes are compared with, and a probe now."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError
from appliance.cli.health_questions import details_of, measured_profile, result_of, talk
from appliance.cli.terminal import Streams, Terminal
from appliance.model.speeds import BaselineReport, SeriesBaseline
from appliance.presentation.clock_times import local_minute
from appliance.presentation.speed_history import baseline_in
from appliance.status.speed_figures import band_text, change_text, rate_text
from appliance.wire.control import Exit
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import (
    AcceptBaselineRequest,
    BaselineRequest,
    ProbedEvent,
    ProbeNowRequest,
    ProbeProgressEvent,
    ResetBaselineRequest,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final


UNITS: Final = {"decode": "steps/s", "prefill": "tok/s"}
"""Unit of the rates of each series: without speculative decoding a step makes one token."""
_NAME_WIDTH: Final = 8
_LEARNS: Final = frozenset({"unset", "learning"})


def run_baseline(arguments: Arguments, streams: Streams) -> int:
    """Show the baselines of a profile, or change them after a question."""
    name = measured_profile(arguments, changes=arguments.action != "show")
    if arguments.action == "show":
        report = details_of(arguments, BaselineRequest(name))
        if arguments.json:
            streams.out.document(report)
        else:
            streams.out.line(name)
            show_baselines(baseline_in(report), streams.out)
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


def run_probe(arguments: Arguments, streams: Streams) -> int:
    """Probe profiles one after the other, or all that serve; the status is 0 when each was measured."""
    outcomes = [
        outcome
        for name in dict.fromkeys(arguments.names) or (None,)
        for outcome in _probed(name, arguments, streams)
    ]
    measured = bool(outcomes) and all(outcome == _VALID for outcome in outcomes)
    return int(Exit.OK if measured else Exit.FAILED)


def show_baselines(report: BaselineReport | None, terminal: Terminal) -> None:
    """Print a baseline report; None has no line."""
    for line in _baseline_lines(report):
        terminal.line(line, hang=_NAME_WIDTH + 1)


def _baseline_lines(report: BaselineReport | None) -> Iterable[str]:
    for series in () if report is None else report.series:
        yield f"{series.series:{_NAME_WIDTH}} {level_text(series)}"
        if change := accept_text(series):
            yield f"{'':{_NAME_WIDTH}} accept would make it {change}"
        for prompt in series.prompts:
            if prompt.rate is not None:
                yield f"{'':10} {prompt.prompt:20} {rate_text(prompt.rate):>7}"


def level_text(series: SeriesBaseline | None) -> str:
    """Return the baseline of a series, with its band and the time of its accept."""
    if series is None or series.baseline is None:
        learns = series is not None and series.phase in _LEARNS
        return "no baseline yet: it is being learned" if learns else "no baseline"
    accepted = series.accepted_unix_s
    when = "" if accepted is None else f", accepted {local_minute(accepted)}"
    return f"{band_text(series.baseline, series.band)} {UNITS[series.series]}{when}"


def accept_text(series: SeriesBaseline) -> str:
    """Return what an accept would change: ``80.3 → 17.9 steps/s, -78 %``; empty: not known."""
    if series.baseline is None or series.present is None:
        return ""
    how_much = "" if series.change is None else f", {change_text(series.change)}"
    unit = UNITS[series.series]
    return f"{rate_text(series.baseline)} → {rate_text(series.present)} {unit}{how_much}"


def _agreed(name: str, arguments: Arguments, streams: Streams) -> bool:
    """Show what would change, and ask the person at the terminal. Raises `CliError` without one."""
    action = arguments.action
    if arguments.json or not sys.stdin.isatty():
        raise CliError(
            f"baseline {action} asks on a terminal; without one: "
            f"appliance baseline {action} {name} --yes",
            Exit.USAGE,
        )
    report = baseline_in(details_of(arguments, BaselineRequest(name)))
    for series in () if report is None else report.series:
        change = _consequence(series, action)
        streams.err.line(f"{series.series:8} {change}")
    streams.err.write("keep? [y/N] " if action == "accept" else "forget it? [y/N] ")
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _consequence(series: SeriesBaseline, action: str) -> str:
    if action == "accept":
        return accept_text(series) or "nothing to compare: the next probes make the baseline"
    return f"{level_text(series)} → none, until the next probes have made another"


_CLEAR = "\r\x1b[2K"
_ENDED = "ended"


class ProbeLines:
    """Display of the progress of prompts.

    Args:
        terminal: Where a prompt's line is redrawn; elsewhere it is written once, when the prompt
            has ended.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._is_drawn = False

    def show(self, event: ProbeProgressEvent) -> None:
        """Show one event."""
        line = _progress_line(event)
        if event.state == _ENDED:
            self.end()
            self._terminal.line(line)
        elif self._terminal.interactive:
            self._terminal.draw(_CLEAR, line[: self._terminal.width() - 1])
            self._is_drawn = True

    def end(self) -> None:
        """Remove a line that is not complete."""
        if self._is_drawn:
            self._terminal.draw(_CLEAR)
            self._is_drawn = False


def _progress_line(event: ProbeProgressEvent) -> str:
    rate = "" if event.tok_s is None else f"  {rate_text(event.tok_s)} tok/s"
    text = f"  {event.text}" if event.text else ""
    return f"{event.profile}  {event.prompt:20}  {event.state:8}{rate}{text}"


def outcome_line(event: ProbedEvent) -> str:
    """Return the figures of a probe that measured, else its outcome and the reason."""
    if event.outcome != "valid":
        outcome = event.outcome.replace("-", " ") or "not probed"
        return f"{event.profile}  {outcome}{f': {event.text}' if event.text else ''}"
    parts = [event.profile]
    if event.decode_tok_s is not None:
        parts.append(f"decode {rate_text(event.decode_tok_s)} tok/s")
    if event.prefill_tok_s is not None:
        parts.append(f"prefill {rate_text(event.prefill_tok_s)} tok/s")
    if event.ttft_s is not None:
        parts.append(f"TTFT {event.ttft_s:.2f} s")
    if event.change is not None:
        parts.append(f"{change_text(event.change)} of the baseline")
    return "  ".join(parts)


_VALID = "valid"


def _probed(name: str | None, arguments: Arguments, streams: Streams) -> Sequence[str]:
    """Show the probe of one profile, or of all that serve; return how each ended."""
    outcomes = []
    lines = ProbeLines(streams.err)
    with talk(arguments, ProbeNowRequest(name)) as conversation:
        for event in conversation.events():
            if isinstance(event, ErrorEvent):
                lines.end()
                raise RequestRefusedError(event)
            if arguments.json:
                streams.out.verbatim(conversation.last_line)
            elif isinstance(event, ProbeProgressEvent):
                lines.show(event)
            elif isinstance(event, ProbedEvent):
                lines.end()
                streams.out.line(outcome_line(event))
            if isinstance(event, ProbedEvent):
                outcomes.append(event.outcome)
    return outcomes
