"""Verb `appliance target`: receivers of alerts.

Addresses hold secrets, with ntfy the topic itself: they come from the terminal or from standard input,
and none is printed. The QR code is a picture of one, so it is drawn on a terminal alone.
"""

import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from appliance.cli.arguments import Arguments
from appliance.cli.failures import CliError, need_root
from appliance.cli.health_questions import result_of
from appliance.cli.terminal import Streams, Style, Terminal
from appliance.cli.verbs.credentials import table_lines
from appliance.install.target_desk import TargetDesk
from appliance.model.alerts import SendOutcome, Severity
from appliance.model.paths import TARGETS_FILE
from appliance.model.targets import (
    NTFY,
    Target,
    Targets,
    check_name,
    check_web_address,
    kind_of,
    ntfy_address,
)
from appliance.model.value_types import WrongValueError
from appliance.settings.loader import load_settings
from appliance.system.apprise_sender import check_by_apprise
from appliance.system.systemd.systemctl import Systemctl
from appliance.wire.alert_requests import TestAlertRequest
from appliance.wire.control import Exit
from appliance.wire.json_values import Json, objects_in, text_in

_HEADS: Final = ("NAME", "KIND", "SERVER", "TOLD OF")
_TOLD: Final = {
    Severity.CRITICAL: "critical",
    Severity.WARNING: "warnings, critical",
    Severity.INFO: "all",
}
_NAMELESS: Final = frozenset({"ls", "heartbeat"})
_BORDER: Final = 2
"""Light modules around the code. The standard wants four; readers do with two."""
_BLOCKS: Final = {(True, True): " ", (True, False): "▄", (False, True): "▀", (False, False): "█"}
"""Character for an upper and a lower module, each dark or not, where characters are light."""


def run(arguments: Arguments, streams: Streams) -> int:
    """Add, list, remove or try targets."""
    _check(arguments)
    if arguments.action == "test":
        return _test(arguments, streams)
    if os.geteuid() != 0:
        named = f" {arguments.name}" if arguments.name else ""
        raise need_root(f"target {arguments.action}{named}")
    desk = TargetDesk(Path(TARGETS_FILE), load_settings().target_names, Systemctl())
    return carry_out(desk, arguments, streams)


def carry_out(desk: TargetDesk, arguments: Arguments, streams: Streams) -> int:
    """Carry out what only root may. Raises `ApplianceError`."""
    match arguments.action:
        case "add":
            _add(desk, arguments, streams)
        case "rm":
            desk.remove(arguments.name)
            _say(f"{arguments.name} is told of nothing any more", arguments, streams)
        case "qr":
            _show_code(_subscription(desk.targets(), arguments.name), streams.out)
        case "heartbeat":
            url = _address(arguments, "address of the outside watch (empty: none): ", streams.err)
            desk.set_heartbeat(_checked("the address", check_web_address, url) if url else "")
            _say("pinged once a minute" if url else "nothing is pinged", arguments, streams)
        case _:
            _list(desk.targets(), arguments, streams.out)
    return int(Exit.OK)


def _check(arguments: Arguments) -> None:
    """Check that the arguments belong to the action. Raises `CliError`."""
    action = arguments.action
    if (arguments.name is None) != (action in _NAMELESS):
        what = "takes no NAME" if action in _NAMELESS else "wants a NAME"
        raise CliError(f"target {action} {what}: appliance target --help", Exit.USAGE)
    options = (arguments.min_severity, arguments.click, arguments.box_silent)
    has_url = arguments.url is not None and action not in {"add", "heartbeat"}
    if has_url or (action != "add" and any(option is not None for option in options)):
        raise CliError(f"target {action} takes no options: appliance target --help", Exit.USAGE)


def _add(desk: TargetDesk, arguments: Arguments, streams: Streams) -> None:
    name = _checked("the name", check_name, arguments.name)
    url = _address(arguments, f"address of {name}: ", streams.err)
    kind = _checked("the address", kind_of, url)
    if kind != NTFY:
        checked = check_by_apprise(url)
        if checked.outcome is not SendOutcome.SENT:
            raise CliError(f"{checked.text}: see docs/reference/targets.md", Exit.CONFIG)
    silent = arguments.box_silent
    target = Target(
        name=name,
        url=url,
        min_severity=Severity(arguments.min_severity or Severity.INFO),
        click_url=_checked("--click", check_web_address, arguments.click)
        if arguments.click
        else "",
        box_silent=None if silent is None else silent == "yes",
    )
    desk.add(target)
    if (address := ntfy_address(url)) is not None:
        if address.authorization and not address.is_encrypted:
            streams.err.line("its credential goes over the network as it is: ntfys:// encrypts")
        if streams.out.interactive and not arguments.json:
            _show_code(address.subscription, streams.out)
    _say(f"{name} is told of alerts; to try it: appliance target test {name}", arguments, streams)


def _address(arguments: Arguments, question: str, err: Terminal) -> str:
    """Return the address of the command line, of standard input, or as typed at the terminal."""
    if arguments.url not in {None, "-"}:
        err.line(
            "the address was in the list of processes, and is in the shell's history:"
            " leave --url out to be asked for it"
        )
        return str(arguments.url)
    if arguments.url is None and sys.stdin.isatty():
        return getpass.getpass(question).strip()
    return sys.stdin.readline().strip()


def _checked(what: str, check: Callable[[str], str], text: str) -> str:
    try:
        return check(text)
    except WrongValueError as error:
        raise CliError(f"{what} {error}", Exit.USAGE) from None


def _list(targets: Targets, arguments: Arguments, out: Terminal) -> None:
    rows = [_row(target) for target in targets.targets]
    if arguments.json:
        keys = ("name", "kind", "server", "min_severity")
        listed = [dict(zip(keys, row, strict=True)) for row in rows]
        out.document({"targets": listed, "heartbeat": bool(targets.heartbeat_url)})
        return
    if not rows:
        out.line("nobody is told of alerts: sudo appliance target add NAME")
    else:
        told = [(*row[:3], _TOLD[Severity(row[3])]) for row in rows]
        for line in table_lines([_HEADS, *told], out):
            out.line(line)
    out.line(f"outside watch: {'pinged once a minute' if targets.heartbeat_url else 'none'}")


def _row(target: Target) -> tuple[str, str, str, str]:
    """Return a target without its secrets: of an address for apprise any part may be one."""
    address = ntfy_address(target.url)
    server = "" if address is None else address.server
    return target.name, kind_of(target.url), server, target.min_severity.value


def _test(arguments: Arguments, streams: Streams) -> int:
    """Send a test alert through the outbox and the notifier; 0: the target has it."""
    result = result_of(arguments, TestAlertRequest(arguments.name))
    if arguments.json:
        streams.out.document({"message": result.message, **result.details})
        return result.exit
    streams.out.line(result.message)
    for row in objects_in(result.details, "targets"):
        streams.out.line(f"    {text_in(row, 'target')}: {_state(row)}")
    return result.exit


def _state(row: Json) -> str:
    state, said = text_in(row, "state"), text_in(row, "text")
    return f"{state} ({said})" if said else state


def _subscription(targets: Targets, name: str) -> str:
    target = next((one for one in targets.targets if one.name == name), None)
    if target is None:
        raise CliError(f"there is no target {name}: appliance target ls", Exit.FAILED)
    address = ntfy_address(target.url)
    if address is None:
        raise CliError(f"{name} is no topic of ntfy: only those are subscribed to", Exit.FAILED)
    return address.subscription


def _show_code(link: str, out: Terminal) -> None:
    """Draw a link as a QR code, two modules a character. Raises `CliError`."""
    import segno  # noqa: PLC0415 - drawn rarely

    if not (out.interactive and out.unicode):
        raise CliError(
            "the code is a secret: it is drawn on a terminal alone, which knows UTF-8", Exit.USAGE
        )
    rows = [
        [bool(module) for module in row] for row in segno.make(link).matrix_iter(border=_BORDER)
    ]
    rows += [[False] * len(rows[0])] * (len(rows) % 2)
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        text = "".join(_BLOCKS[pair] for pair in zip(upper, lower, strict=True))
        # White on black whatever the colours of the terminal are: readers want light around dark.
        out.line(out.paint(text, Style.WHITE_ON_BLACK))
    out.line("scan it with an Android phone that has the app ntfy; on others subscribe by hand")


def _say(text: str, arguments: Arguments, streams: Streams) -> None:
    if arguments.json:
        streams.out.document({"message": text})
    else:
        streams.out.line(text)
