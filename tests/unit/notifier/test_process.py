"""Verbs of the notifier, over its socket, with a real client and real services."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.model.alerts import Message, SendOutcome, SendResult, Severity
from appliance.model.targets import Target, Targets
from appliance.notifier.process import NotifyVerbs
from appliance.system.daemon_clients import NotifyClient
from appliance.wire.async_client import open_conversation
from appliance.wire.conversation import ErrorEvent
from appliance.wire.helpers import NOTIFY, SendRequest
from tests.fakes.ntfy_server import NtfyServer

MESSAGE = Message(title="t", body="b", severity=Severity.WARNING, sequence_id="A1")
SENT = SendResult(outcome=SendOutcome.SENT)


def targets(server: NtfyServer) -> Targets:
    """A phone, a webhook, and an outside watch."""
    return Targets(
        targets=(
            Target(name="phone", url=f"ntfy://tk_SECRET1@{server.address}/SECRET2"),
            Target(name="hook", url=f"json://{server.address}/hook/SECRET3"),
        ),
        heartbeat_url=f"http://{server.address}/ping/SECRET4?a=b",
    )


@asynccontextmanager
async def served(path: Path, verbs: NotifyVerbs) -> AsyncIterator[NotifyClient]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path / "s"))
        listener.listen()
        serving = asyncio.create_task(verbs.serve(listener.dup()))
        try:
            yield NotifyClient(path / "s")
        finally:
            everything = asyncio.all_tasks() - {asyncio.current_task()}
            for task in everything:
                task.cancel()
            await asyncio.gather(serving, *everything, return_exceptions=True)


async def test_each_target_gets_its_messages(tmp_path: Path, server: NtfyServer) -> None:
    """A message goes to the one target that was named, through ntfy's sender or apprise."""
    async with served(tmp_path, NotifyVerbs(targets(server))) as client:
        assert await client.send("phone", MESSAGE) == SENT
        assert [m["topic"] for m in server.state()["delivered"]] == ["SECRET2"]
        assert await client.send("hook", MESSAGE) == SENT
        (hook,) = server.state()["hooks"]
        assert json.loads(hook["body"])["title"] == "t"
        unknown = await client.send("nobody", MESSAGE)
    assert unknown == SendResult(outcome=SendOutcome.REFUSED, text="there is no such target")


async def test_only_ntfy_keeps_scheduled_messages(tmp_path: Path, server: NtfyServer) -> None:
    """The phone keeps a message and gives it back; a webhook refuses to."""
    async with served(tmp_path, NotifyVerbs(targets(server))) as client:
        assert await client.schedule("phone", MESSAGE, 300.0) == SENT
        assert len(server.state()["scheduled"]) == 1
        assert await client.cancel("phone", "A1") == SENT
        assert server.state()["scheduled"] == []
        for result in (
            await client.schedule("hook", MESSAGE, 300.0),
            await client.cancel("hook", "A1"),
            await client.schedule("nobody", MESSAGE, 300.0),
        ):
            assert result.outcome is SendOutcome.REFUSED


async def test_the_outside_watch_is_pinged(tmp_path: Path, server: NtfyServer) -> None:
    """A ping is one GET of the whole address; without one it is refused, and a fault is told."""
    async with served(tmp_path, NotifyVerbs(targets(server))) as client:
        assert await client.ping() == SENT
        assert [ping["path"] for ping in server.state()["pings"]] == ["/ping/SECRET4?a=b"]
        server.control({"status": 302})
        moved = await client.ping()
        server.control({"hang_up": "before"})
        cut = await client.ping()
    assert (moved.outcome, moved.text) == (SendOutcome.RETRY, "the outside watch answers 302")
    assert (cut.outcome, cut.text) == (
        SendOutcome.RETRY,
        "its server has closed the connection",
    )
    (tmp_path / "s").unlink()
    async with served(tmp_path, NotifyVerbs(Targets())) as client:
        assert (await client.ping()).outcome is SendOutcome.REFUSED


async def test_the_targets_are_told_without_addresses(tmp_path: Path, server: NtfyServer) -> None:
    """Names, kinds, abilities and troubles are told; after a success the trouble is gone."""
    async with served(tmp_path, NotifyVerbs(targets(server))) as client:
        server.control({"status": 503, "times": 1})
        await client.send("phone", MESSAGE)
        phone, hook = await client.targets()
        assert (phone.name, phone.kind, phone.scheduled) == ("phone", "ntfy", None)
        assert phone.trouble == "its server answers 503"
        assert (hook.name, hook.kind, hook.scheduled, hook.trouble) == ("hook", "json", False, "")
        await client.send("phone", MESSAGE)
        phone, _ = await client.targets()
    assert (phone.scheduled, phone.trouble) == (True, "")


async def test_a_file_that_cannot_be_read_loses_no_message(tmp_path: Path) -> None:
    """While the file of the targets is wrong, every request is to be made again."""
    async with served(tmp_path, NotifyVerbs(Targets(), "targets.toml:3: wrong")) as client:
        for result in (
            await client.send("phone", MESSAGE),
            await client.schedule("phone", MESSAGE, 60),
            await client.ping(),
        ):
            assert result == SendResult(outcome=SendOutcome.RETRY, text="targets.toml:3: wrong")


async def test_a_message_that_is_none_is_refused(tmp_path: Path, server: NtfyServer) -> None:
    """A request without the fields of a message is a bad request, and nothing is sent."""
    async with served(tmp_path, NotifyVerbs(targets(server))):
        request = SendRequest("phone", {"title": 5})
        async with open_conversation(NOTIFY, tmp_path / "s", request) as events:
            (event,) = [event async for event in events]
    assert isinstance(event, ErrorEvent)
    assert event.kind == "bad-request"
    assert server.state()["delivered"] == []


async def test_no_secret_is_logged(
    tmp_path: Path, server: NtfyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """With every logger at DEBUG, log and unit's status have names and outcomes, and no part of an address."""
    caplog.set_level(logging.DEBUG)
    lines: list[str] = []
    async with served(tmp_path, NotifyVerbs(targets(server), on_line=lines.append)) as client:
        for orders in ({}, {"status": 302}, {"status": 400}, {"hang_up": "before"}):
            server.control(orders)
            for name in ("phone", "hook"):
                await client.send(name, MESSAGE)
            await client.schedule("phone", MESSAGE, 60)
            await client.cancel("phone", "A1")
            await client.ping()
        told = repr(await client.targets())
    assert "phone: refused" in caplog.text
    assert "hook: sent" in caplog.text
    assert "SECRET" not in caplog.text + told + repr(lines)
    assert lines[:2] == ["2 targets · 0 sent", "2 targets · 1 sent"]
    assert lines[-1].startswith("2 targets · 2 sent · 6 failed · hook: ")


async def test_an_idle_notifier_leaves(tmp_path: Path, server: NtfyServer) -> None:
    """Without requests the server returns, and the process with it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        async with asyncio.timeout(30):
            await NotifyVerbs(targets(server)).serve(listener.dup(), idle_s=0.05)
