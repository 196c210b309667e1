"""Lines about a probe while somebody waits for it: one a prompt, redrawn on a terminal."""

from appliance.cli.terminal import Terminal
from appliance.status.speed_row import change_text, rate_text
from appliance.wire.health_socket import ProbedEvent, ProbeProgressEvent

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
