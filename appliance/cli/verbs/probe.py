"""Verb `appliance probe`: measure at once, with the progress of each prompt."""

from collections.abc import Sequence

from appliance.cli.arguments import Arguments
from appliance.cli.health_questions import talk
from appliance.cli.probe_lines import ProbeLines, outcome_line
from appliance.cli.terminal import Streams
from appliance.wire.control import Exit
from appliance.wire.conversation import ErrorEvent, RequestRefusedError
from appliance.wire.health_socket import ProbedEvent, ProbeNowRequest, ProbeProgressEvent

_VALID = "valid"


def run(arguments: Arguments, streams: Streams) -> int:
    """Probe profiles one after the other, or all that serve; the status is 0 when each was measured."""
    outcomes = [
        outcome
        for name in dict.fromkeys(arguments.names) or (None,)
        for outcome in _probed(name, arguments, streams)
    ]
    measured = bool(outcomes) and all(outcome == _VALID for outcome in outcomes)
    return int(Exit.OK if measured else Exit.FAILED)


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
