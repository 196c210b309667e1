"""Screen of one request: the events of its operation as they come, and its end."""

from __future__ import annotations

from appliance.cli.arguments import Arguments
from appliance.cli.conclusion import conclude, exit_status
from appliance.cli.need_lines import need_lines
from appliance.cli.operation_follower import OperationFollower
from appliance.cli.progress_lines import cancel_heading, heading, progress_for
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.model.wording import joined
from appliance.wire.client import Conversation
from appliance.wire.control import Exit
from appliance.wire.control_events import ClosingEvent, ControlEvent
from appliance.wire.conversation import ResultEvent
from appliance.wire.json_values import object_in, objects_in, text_in, texts_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LEVELS = {"ok": ("✓", Style.GREEN), "warn": ("⚠", Style.YELLOW), "refuse": ("✗", Style.RED)}


def show_operation(
    conversation: Conversation[ControlEvent], path: str, arguments: Arguments, streams: Streams
) -> int:
    """Show what the supervisor answers, and return the exit status.

    Args:
        conversation: The request, which was sent.
        path: The control socket, to find the operation again on.
        arguments: Those of the verb.
        streams: For events, progress and the end.
    """
    no_wait = getattr(arguments, "no_wait", False)
    follower = OperationFollower(
        conversation,
        path,
        progress=progress_for(
            streams.err,
            silent=arguments.json or no_wait,
            heading=cancel_heading if arguments.verb == "cancel" else heading,
        ),
        raw=streams.out if arguments.json else None,
        timeout_s=getattr(arguments, "timeout_s", None),
    )
    closing = follower.follow(until_accepted=no_wait)
    if closing is not None:
        return _ended(closing, arguments, streams)
    if not arguments.json:
        streams.out.line(f"{follower.what()} has begun: appliance wait follows it")
    return Exit.OK


def _ended(closing: ClosingEvent, arguments: Arguments, streams: Streams) -> int:
    if arguments.json:
        return exit_status(closing)
    if isinstance(closing, ResultEvent) and "plan" in closing.details:
        for line in plan_lines(closing, streams.out):
            streams.out.line(line)
        return exit_status(closing)
    return conclude(closing, streams)


def plan_lines(closing: ResultEvent, out: Terminal) -> Iterable[str]:
    """Return what a rehearsed operation would do, and what its preflight finds."""
    plan = object_in(closing.details, "plan")
    yield f"would stop   {joined(texts_in(plan, 'stop'))}"
    yield f"would start  {joined(texts_in(plan, 'start'))}"
    if plan.get("committed_after") is not None:
        yield f"after a boot {joined(texts_in(plan, 'committed_after'))}"
    for finding in objects_in(closing.details, "findings"):
        glyph, style = _LEVELS.get(text_in(finding, "level"), ("·", Style.PLAIN))
        yield f" {out.paint(glyph, style)} {text_in(finding, 'text')}"
    needs = object_in(closing.details, "estimates")
    for name in needs:
        for label, text in need_lines(object_in(needs, name)):
            yield f"   {name} {label}: {text}" if label else f"     {text}"
    yield closing.message
