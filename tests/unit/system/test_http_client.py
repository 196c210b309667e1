"""Client for single requests: what it sends, what it reads, and what it keeps to itself."""

import logging
from pathlib import Path

import pytest

from appliance.system.http_client import HttpError, exchange, open_client
from tests.fakes.engine_server import EngineServer, Talk, answering, sized

SECRET = "xylophone"  # noqa: S105 - it opens nothing


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names is not used, and nothing but the server is asked."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with EngineServer(answering(sized(b"{}"))) as server, open_client() as client:
        answer = await exchange(client, "GET", f"http://127.0.0.1:{server.port}/", most_bytes=10)
    assert (answer.status, answer.body, answer.is_whole) == (200, b"{}", True)


async def test_a_redirect_is_a_response() -> None:
    """A response chooses no address that is asked."""
    said = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with EngineServer(answering(said)) as server, open_client() as client:
        answer = await exchange(client, "GET", f"http://127.0.0.1:{server.port}/", most_bytes=10)
    assert answer.status == 302


async def test_a_coded_body_is_not_decoded() -> None:
    """A server that codes its body all the same cannot make it larger than it is."""
    coded = sized(b"\x1f\x8b").replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n", 1)
    async with EngineServer(answering(coded)) as server, open_client() as client:
        answer = await exchange(client, "GET", f"http://127.0.0.1:{server.port}/", most_bytes=10)
    assert answer.body == b"\x1f\x8b"


async def test_a_long_body_is_cut_and_the_next_request_has_a_connection() -> None:
    """Of a body no more than what is wanted is read."""
    async with EngineServer(answering(sized(b"x" * 100_000))) as server, open_client() as client:
        for _ in range(2):
            url = f"http://127.0.0.1:{server.port}/"
            answer = await exchange(client, "GET", url, most_bytes=1000)
            assert (len(answer.body), answer.is_whole) == (1000, False)


async def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Addresses and headers are in no log, not at any level."""
    caplog.set_level(logging.DEBUG)
    async with EngineServer(answering(sized(b"{}"))) as server, open_client() as client:
        url = f"http://127.0.0.1:{server.port}/{SECRET}"
        await exchange(client, "GET", url, most_bytes=10, headers={"Authorization": SECRET})
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("said", "text", "connected"),
    [
        (b"", "Remote end closed connection without response", True),
        (b"xylophone\r\n\r\n", "it is not as HTTP says", True),
        (sized(b"xylophone")[:-3], "it is not as HTTP says", True),
    ],
)
async def test_errors_quote_nothing(said: bytes, text: str, connected: bool) -> None:  # noqa: FBT001
    """An error has our words or the system's, and is raised from none of the library's."""

    async def script(talk: Talk) -> None:
        await talk.request()
        await talk.say(said)

    async with EngineServer(script) as server, open_client() as client:
        with pytest.raises(HttpError) as raised:
            await exchange(client, "GET", f"http://127.0.0.1:{server.port}/", most_bytes=10_000)
    assert (str(raised.value), raised.value.connected) == (text, connected)
    assert raised.value.__context__ is None


async def test_no_server_is_an_error_of_the_system(tmp_path: Path) -> None:
    """A port or a socket without a server has the system's words, and no request was sent."""
    async with open_client() as client:
        with pytest.raises(HttpError, match=r"Errno 111. Connection refused$") as raised:
            await exchange(client, "GET", "http://127.0.0.1:1/", most_bytes=10)
    assert isinstance(raised.value.cause, ConnectionRefusedError)
    async with open_client(socket_path=str(tmp_path / "s")) as client:
        with pytest.raises(HttpError, match="No such file") as raised:
            await exchange(client, "GET", "http://localhost/", most_bytes=10)
    assert not raised.value.connected
