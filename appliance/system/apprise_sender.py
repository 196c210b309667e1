"""Sender through apprise, in a child process with a hard deadline (`appliance.system.apprise_program`).

The address goes over standard input: arguments and environment of a process can be read by others.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from appliance.model.alerts import Message, SendOutcome, SendResult, Severity
from appliance.model.json_reader import decode_json
from appliance.system import apprise_program
from appliance.system.apprise_program import DEADLINE_S

_COMMAND: Final = (sys.executable, "-I", apprise_program.__file__)
_AUTHORITIES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
"""Certificate authorities of Debian: apprise brings others, without the operator's own."""
_MOST_ANSWER_BYTES: Final = 4096
_GRACE_S: Final = 2.0
"""Time beyond the child's own deadline."""


async def send_by_apprise(
    url: str, message: Message, *, deadline_s: float = DEADLINE_S + _GRACE_S
) -> SendResult:
    """Send a message to an address that apprise knows."""
    child = await asyncio.create_subprocess_exec(
        *_COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
        limit=_MOST_ANSWER_BYTES,
    )
    order = _order(
        url,
        title=message.title,
        body=message.body,
        severity=message.severity.value,
        resolved=message.resolved,
    )
    answer = b""
    try:
        async with asyncio.timeout(deadline_s):
            answer, _ = await child.communicate(order)
    except TimeoutError:
        return SendResult(
            outcome=SendOutcome.RETRY,
            text=f"the service has not answered within {deadline_s:.0f} s",
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    return _result(answer)


def check_by_apprise(url: str) -> SendResult:
    """Check whether apprise knows an address, without sending; the text names the service."""
    order = _order(url, severity=Severity.INFO.value, check=True)
    try:
        done = subprocess.run(  # noqa: S603 - the command is ours
            _COMMAND,
            input=order,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            timeout=DEADLINE_S + _GRACE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return SendResult(outcome=SendOutcome.RETRY, text="apprise does not answer")
    return _result(done.stdout)


def _order(url: str, **fields: object) -> bytes:
    return json.dumps({"url": url, **fields}).encode() + b"\n"


def _environment() -> dict[str, str]:
    more = {"REQUESTS_CA_BUNDLE": str(_AUTHORITIES)} if _AUTHORITIES.is_file() else {}
    return {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent", **more}


def _result(answer: bytes) -> SendResult:
    try:
        document = decode_json(answer[:_MOST_ANSWER_BYTES])
        return SendResult(outcome=SendOutcome(document["outcome"]), text=str(document["text"]))
    except (ValueError, KeyError, TypeError):
        return SendResult(outcome=SendOutcome.RETRY, text="apprise ended without an answer")
