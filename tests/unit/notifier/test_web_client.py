"""HTTP client of the notifier: deadlines, bounds, and errors that show nothing."""

import asyncio
import socket
import time
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest

from appliance.notifier.web_client import WebAnswer, WebError, fetch, retry_after
from tests.fakes.engine_server import EngineServer, Talk
from tests.fakes.ntfy_server import NtfyServer


async def post(server: NtfyServer | EngineServer, scheme: str = "http", **more: Any) -> WebAnswer:
    port = server.port if isinstance(server, EngineServer) else int(server.address.split(":")[1])
    headers = {"Authorization": "SECRET"}
    return await fetch(
        "POST", f"{scheme}://127.0.0.1:{port}/hook/SECRET", headers=headers, body=b"x", **more
    )


async def test_an_answer_is_read(server: NtfyServer) -> None:
    """Status and body come back, and the request came whole."""
    answer = await post(server)
    assert (answer.status, answer.body, answer.retry_after_s) == (200, b"{}", None)
    assert server.state()["hooks"][0]["body"] == "x"
    assert "SECRET" not in repr(answer)


async def test_a_slow_server_meets_a_deadline(server: NtfyServer) -> None:
    """A request ends at its deadline, however slow the server is."""
    server.control({"delay_s": 0.5})
    began = time.monotonic()
    with pytest.raises(WebError, match="no answer within 0 s"):
        await post(server, deadline_s=0.1)
    assert time.monotonic() - began < 0.5


async def test_a_server_that_drips_meets_the_same_deadline() -> None:
    """A server that sends a byte now and then does not hold a request beyond its deadline."""

    async def drip(talk: Talk) -> None:
        await talk.request()
        await talk.say(b"HTTP/1.1 200 OK\r\n")
        while True:
            await talk.say(b"X")
            await asyncio.sleep(0.01)  # real time: a byte now and then

    async with EngineServer(drip) as engine:
        with pytest.raises(WebError, match="no answer within"):
            await post(engine, deadline_s=1.0)


async def test_a_connection_that_comes_too_late_carries_no_request() -> None:
    """A message that was given up, and is tried again, does not arrive all the same."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):  # the queue of the server is full
            with pytest.raises(WebError, match="no answer within"):
                await fetch("POST", f"http://127.0.0.1:{port}/", deadline_s=0.2)
            server.accept()[0].close()
            server.settimeout(2)
            try:
                connection, _ = await asyncio.to_thread(
                    server.accept
                )  # where the kernel tries again
            except TimeoutError:
                return
            with connection:
                connection.settimeout(5)
                assert await asyncio.to_thread(connection.recv, 100) == b""


@pytest.mark.parametrize(
    "head",
    [b"\r\n", b"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n"],
    ids=["plain", "one chunk"],
)
async def test_an_endless_answer_is_cut(head: bytes) -> None:
    """The client takes 64 KiB of a body, and leaves."""

    async def flood(talk: Talk) -> None:
        await talk.request()
        await talk.say(b"HTTP/1.1 200 OK\r\n" + head)
        while True:
            await talk.say(b"x" * 65536)

    async with EngineServer(flood) as engine:
        answer = await post(engine)
    assert len(answer.body) == 65536


@pytest.mark.parametrize(
    "said",
    [b"", b"SECRET\r\n\r\n", b"HTTP/1.1 SECRET\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000],
)
async def test_errors_show_nothing_of_the_exchange(said: bytes) -> None:
    """Errors hold nothing that was sent or received, nor does what they were raised from."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(said)

    async with EngineServer(script) as engine:
        with pytest.raises(WebError) as raised:
            await post(engine)
    assert "SECRET" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


async def test_an_unknown_name_and_a_closed_port_are_told() -> None:
    """Each way of not reaching a server has its phrase, without the name of the server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        closed = listener.getsockname()[1]
    cases = [(f"http://127.0.0.1:{closed}/", "refuses"), ("http://a b.invalid/", "not")]
    for one, phrase in cases:
        with pytest.raises(WebError, match=phrase) as raised:
            await fetch("GET", one)
        assert "invalid" not in str(raised.value)


async def test_a_server_without_tls_is_told(server: NtfyServer) -> None:
    """An address with encryption of a server without it is an error of TLS."""
    with pytest.raises(WebError, match="no TLS"):
        await post(server, "https")


def test_retry_after_is_seconds_or_a_time() -> None:
    """Both forms of the header are read, at most a day; others are none."""
    now = datetime(2026, 11, 1, 12, tzinfo=UTC)
    unix_s = now.timestamp()
    late = format_datetime(now.replace(minute=2), usegmt=True)
    for text, expected in (
        (None, None),
        ("", None),
        ("7", 7.0),
        ("0", 0.0),
        ("86401", 86400.0),
        ("9" * 5000, None),
        ("-1", None),
        ("soon", None),
        (late, 120.0),
        (format_datetime(now.replace(year=2020), usegmt=True), 0.0),
        (format_datetime(now.replace(year=2099), usegmt=True), 86400.0),
        ("Sun, 99 Nov 2026 99:99:99 GMT", None),
    ):
        assert retry_after(text, unix_s) == expected, text
