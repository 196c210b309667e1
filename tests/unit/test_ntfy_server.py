"""Fake ntfy server: it answers as ntfy does, so that senders can be tried against it."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import ntfy_server
from tests.fakes.clock import FakeClock
from tests.fakes.ntfy_server import NtfyInbox, NtfyServer, RefusedError


class Wall:
    """Virtual time."""

    now_s = 1000.0


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def inbox(wall: Wall) -> NtfyInbox:
    """An inbox on virtual time."""
    return NtfyInbox(FakeClock(wall).unix_s)


@pytest.fixture
def server() -> Iterator[NtfyServer]:
    with NtfyServer() as running:
        yield running


def ask(
    server: NtfyServer, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, Any]:
    """Status and document of an answer."""
    answer, raw = _asked(server, method, path, body, headers)
    return answer.status, json.loads(raw)


def _asked(
    server: NtfyServer, method: str, path: str, body: object, headers: dict[str, str]
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection(server.address, timeout=10)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        connection.request(method, path, sent, headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_a_sequence_id_makes_one_entry(inbox: NtfyInbox) -> None:
    """Messages of one sequence id are all delivered, and a phone shows the last one."""
    for text in ("down", "still down", "up again"):
        answer = inbox.publish({"topic": "t", "message": text, "sequence_id": "A17"})
        assert answer["sequence_id"] == "A17"
    inbox.publish({"topic": "t", "message": "other"})
    assert [m.message for m in inbox.delivered()] == ["down", "still down", "up again", "other"]
    first, second = inbox.entries()
    assert (first.shown.message, first.messages) == ("up again", 3)
    assert second.shown.message == "other"


def test_an_old_server_publishes_each_message_anew(inbox: NtfyInbox) -> None:
    """Before 2.16 the answer has no sequence id, and nothing can be taken back."""
    inbox.old = True
    answers = [inbox.publish({"topic": "t", "message": "x", "sequence_id": "A"}) for _ in "12"]
    assert all("sequence_id" not in answer for answer in answers)
    assert len(inbox.entries()) == 2
    with pytest.raises(RefusedError, match="page not found"):
        inbox.delete("t", "A")


def test_a_scheduled_message_waits_for_its_time(inbox: NtfyInbox, wall: Wall) -> None:
    """A message with a delay is delivered once that has passed."""
    inbox.publish({"topic": "t", "message": "silent", "sequence_id": "box", "delay": "5m"})
    wall.now_s += 299
    assert (inbox.delivered(), len(inbox.scheduled())) == ([], 1)
    wall.now_s += 1
    assert [m.message for m in inbox.delivered()] == ["silent"]


def test_publishing_again_pushes_a_scheduled_message_forward(inbox: NtfyInbox, wall: Wall) -> None:
    """The same sequence id replaces what waits, and DELETE ends it; another topic is left alone."""
    form = {"topic": "t", "message": "silent", "sequence_id": "box", "delay": "300"}
    inbox.publish({**form, "topic": "u"})
    for _ in range(9):
        inbox.publish(form)
        wall.now_s += 60
    assert [m.topic for m in inbox.scheduled()] == ["t"]
    assert [m.topic for m in inbox.delivered()] == ["u"]
    inbox.delete("t", "box")
    wall.now_s += 1000
    assert [m.event for m in inbox.delivered() if m.topic == "t"] == ["message_delete"]
    assert [entry.topic for entry in inbox.entries()] == ["u"]


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"topic": "a/b"}, 400),
        ({}, 400),
        ({"topic": "t", "priority": 6}, 400),
        ({"topic": "t", "sequence_id": "a b"}, 400),
        ({"topic": "t", "delay": "9s"}, 400),
        ({"topic": "t", "delay": "4d"}, 400),
        ({"topic": "t", "delay": "soon"}, 400),
        ({"topic": "t", "actions": [{}, {}, {}, {}]}, 400),
        ({"topic": "t", "message": "é" * 2049}, 413),
    ],
)
def test_what_ntfy_refuses_is_refused(
    inbox: NtfyInbox, form: dict[str, object], status: int
) -> None:
    """Messages outside ntfy's limits are refused with its status."""
    with pytest.raises(RefusedError) as refused:
        inbox.publish(form)
    assert refused.value.status == status
    assert inbox.delivered() == []


def test_both_forms_mean_the_same(server: NtfyServer) -> None:
    """The JSON form and the form with headers publish the same message."""
    form = {
        "topic": "t",
        "title": "Größe",
        "message": "text ✓",
        "priority": 5,
        "tags": ["a", "b"],
        "click": "http://x/",
        "sequence_id": "s",
    }
    assert ask(server, "POST", "/", form)[0] == 200
    headers = {
        "Title": "=?UTF-8?B?R3LDtsOfZQ==?=",
        "X-Priority": "5",
        "Tags": "a,b",
        "X-Click": "http://x/",
        "X-Sequence-ID": "s",
    }
    assert ask(server, "POST", "/t", "text ✓".encode(), **headers)[0] == 200
    assert ask(server, "PUT", "/t/s", b"later", In="30s")[1]["sequence_id"] == "s"
    one, two = [
        {key: value for key, value in document.items() if key not in {"id", "at_s", "due_s"}}
        for document in server.state()["delivered"]
    ]
    assert one == two
    assert [m["message"] for m in server.state()["scheduled"]] == ["later"]
    assert ask(server, "DELETE", "/t/s")[1]["event"] == "message_delete"
    assert server.state()["scheduled"] == []


def test_webhooks_and_pings_are_recorded(server: NtfyServer) -> None:
    """Requests below /hook and /ping are kept with their path; others are not found."""
    assert ask(server, "POST", "/hook/one", {"a": 1})[0] == 200
    assert ask(server, "GET", "/ping/uuid")[0] == 200
    assert ask(server, "GET", "/a/b/c")[0] == 404
    state = ask(server, "GET", "/_state")[1]
    assert [json.loads(hook["body"]) for hook in state["hooks"]] == [{"a": 1}]
    assert [ping["path"] for ping in state["pings"]] == ["/ping/uuid"]
    assert state["delivered"] == []


def test_the_last_message_before_the_end_is_kept(tmp_path: Path) -> None:
    """The file has what came right before SIGTERM: a box that goes down tells it in its last moments."""
    state = tmp_path / "state.json"
    argv = [sys.executable, "-S", ntfy_server.__file__, "--state", str(state)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline().rsplit(":", 1)[1])
        with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("POST", "/t", b"going down")
            assert connection.getresponse().status == 200
        process.terminate()
        assert process.wait(10) == 0
    assert [m["message"] for m in json.loads(state.read_text())["delivered"]] == ["going down"]


def test_a_token_is_demanded(server: NtfyServer) -> None:
    """A server with a token refuses who does not send it, and keeps what was sent instead."""
    server.token = "Bearer tk_1"  # noqa: S105 - it opens nothing
    assert ask(server, "POST", "/", {"topic": "t"})[0] == 401
    assert ask(server, "POST", "/", {"topic": "t"}, Authorization="Basic YTpi")[0] == 401
    assert ask(server, "POST", "/", {"topic": "t"}, Authorization="Bearer tk_1")[0] == 200
    assert server.state()["credentials"] == ["", "a:b", "tk_1"]


def test_faults_come_as_often_as_told(server: NtfyServer) -> None:
    """A status with Retry-After or a redirect is answered so many times, and nothing is taken."""
    assert (
        ask(server, "POST", "/_control", {"status": 429, "retry_after": "7", "times": 1})[0] == 200
    )
    answer, _ = _asked(server, "POST", "/", {"topic": "t"}, {})
    assert (answer.status, answer.getheader("Retry-After")) == (429, "7")
    server.control({"status": 302, "times": 1})
    answer, _ = _asked(server, "POST", "/", {"topic": "t"}, {})
    assert (answer.status, (answer.getheader("Location") or "")[-6:]) == (302, "/login")
    assert server.state()["delivered"] == []
    assert ask(server, "POST", "/", {"topic": "t"})[0] == 200
    assert (server.requests.refused, server.requests.served) == (2, 1)


def test_a_connection_may_end_before_or_after_the_message_is_taken(server: NtfyServer) -> None:
    """The sender sees no answer in both cases; an empty order heals the server."""
    for when, count in (("before", 0), ("after", 1)):
        server.control({"hang_up": when})
        with pytest.raises(RemoteDisconnected):
            ask(server, "POST", "/", {"topic": "t"})
        assert len(server.state()["delivered"]) == count
    server.control({})
    assert ask(server, "POST", "/", {"topic": "t"})[0] == 200


def test_time_can_be_skipped(server: NtfyServer) -> None:
    """A test need not wait for a scheduled message."""
    ask(server, "POST", "/", {"topic": "t", "delay": "5m"})
    server.control({"skip_s": 301})
    assert len(server.state()["delivered"]) == 1
