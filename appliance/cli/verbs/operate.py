"""The verbs that ask the supervisor for something: switch, start, stop, restart, hold."""

from argparse import Namespace
from collections.abc import Mapping, Sequence

from appliance.cli.box import places_of
from appliance.cli.control_client import Conversation, closing_status
from appliance.cli.failures import CliError, UnreachableError
from appliance.cli.operation_follower import Follower, conclude, follower_of
from appliance.cli.paths import Places
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.domain.errors import StoreError
from appliance.domain.names import HOLD_UNIT, unit_of
from appliance.planning.wording import joined
from appliance.protocol.control import Exit, Verb
from appliance.protocol.json_fields import Json, object_in, objects_in, text_in, texts_in

_LEVELS = {"ok": ("✓", Style.GREEN), "warn": ("⚠", Style.YELLOW), "refuse": ("✗", Style.RED)}


def run_switch(arguments: Namespace, streams: Streams) -> int:
    """Switch to one profile, or say what a switch would do."""
    request = {
        "name": arguments.name,
        "dry_run": arguments.dry_run,
        "rollback": not arguments.no_rollback,
        "drain_s": arguments.drain_s,
    }
    by_hand = f"sudo systemctl start {_unit(arguments.name)}"
    return _operate(Verb.SWITCH, request, arguments, streams, by_hand)


def run_start(arguments: Namespace, streams: Streams) -> int:
    """Start profiles beside what runs."""
    return _units(Verb.START, {}, arguments, streams)


def run_stop(arguments: Namespace, streams: Streams) -> int:
    """Stop profiles."""
    return _units(Verb.STOP, {"drain_s": arguments.drain_s}, arguments, streams)


def run_restart(arguments: Namespace, streams: Streams) -> int:
    """Stop profiles and start them again."""
    return _units(Verb.RESTART, {"drain_s": arguments.drain_s}, arguments, streams)


def run_hold(arguments: Namespace, streams: Streams) -> int:
    """Stop everything and keep it so."""
    request = {"for_s": arguments.hold_s, "drain_s": arguments.drain_s}
    return _operate(Verb.HOLD, request, arguments, streams, f"sudo systemctl start {HOLD_UNIT}")


def run_cancel(arguments: Namespace, streams: Streams) -> int:
    """Cancel the running operation."""
    return _operate(Verb.CANCEL, {}, arguments, streams)


def run_mark(arguments: Namespace, streams: Streams) -> int:
    """Mark one profile."""
    request = {"name": arguments.name, "mark": arguments.mark}
    return _operate(Verb.MARK, request, arguments, streams)


def _units(
    verb: Verb, request: Mapping[str, object], arguments: Namespace, streams: Streams
) -> int:
    names: Sequence[str] = arguments.names
    units = " ".join(_unit(n) for n in names) or "appliance-backend-NAME"
    return _operate(
        verb, {"names": names, **request}, arguments, streams, f"sudo systemctl {verb} {units}"
    )


def _unit(name: str) -> str:
    return unit_of(name).removesuffix(".service")


def _operate(
    verb: Verb,
    request: Mapping[str, object],
    arguments: Namespace,
    streams: Streams,
    by_hand: str = "",
) -> int:
    places = places_of(arguments)
    try:
        conversation = Conversation(places.control_socket, verb, request)
    except UnreachableError as error:
        raise _without_supervisor(error, places, arguments, by_hand) from error
    follower = follower_of(
        places.control_socket,
        streams,
        as_json=arguments.json,
        timeout_s=getattr(arguments, "timeout_s", None),
    )
    closing = follower.follow(conversation, until_accepted=getattr(arguments, "no_wait", False))
    return _ended(closing, follower, arguments, streams)


def _ended(closing: Json | None, follower: Follower, arguments: Namespace, streams: Streams) -> int:
    if closing is None:
        if not arguments.json:
            streams.out.line(f"{follower.what()} has begun: appliance wait follows it")
        return int(Exit.OK)
    if arguments.json:
        return closing_status(closing)
    if "plan" in closing:
        _show_plan(closing, streams.out)
        return closing_status(closing)
    return conclude(closing, streams)


def _without_supervisor(
    error: UnreachableError, places: Places, arguments: Namespace, by_hand: str
) -> CliError:
    """What to do instead; a wrong name is still told as such where the manifest can be read."""
    from appliance.cli.catalogue import applied_of  # noqa: PLC0415 - slow path

    for name in [arguments.name] if arguments.name else arguments.names:
        try:
            applied_of(places, name)
        except StoreError:
            break
    if not by_hand:
        return error
    return UnreachableError(f"{error} (or, without it: {by_hand})")


def _show_plan(closing: Json, out: Terminal) -> None:
    plan = object_in(closing, "plan")
    out.line(f"would stop   {joined(texts_in(plan, 'stop'))}")
    out.line(f"would start  {joined(texts_in(plan, 'start'))}")
    if plan.get("committed_after") is not None:
        out.line(f"after a boot {joined(texts_in(plan, 'committed_after'))}")
    for finding in objects_in(closing, "findings"):
        glyph, style = _LEVELS.get(text_in(finding, "level"), ("·", Style.PLAIN))
        out.line(f" {out.paint(glyph, style)} {text_in(finding, 'text')}")
    out.line(text_in(closing, "message"))
