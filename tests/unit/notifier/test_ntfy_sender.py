"""Sender to ntfy, against a server that speaks its publish API."""

from typing import Any

import pytest

from appliance.model.alerts import Message, MessageAction, SendOutcome, SendResult, Severity
from appliance.model.targets import Target
from appliance.notifier.ntfy_sender import MOST_BODY_BYTES, NtfySender, clipped, result_of
from appliance.notifier.web_client import WebAnswer
from tests.fakes.engine_server import EngineServer, answering, sized
from tests.fakes.ntfy_server import NtfyServer

SENT = SendResult(outcome=SendOutcome.SENT)
SECRET = "SECRET"  # noqa: S105 - it opens nothing


def sender(server: NtfyServer, credential: str = "", **more: Any) -> NtfySender:
    url = f"ntfy://{credential}{server.address}/{SECRET}"
    return NtfySender(Target(name="phone", url=url, **more))


def message(**more: Any) -> Message:
    return Message(**{"title": "t", "body": "b", "severity": Severity.WARNING, **more})


def ability(sender: NtfySender) -> bool | None:
    """Return whether the server keeps scheduled messages, as far as the sender knows."""
    return sender.scheduled


def shown(server: NtfyServer) -> dict[str, Any]:
    """The one message that was delivered."""
    (one,) = server.state()["delivered"]
    assert isinstance(one, dict)
    return one


async def test_a_message_arrives_whole(server: NtfyServer) -> None:
    """Title, text, tags, click and buttons arrive as they are, in any script."""
    result = await sender(server).send(
        message(
            title="▼ genesis ist langsam: 27 tok/s",
            body="Größe ✓\nzweite Zeile",
            sequence_id="garage-A17",
            tags=("warning", "gpu"),
            click_url="http://box/alerts/A17",
            actions=(MessageAction(label="Ack", url="http://box/ack/x"),),
        )
    )
    assert result == SENT
    one = shown(server)
    assert (one["title"], one["message"]) == (
        "▼ genesis ist langsam: 27 tok/s",
        "Größe ✓\nzweite Zeile",
    )
    assert (one["topic"], one["sequence_id"], one["priority"]) == (SECRET, "garage-A17", 4)
    assert (one["tags"], one["click"]) == (("warning", "gpu"), "http://box/alerts/A17")
    (button,) = one["actions"]
    assert button == {
        "action": "http",
        "label": "Ack",
        "url": "http://box/ack/x",
        "method": "POST",
        "clear": True,
    }


@pytest.mark.parametrize(
    ("severity", "kind", "priority"),
    [("critical", "fire", 5), ("warning", "fire", 4), ("info", "fire", 2), ("critical", "end", 3)],
)
async def test_severity_is_priority(
    server: NtfyServer, severity: str, kind: str, priority: int
) -> None:
    """A critical alert is urgent, and whatever is over is an ordinary message."""
    await sender(server).send(message(severity=Severity(severity), resolved=kind == "end"))
    assert shown(server)["priority"] == priority


async def test_an_episode_is_one_entry(server: NtfyServer) -> None:
    """Messages of one sequence id are one entry on the phone, whatever else is sent."""
    phone = sender(server)
    for text in ("down", "still down", "up"):
        await phone.send(message(body=text, sequence_id="A17"))
    await phone.send(message(body="other", sequence_id="A18"))
    entries = [(e["sequence_id"], e["shown"]["message"]) for e in server.state()["entries"]]
    assert entries == [("A17", "up"), ("A18", "other")]


async def test_long_texts_stay_messages(server: NtfyServer) -> None:
    """Ntfy would make an attachment of a text over 4096 bytes: it is cut."""
    assert await sender(server).send(message(body="é" * 5000)) == SENT
    text = shown(server)["message"]
    assert len(text.encode()) <= MOST_BODY_BYTES
    assert text.endswith("é…")
    assert clipped("short", 5) == "short"


async def test_what_ntfy_takes_no_more_of_is_left_out(server: NtfyServer) -> None:
    """A sequence id that ntfy refuses, a fourth button and an empty click do not lose the message."""
    buttons = tuple(MessageAction(label=str(n), url="http://b/") for n in range(5))
    phone = sender(server, click_url="http://box/")
    assert await phone.send(message(sequence_id="a b", actions=buttons)) == SENT
    one = shown(server)
    assert (one["sequence_id"], len(one["actions"]), one["click"]) == ("", 3, "http://box/")


@pytest.mark.parametrize(
    ("credential", "header", "kept"),
    [("u:p%40s@", "Basic dTpwQHM=", "u:p@s"), ("tk_x@", "Bearer tk_x", "tk_x")],
)
async def test_credentials_go_with_the_request(
    server: NtfyServer, credential: str, header: str, kept: str
) -> None:
    """A password and a token are sent as ntfy wants them."""
    server.token = header
    assert await sender(server, credential).send(message()) == SENT
    assert server.state()["credentials"] == [kept]


@pytest.mark.parametrize("status", [301, 302, 307, 308, 408, 425, 429, 500, 502, 503])
async def test_a_passing_failure_is_tried_again(server: NtfyServer, status: int) -> None:
    """Redirects, overload and faults of the server deliver nothing, and may pass."""
    server.control({"status": status, "retry_after": "7"})
    result = await sender(server).send(message())
    assert (result.outcome, result.retry_after_s) == (SendOutcome.RETRY, 7.0)
    assert str(status) in result.text
    # A redirect is not followed.
    assert server.state()["hooks"] == server.state()["delivered"] == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413])
async def test_a_refusal_of_ntfy_is_final(server: NtfyServer, status: int) -> None:
    """An error that ntfy itself answers comes again for the same message."""
    server.control({"status": status})
    result = await sender(server).send(message())
    assert result == SendResult(
        outcome=SendOutcome.REFUSED, text=f"ntfy refuses the message ({status})"
    )


@pytest.mark.parametrize(
    ("status", "document", "outcome"),
    [
        (200, {"id": "x"}, "sent"),
        (200, {}, "retry"),
        (204, {}, "retry"),
        (404, {}, "retry"),
        (404, {"code": "40401", "http": 404}, "retry"),
        (403, {"code": 40301, "http": 403}, "refused"),
        (429, {"code": 42901, "http": 429}, "retry"),
        (101, {}, "retry"),
    ],
)
def test_only_ntfy_itself_can_accept_or_refuse(
    status: int, document: dict[str, object], outcome: str
) -> None:
    """A login page with status 200, or a proxy's 404, is neither success nor refusal."""
    assert result_of(WebAnswer(status=status, body=b""), document).outcome == outcome


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"\xff", b"[" * 65_536, b"[" * 70_000])
async def test_a_body_that_is_no_answer_of_ntfy_is_a_failure(body: bytes) -> None:
    """A success without the JSON of a message in its body is a failure."""
    async with EngineServer(answering(sized(body))) as other:
        phone = NtfySender(Target(name="phone", url=f"ntfy://127.0.0.1:{other.port}/t"))
        result = await phone.send(message())
    assert result.outcome is SendOutcome.RETRY
    assert "another server" in result.text


async def test_a_server_that_is_away_is_tried_again(server: NtfyServer) -> None:
    """No connection, and one that ends without an answer, may be another matter later."""
    server.control({"hang_up": "after"})
    assert (await sender(server).send(message(sequence_id="A"))).outcome is SendOutcome.RETRY
    server.control({})
    assert await sender(server).send(message(sequence_id="A")) == SENT
    assert len(server.state()["entries"]) == 1
    away = NtfySender(Target(name="phone", url=f"ntfy://127.0.0.1:1/{SECRET}"))
    result = await away.send(message())
    assert result == SendResult(outcome=SendOutcome.RETRY, text="its server refuses connections")


async def test_a_scheduled_message_is_pushed_forward_and_taken_back(server: NtfyServer) -> None:
    """The same sequence id replaces what waits; cancelled, nothing is delivered."""
    phone = sender(server)
    silent = message(body="silent", sequence_id="box")
    for _ in range(3):
        assert await phone.schedule(silent, 300.4) == SENT
        server.control({"skip_s": 200})
    assert [m["message"] for m in server.state()["scheduled"]] == ["silent"]
    assert server.state()["entries"] == []
    assert await phone.cancel("box") == SENT
    server.control({"skip_s": 1000})
    assert server.state()["entries"] == []
    assert ability(phone) is True


async def test_an_old_server_is_never_armed(server: NtfyServer) -> None:
    """A server without sequence ids would deliver each scheduled message: none is sent to it."""
    server.inbox.old = True
    phone = sender(server)
    result = await phone.schedule(message(sequence_id="box"), 300)
    assert result.outcome is SendOutcome.REFUSED
    assert "2.16" in result.text
    assert server.state()["scheduled"] == server.state()["delivered"] == []
    assert ability(phone) is False
    # Ordinary messages go to it, and show it again once it was upgraded.
    assert await phone.send(message(sequence_id="A")) == SENT
    assert ability(phone) is False
    server.inbox.old = False
    assert await phone.send(message(sequence_id="A")) == SENT
    assert await phone.schedule(message(sequence_id="box"), 300) == SENT


async def test_a_message_shows_what_the_server_knows(server: NtfyServer) -> None:
    """After an ordinary message with a sequence id no question is needed."""
    phone = sender(server)
    await phone.send(message())
    assert ability(phone) is None
    await phone.send(message(sequence_id="A"))
    assert ability(phone) is True
    await phone.schedule(message(sequence_id="box"), 300)
    assert server.requests.served == 3


async def test_a_server_that_is_away_is_not_an_old_one(server: NtfyServer) -> None:
    """An outage leaves open whether the server keeps scheduled messages."""
    phone = sender(server)
    server.control({"status": 503, "times": 1})
    assert (await phone.schedule(message(sequence_id="box"), 300)).outcome is SendOutcome.RETRY
    assert ability(phone) is None
    assert await phone.schedule(message(sequence_id="box"), 300) == SENT


@pytest.mark.parametrize(("delay_s", "seconds"), [(0.0, 10), (1e9, 3 * 86_400)])
async def test_a_delay_is_one_that_ntfy_takes(
    server: NtfyServer, delay_s: float, seconds: int
) -> None:
    """Ntfy refuses delays below ten seconds and above three days."""
    assert await sender(server).schedule(message(sequence_id="box"), delay_s) == SENT
    (one,) = server.state()["scheduled"]
    assert one["due_s"] - one["at_s"] == seconds


async def test_who_is_not_to_keep_the_message_is_not_asked(server: NtfyServer) -> None:
    """The public server with its few messages a day, or a target that says so, is left alone."""
    public = NtfySender(Target(name="phone", url="ntfy://topic"))
    silent = message(sequence_id="box")
    assert "250 messages" in (await public.schedule(silent, 300)).text
    off = sender(server, box_silent=False)
    assert (await off.schedule(silent, 300)).outcome is SendOutcome.REFUSED
    assert (await sender(server).schedule(message(), 300)).outcome is SendOutcome.REFUSED
    assert (await sender(server).cancel("a/b")).outcome is SendOutcome.REFUSED
    assert server.requests.served == server.requests.refused == 0
    with pytest.raises(ValueError, match="no target of ntfy"):
        NtfySender(Target(name="chat", url="discord://a/b"))
