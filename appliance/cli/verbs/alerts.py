"""Verbs `appliance alerts` and `appliance window`: what is wrong, who is told, and times in which nobody is."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.event_lines import STYLES, alert_event_line
from appliance.cli.failures import CliError
from appliance.cli.health_questions import result_of
from appliance.cli.terminal import Streams, Terminal
from appliance.model.events import AlertEvent
from appliance.presentation.alert_texts import (
    alert_glyph,
    alert_severity,
    alert_text,
    delivery_line,
    moment,
    silence_text,
    subject_name,
    window_text,
)
from appliance.wire.alert_requests import (
    SILENCE_S,
    AckRequest,
    AddWindowRequest,
    AlertQuestion,
    AlertRequest,
    AlertsRequest,
    OutboxRequest,
    RemoveWindowRequest,
    SilenceRequest,
    TestAlertRequest,
    UnsilenceRequest,
    WindowsRequest,
)
from appliance.wire.control import Exit
from appliance.wire.conversation import ResultEvent
from appliance.wire.health_socket import HEALTH
from appliance.wire.json_values import (
    Json,
    encode_json,
    number_in,
    object_in,
    objects_in,
    text_in,
    texts_in,
)

_OUTBOX_ROWS: Final = 20
_MOST_OUTBOX_ROWS: Final = 1000
_WANTS: Final[Mapping[str, str]] = {
    "show": "an alert",
    "ack": "an alert",
    "silence": "a name",
    "unsilence": "a name",
}
"""Argument that an action needs, by the action."""
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "silence_s": frozenset({"silence"}),
    "reason": frozenset({"silence"}),
    "lines": frozenset({"outbox"}),
    "name": frozenset({*_WANTS, "test"}),
}
"""Actions that an argument belongs to, by the argument."""
_ARGUMENTS: Final[Mapping[str, str]] = {
    "silence_s": "--for",
    "reason": "--reason",
    "lines": "--lines",
    "name": "NAME",
}


def run_alerts(arguments: Arguments, streams: Streams) -> int:
    """Show alerts, or change which messages are sent of them."""
    action = arguments.action or "list"
    _check(action, arguments)
    result = result_of(arguments, _request(action, arguments))
    if arguments.json:
        streams.out.document(_document(result))
        return result.exit
    for line in alert_screen(action, result, streams.out, now=time.time()):
        streams.out.line(line)
    return result.exit


def run_window(arguments: Arguments, streams: Streams) -> int:
    """Add, list or remove planned windows."""
    result = result_of(arguments, _window_request(arguments))
    if arguments.json:
        message = {"message": result.message} if result.message else {}
        streams.out.document({**message, **result.details})
    elif arguments.action == "ls":
        windows = objects_in(result.details, "windows")
        for window in windows:
            streams.out.line(window_text(window))
        if not windows:
            streams.out.line("no window: appliance window add NAME --from 02:00 --for 90m")
    else:
        streams.out.line(result.message)
    return int(Exit.OK)


def _check(action: str, arguments: Arguments) -> None:
    """Check that the arguments belong to the action. Raises `CliError`."""
    hint = "appliance alerts --help"
    if action in _WANTS and arguments.name is None:
        raise CliError(f"alerts {action} wants {_WANTS[action]}: {hint}", Exit.USAGE)
    for argument, actions in _TAKES.items():
        if getattr(arguments, argument) is not None and action not in actions:
            raise CliError(f"alerts {action} takes no {_ARGUMENTS[argument]}: {hint}", Exit.USAGE)


def _request(action: str, arguments: Arguments) -> AlertQuestion:
    # People copy an alert's id with the sign that messages put before it.
    name = "" if arguments.name is None else arguments.name.removeprefix("#")
    requests: Mapping[str, Callable[[], AlertQuestion]] = {
        "list": AlertsRequest,
        "show": lambda: AlertRequest(name),
        "ack": lambda: AckRequest(name),
        "silence": lambda: SilenceRequest(
            name, arguments.silence_s or SILENCE_S, arguments.reason or ""
        ),
        "unsilence": lambda: UnsilenceRequest(name),
        "test": lambda: TestAlertRequest(name or None),
        "outbox": lambda: OutboxRequest(_row_count(arguments)),
    }
    return requests[action]()


def _row_count(arguments: Arguments) -> int:
    most = _OUTBOX_ROWS if arguments.lines is None else arguments.lines
    return int(min(max(most, 1), _MOST_OUTBOX_ROWS))


def _document(result: ResultEvent) -> Json:
    return {**({"message": result.message} if result.message else {}), **result.details}


def alert_screen(action: str, result: ResultEvent, out: Terminal, *, now: float) -> Iterable[str]:
    """Return the lines of an answer of the health agent about alerts."""
    match action:
        case "list":
            yield from _list_lines(result.details, out, now)
        case "show":
            yield from _show_lines(result.details, out, now)
        case "outbox":
            rows = objects_in(result.details, "rows")
            yield from (row_text(row, now) for row in reversed(rows))
            yield delivery_line(object_in(result.details, "delivery"))
        case _:
            yield result.message
            for row in objects_in(result.details, "targets"):
                yield f"    {text_in(row, 'target')}: {_outcome(row)}"


def _list_lines(details: Json, out: Terminal, now: float) -> Iterable[str]:
    alerts = objects_in(details, "alerts")
    for alert in alerts:
        yield from _alert_lines(alert, out, now)
    if more := number_in(details, "left_off"):
        yield f"and {more:.0f} more"
    if not alerts:
        yield "no alert"
    yield from (silence_text(silence, now) for silence in objects_in(details, "silences"))
    yield from (f"window {window_text(window)}" for window in objects_in(details, "windows"))
    yield delivery_line(object_in(details, "delivery"))


def _alert_lines(alert: Json, out: Terminal, now: float) -> Iterable[str]:
    severity, name = alert_severity(alert), subject_name(text_in(alert, "subject"))
    title = f"{alert_glyph(alert)} {severity:8} {name} {alert_text(alert, now)}"
    yield out.paint(title, STYLES.get(severity, ""))
    yield from (f"    {detail}" for detail in texts_in(alert, "details"))
    if likely := text_in(alert, "likely"):
        yield f"    likely: {likely}"
    if command := text_in(alert, "command"):
        yield f"    do: {command}"


def _show_lines(details: Json, out: Terminal, now: float) -> Iterable[str]:
    alert = object_in(details, "alert")
    if alert:
        yield from _alert_lines(alert, out, now)
    for change in objects_in(details, "changes"):
        line = encode_json({**change, "event": "alert"}).encode()
        event = HEALTH.decode_event(line)
        if isinstance(event, AlertEvent):
            yield alert_event_line(event)
    yield from (row_text(row, now) for row in objects_in(details, "rows"))


def row_text(row: Json, now: float) -> str:
    """Return an outbox row: ``04:12  sent       phone  #A17 fired: genesis slow …``."""
    transition = object_in(row, "transition")
    subject = object_in(transition, "subject")
    name = subject_name(f"{text_in(subject, 'kind')}:{text_in(subject, 'name')}")
    when = number_in(row, "settled_unix_s") or number_in(row, "created_unix_s") or 0.0
    what = f"#{text_in(transition, 'alert')} {text_in(transition, 'kind')}: {name}"
    fact, said = text_in(transition, "fact"), text_in(row, "text")
    head = (
        f"{moment(when, now)}  {text_in(row, 'state'):9}  {text_in(row, 'target')}  {what} {fact}"
    )
    return head.rstrip() + (f" ({said})" if said else "")


def _outcome(row: Json) -> str:
    state, said = text_in(row, "state"), text_in(row, "text")
    return f"{state} ({said})" if said else state


_OPTIONS: Final = ("days", "begin", "length_s", "profiles", "reason")
_MINUTE_S: Final = 60.0
_HINT: Final = "appliance window --help"


def _window_request(
    arguments: Arguments,
) -> AddWindowRequest | RemoveWindowRequest | WindowsRequest:
    action, name = arguments.action, arguments.name
    if (name is None) != (action == "ls"):
        what = "takes no NAME" if action == "ls" else "wants a NAME"
        raise CliError(f"window {action} {what}: {_HINT}", Exit.USAGE)
    if action != "add":
        if any(getattr(arguments, option) is not None for option in _OPTIONS):
            raise CliError(f"window {action} takes no options: {_HINT}", Exit.USAGE)
        return WindowsRequest() if action == "ls" else RemoveWindowRequest(name)
    if arguments.begin is None or arguments.length_s is None:
        raise CliError(f"window add wants --from and --for: {_HINT}", Exit.USAGE)
    return AddWindowRequest(
        name,
        arguments.begin,
        round(arguments.length_s / _MINUTE_S),
        tuple(arguments.days or ()),
        tuple(arguments.profiles or ()),
        arguments.reason or "",
    )
