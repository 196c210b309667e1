"""Sender through apprise: a real child with the real apprise, against a local webhook."""

import json
import resource
import time
from collections.abc import Iterator
from typing import Any

import pytest

from appliance.model.alerts import Message, SendOutcome, Severity
from appliance.system.apprise_sender import check_by_apprise, send_by_apprise
from tests.fakes.engine_server import EngineServer, Talk
from tests.fakes.ntfy_server import NtfyServer

MESSAGE = Message(
    title="genesis down", body="Größe ✓\nDo: appliance status", severity=Severity.CRITICAL
)


@pytest.fixture
def server() -> Iterator[NtfyServer]:
    with NtfyServer() as running:
        yield running


def hooks(server: NtfyServer) -> list[Any]:
    return [json.loads(hook["body"]) for hook in server.state()["hooks"]]


async def test_a_message_arrives_at_a_webhook(server: NtfyServer) -> None:
    """Title, text and kind of message arrive at a service that apprise serves."""
    result = await send_by_apprise(f"json://u:SECRET@{server.address}/hook/a", MESSAGE)
    assert result.outcome is SendOutcome.SENT
    (hook,) = hooks(server)
    assert (hook["title"], hook["message"], hook["type"]) == (
        MESSAGE.title,
        MESSAGE.body,
        "failure",
    )
    assert server.state()["credentials"] == ["u:SECRET"]


@pytest.mark.parametrize(
    "orders", [{"status": 302, "times": 1}, {"status": 500}, {"hang_up": "before"}]
)
async def test_a_failure_is_no_success(server: NtfyServer, orders: dict[str, Any]) -> None:
    """A redirect to a login page is a failure even where the address asks to follow it."""
    server.control(orders)
    url = f"json://{server.address}/hook/SECRET?redirect=yes"
    result = await send_by_apprise(url, MESSAGE)
    assert result.outcome is SendOutcome.RETRY
    assert "SECRET" not in result.text
    assert hooks(server) == []


async def test_a_hanging_service_meets_the_deadline(server: NtfyServer) -> None:
    """The child is killed at its deadline, and none is left."""
    server.control({"delay_s": 3})
    began = time.monotonic()
    result = await send_by_apprise(f"json://{server.address}/hook/a", MESSAGE, deadline_s=1.0)
    assert time.monotonic() - began < 3
    assert result.outcome is SendOutcome.RETRY
    assert "within 1 s" in result.text


async def test_an_endless_answer_is_bounded() -> None:
    """A service that never ends its answer costs the child a bounded amount of memory."""

    async def flood(talk: Talk) -> None:
        await talk.request()
        await talk.say(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await talk.say(b"x" * (1 << 20))

    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    async with EngineServer(flood) as service:
        url = f"json://127.0.0.1:{service.port}/hook/a"
        result = await send_by_apprise(url, MESSAGE)
    assert result.outcome is SendOutcome.RETRY
    # The most that any child of this process has taken, those of earlier tests included; until it executes
    # its program, a child has the memory of this process.
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert most <= max(before, own, 260 << 10)


@pytest.mark.parametrize(("severity", "priority"), [("critical", 8), ("warning", 5)])
async def test_a_service_with_priorities_gets_one(
    server: NtfyServer, severity: str, priority: int
) -> None:
    """A service that knows priorities has a critical message as a high one."""
    message = Message(title="t", body="b", severity=Severity(severity))
    await send_by_apprise(f"gotify://{server.address}/hook/abcdefghijklmno", message)
    (hook,) = hooks(server)
    assert hook["priority"] == priority


async def test_a_priority_of_the_address_is_kept(server: NtfyServer) -> None:
    """A priority in the address holds for every message."""
    url = f"gotify://{server.address}/hook/abcdefghijklmno?priority=emergency"
    await send_by_apprise(url, Message(title="t", body="b", severity=Severity.INFO))
    assert hooks(server)[0]["priority"] == 10


def test_an_address_is_checked_without_sending(server: NtfyServer) -> None:
    """A known address gives the service's name; an unknown one is refused without showing it."""
    known = check_by_apprise(f"json://{server.address}/hook/SECRET")
    assert (known.outcome, known.text) == (SendOutcome.SENT, "JSON")
    for url in ("nosuch://SECRET/x", "discord://SECRET"):
        unknown = check_by_apprise(url)
        assert unknown.outcome is SendOutcome.REFUSED
        assert "SECRET" not in unknown.text
    assert server.state()["hooks"] == []
