"""Program that sends one message through apprise, or checks an address, and ends.

It reads one order, a line of JSON, from standard input, and prints one answer: ``outcome`` and ``text``. A
process of its own, because apprise takes 45 MiB, logs addresses, has no deadline that holds, and keeps
an interpreter from ending. Nothing of apprise's reaches the outside: its log is off, and standard error is
closed by whoever starts this.
"""

import json
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping
from typing import Any, Final

DEADLINE_S: Final = 20
_MOST_MEMORY_BYTES: Final = 256 << 20
"""Address space; apprise itself takes 55 MiB of it."""
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "critical": ("high", "urgent", "critical", "max"),
    "info": ("low", "min", "silent"),
}
"""Priorities by severity, the first that a service knows; of others it has the service's own."""
_TYPES: Final = {"critical": "failure", "warning": "warning", "info": "info"}


def main() -> None:
    """Carry out the order, and end at once whatever threads there are."""
    signal.alarm(DEADLINE_S + 1)
    # requests keeps the whole answer of a service, however large.
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    logging.disable(logging.CRITICAL)
    try:
        answer = _answer(json.loads(sys.stdin.buffer.readline()))
    except BaseException as error:  # noqa: BLE001 - its text may hold the address
        answer = {"outcome": "retry", "text": f"apprise failed ({type(error).__name__})"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)


def _answer(order: Mapping[str, Any]) -> Mapping[str, str]:
    import apprise  # noqa: PLC0415 - the imports count as time of the order
    from apprise.plugins import url_to_dict  # noqa: PLC0415

    asset = apprise.AppriseAsset(
        app_id="appliance",
        async_mode=False,
        http_redirects=False,
        secure_logging=True,
    )
    parse: Any = url_to_dict
    parts = parse(order["url"], secure_logging=True)
    if parts is None:
        return {"outcome": "refused", "text": "apprise knows no such address"}
    # An address of the operator's own may ask for redirects: a login page then counts as success.
    parts = {**parts, "asset": asset, "redirect": False}
    if not parts.get("priority") and (word := _priority(parts["schema"], order["severity"])):
        parts["priority"] = word
    service = apprise.Apprise.instantiate(parts, asset=asset)
    if service is None:
        return {"outcome": "refused", "text": "apprise cannot use this address"}
    if order.get("check"):
        return {"outcome": "sent", "text": str(service.service_name)}
    sender = apprise.Apprise(asset=asset)
    sender.add(service)
    kind = "success" if order["resolved"] else _TYPES.get(order["severity"], "info")
    sent = sender.notify(
        title=order["title"], body=order["body"], notify_type=apprise.NotifyType(kind)
    )
    if sent:
        return {"outcome": "sent", "text": ""}
    return {"outcome": "retry", "text": "the service did not take it"}


def _priority(schema: str, severity: str) -> str:
    """Return the service's word for a severity; empty: it has none, or its own will do."""
    from apprise.manager_plugins import NotificationManager  # noqa: PLC0415

    manager: Any = NotificationManager
    plugin = manager()[schema]
    values = plugin.template_args.get("priority", {}).get("values") or ()
    known = set(values.values() if isinstance(values, dict) else values)
    return next((word for word in _WORDS.get(severity, ()) if word in known), "")


if __name__ == "__main__":
    main()
