"""Sender to ntfy: its JSON form, sequence ids, scheduled messages.

=====================================  ============================================================
Answer                                 Outcome
=====================================  ============================================================
200 to 299, a message of ntfy          sent
the same status, anything else         retry: a login page, or another server
300 to 399                             retry: a redirect delivers nothing, and is not followed
408, 421, 423, 425, 429                retry, after the time that the answer asks for
other 4xx, an error of ntfy            refused: it would refuse the same message again
other 4xx                              retry: a proxy whose server is away answers so
5xx                                    retry
=====================================  ============================================================

Before a message is scheduled for the first time, the server must have shown that it knows sequence ids: an
older one would deliver each scheduled message, one a minute. It shows that in its answer to any message
with such an id, or to the deletion of one that does not exist.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from appliance.model.alerts import Message, SendOutcome, SendResult, Severity
from appliance.model.json_reader import decode_json
from appliance.model.targets import PUBLIC_NTFY, NtfyAddress, Target, ntfy_address
from appliance.notifier.web_client import WebAnswer, WebError, fetch

PRIORITIES: Final[Mapping[Severity, int]] = {
    Severity.CRITICAL: 5,
    Severity.WARNING: 4,
    Severity.INFO: 2,
}
RESOLVED_PRIORITY: Final = 3
MOST_BODY_BYTES: Final = 4000
"""ntfy makes an attachment of a longer message than 4096 bytes."""
_MOST_TITLE: Final = 250
_MOST_ACTIONS: Final = 3
_LEAST_DELAY_S: Final = 10
_MOST_DELAY_S: Final = 3 * 86_400
_SEQUENCE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PROBE: Final = "appliance-knows-sequence-ids"
"""Sequence id that no message has."""
_PASSING: Final = frozenset({408, 421, 423, 425, 429})


class NtfySender:
    """Sender to one topic.

    Args:
        target: Target with an address of ntfy.
    """

    def __init__(self, target: Target) -> None:
        address = ntfy_address(target.url)
        if address is None:
            raise ValueError("no target of ntfy")
        self._target = target
        self._address = address
        self.scheduled: bool | None = None
        """Whether the server keeps and cancels scheduled messages by their sequence id; None: not known."""

    async def send(self, message: Message) -> SendResult:
        """Publish a message."""
        return await self._publish(_form(message, self._address, self._target))

    async def schedule(self, message: Message, delay_s: float) -> SendResult:
        """Have a message delivered later, in place of the last one of its sequence id."""
        if reason := self._why_not_scheduled(message):
            return _refused(reason)
        if self.scheduled is None:
            shown = await self._ask("DELETE", f"/{self._address.topic}/{_PROBE}")
            if shown.outcome is SendOutcome.RETRY:
                return shown
            self.scheduled = shown.outcome is SendOutcome.SENT
        if not self.scheduled:
            return _refused("its server keeps no scheduled messages: ntfy does from 2.16 on")
        delay = min(max(round(delay_s), _LEAST_DELAY_S), _MOST_DELAY_S)
        form = _form(message, self._address, self._target)
        return await self._publish({**form, "delay": f"{delay}s"})

    async def cancel(self, sequence_id: str) -> SendResult:
        """Take back the scheduled message of a sequence id; one that was delivered is deleted."""
        if not _SEQUENCE_ID.fullmatch(sequence_id):
            return _refused("no sequence id")
        return await self._ask("DELETE", f"/{self._address.topic}/{sequence_id}")

    def _why_not_scheduled(self, message: Message) -> str:
        if not _SEQUENCE_ID.fullmatch(message.sequence_id):
            return "a scheduled message needs a sequence id"
        if self._target.box_silent is False:
            return "box_silent is false for it"
        if self._target.box_silent is None and self._address.host == PUBLIC_NTFY:
            return (
                f"{PUBLIC_NTFY} takes 250 messages a day, too few: box_silent = true uses it anyway"
            )
        return ""

    async def _publish(self, form: Mapping[str, Any]) -> SendResult:
        body = json.dumps(form, ensure_ascii=False).encode(errors="replace")
        return await self._ask("POST", "/", body, sequence_id=form.get("sequence_id", ""))

    async def _ask(
        self, method: str, path: str, body: bytes | None = None, *, sequence_id: str = _PROBE
    ) -> SendResult:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if self._address.authorization:
            headers["Authorization"] = self._address.authorization
        scheme = "https" if self._address.is_encrypted else "http"
        url = f"{scheme}://{self._address.server}{path}"
        try:
            answer = await fetch(method, url, headers=headers, body=body)
        except WebError as error:
            return SendResult(outcome=SendOutcome.RETRY, text=str(error))
        document = _document(answer.body)
        result = result_of(answer, document)
        if result.outcome is SendOutcome.SENT and sequence_id:
            self.scheduled = isinstance(document.get("sequence_id"), str)
        return result


def result_of(answer: WebAnswer, document: Mapping[str, Any]) -> SendResult:
    """Return what an answer of ntfy, or of something in its place, means."""
    status, wait_s = answer.status, answer.retry_after_s
    if status in range(200, 300):
        if isinstance(document.get("id"), str):
            return SendResult(outcome=SendOutcome.SENT)
        text = f"{status}, and no answer of ntfy: another server is at its address"
    elif status in range(300, 400):
        text = f"a redirect ({status}): nothing was delivered"
    elif status in range(400, 500) and status not in _PASSING and _is_refusal(document):
        return _refused(f"ntfy refuses the message ({status})")
    else:
        text = f"its server answers {status}"
    return SendResult(outcome=SendOutcome.RETRY, text=text, retry_after_s=wait_s)


def _is_refusal(document: Mapping[str, Any]) -> bool:
    return type(document.get("code")) is int and type(document.get("http")) is int


def _document(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object of an answer; empty: there is none."""
    try:
        document = decode_json(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _refused(text: str) -> SendResult:
    return SendResult(outcome=SendOutcome.REFUSED, text=text)


def _form(message: Message, address: NtfyAddress, target: Target) -> dict[str, Any]:
    """Return a message in ntfy's JSON form, without what is empty."""
    sequence = message.sequence_id
    form = {
        "topic": address.topic,
        "title": message.title[:_MOST_TITLE],
        "message": clipped(message.body, MOST_BODY_BYTES),
        "priority": RESOLVED_PRIORITY if message.resolved else PRIORITIES[message.severity],
        "tags": list(message.tags),
        "click": message.click_url or target.click_url,
        "sequence_id": sequence if _SEQUENCE_ID.fullmatch(sequence) else "",
        "actions": [
            {"action": "http", "label": a.label, "url": a.url, "method": "POST", "clear": True}
            for a in message.actions[:_MOST_ACTIONS]
        ],
    }
    return {key: value for key, value in form.items() if value}


def clipped(text: str, most_bytes: int) -> str:
    """Return a text of at most so many bytes in UTF-8."""
    raw = text.encode(errors="replace")
    if len(raw) <= most_bytes:
        return raw.decode()
    return raw[: most_bytes - len("…".encode())].decode(errors="ignore") + "…"
