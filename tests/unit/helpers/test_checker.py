"""Check of a URL against servers that answer well, badly, slowly, without an end, or not at all."""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.helpers.checker import UrlChecker
from appliance.model.errors import BadRequestError
from appliance.system.name_lookup import NameLookup, NameLookupError
from appliance.wire.helpers import CheckResult
from appliance.wire.typed_json import from_json
from tests.fakes.certificates import self_signed
from tests.waiting import settle, until

TIMEOUT_S = 20.0
SECRET = "xylophone"  # noqa: S105 - stands for what a remote server says
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A server that keeps the requests that it got."""

    def __init__(self, answer: bytes | Talk, *, hangs: bool = False) -> None:
        self.requests: list[bytes] = []
        self.port = 0
        self.left = asyncio.Event()
        self.talks = 0
        """Connections that have not ended."""
        self._answer = answer
        self._hangs = hangs

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.talks += 1
        try:
            self.requests.append(await reader.readuntil(b"\r\n\r\n"))
            if callable(self._answer):
                await self._answer(reader, writer)
            else:
                writer.write(self._answer)
            if self._hangs:
                await self.left.wait()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            self.talks -= 1
            writer.transport.abort()


@asynccontextmanager
async def serving(
    answer: bytes | Talk, *, hangs: bool = False, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    own = Server(answer, hangs=hangs)
    server = await asyncio.start_server(own.talk, "127.0.0.1", 0, ssl=tls)
    own.port = server.sockets[0].getsockname()[1]
    try:
        yield own
    finally:
        own.left.set()
        server.close()
        await until(lambda: own.talks == 0)


def checker(tls: ssl.SSLContext | None = None) -> UrlChecker:
    return UrlChecker(NameLookup(), tls)


async def outcome(
    answer: bytes | Talk, *, hangs: bool = False, timeout_s: float = TIMEOUT_S
) -> CheckResult:
    async with serving(answer, hangs=hangs) as server:
        return await checker().check(f"http://127.0.0.1:{server.port}/health", timeout_s)


@pytest.mark.parametrize(
    ("answer", "up", "status", "detail"),
    [
        (OK, True, 200, ""),
        (b"HTTP/1.0 204 \r\n\r\n", True, 204, ""),
        (b"HTTP/1.1 299\r\n\r\n", True, 299, ""),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", True, 200, ""),
        (b"HTTP/1.1 300 \r\n\r\n", False, 300, "status 300, a redirect"),
        (b"HTTP/1.1 301 \r\nLocation: http://xylophone/\r\n\r\n", False, 301, "status 301, a redirect"),
        (b"HTTP/1.1 404 xylophone\r\n\r\n", False, 404, "status 404"),
        (b"HTTP/1.1 503 \r\n\r\nxylophone", False, 503, "status 503"),
        (b"HTTP/2.0 200 OK\r\n\r\n", False, None, "no HTTP answer"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", False, None, "no HTTP answer"),
        (b"HTTP/1.1 -12 OK\r\n\r\n", False, None, "no HTTP answer"),
        (b"xylophone\r\n", False, None, "no HTTP answer"),
        (b"", False, None, "connection closed without an answer"),
        (b"HTTP/1.1 200", False, None, "connection closed without an answer"),
        (b"HTTP/1.1 100 \r\n\r\n", False, None, "connection closed without an answer"),
        (b"HTTP/1.1 100 \r\n" + b"a: b\r\n" * 20_000, False, None, "no HTTP answer"),
        (b"HTTP/1.1 100 \r\n\r\n" * 20_000, False, None, "no HTTP answer"),
        (b"x" * 100_000, False, None, "no HTTP answer"),
    ],
)  # fmt: skip
async def test_the_status_tells(answer: bytes, up: bool, status: int | None, detail: str) -> None:  # noqa: FBT001
    """A status of 200 to 299 is up; of anything else our own words tell, never a part of the answer."""
    found = await outcome(answer)
    assert (found.up, found.status, found.detail) == (up, status, detail)
    assert SECRET not in str(found.fields())
    assert from_json(CheckResult, found.fields()) == found


async def test_the_request_names_the_host_and_the_path() -> None:
    """One GET with the host as the URL has it, the query, and nothing that identifies a person."""
    async with serving(OK) as server:
        place = f"localhost:{server.port}"
        await checker().check(f"http://{place}/a/b?c=d&e#f", TIMEOUT_S)
        (request,) = server.requests
    lines = request.decode().split("\r\n")
    assert lines[0] == "GET /a/b?c=d&e HTTP/1.1"
    assert lines[1] == f"Host: {place}"
    assert lines[2].startswith("User-Agent: appliance/")
    assert lines[3:] == ["Accept: */*", "Connection: close", "", ""]


async def test_a_redirect_is_not_followed() -> None:
    """An answer chooses no address that is asked."""
    async with serving(OK) as other:
        place = f"http://127.0.0.1:{other.port}/"
        found = await outcome(f"HTTP/1.1 302 Found\r\nLocation: {place}\r\n\r\n".encode())
        assert (found.up, other.requests) == (False, [])


async def trickle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send an answer without an end, a byte at a time."""
    while not writer.transport.is_closing():
        writer.write(b"x")
        await asyncio.sleep(
            0.001
        )  # real time: a server of the kernel, whose bytes the check waits for


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 100 \r\n\r\n", trickle])
async def test_the_time_is_hard(answer: bytes | Talk) -> None:
    """A server that says nothing, or says it slowly, has the time of the request and no more."""
    began = time.monotonic()
    found = await outcome(answer, hangs=True, timeout_s=0.2)
    assert (found.up, found.status, found.detail) == (False, None, "no answer in 0.2 s")
    assert found.ms >= 150
    assert time.monotonic() - began < 5.0


async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send a body without an end."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while not writer.transport.is_closing():
        writer.write(b"x" * 65536)
        await writer.drain()


@pytest.mark.parametrize("answer", [flood, b"HTTP/1.1 200 OK\r\n\r\nhalf of"])
async def test_a_body_without_an_end_is_left(answer: bytes | Talk) -> None:
    """The status tells, whether the body ends or not; the rest is read for half a second at most."""
    found = await outcome(answer, hangs=True)
    assert (found.up, found.detail) == (True, "")


async def test_nobody_listens() -> None:
    """A port without a listener refuses the connection."""
    async with serving(OK) as server:
        port = server.port
    found = await checker().check(f"http://127.0.0.1:{port}/", TIMEOUT_S)
    assert (found.up, found.status, found.detail) == (False, None, "connection refused")


class TwoAddresses(NameLookup):
    """A name of which the first address is wrong."""

    async def addresses(self, host: str, port: int) -> list[str]:  # noqa: ARG002
        return ["127.0.0.99", "127.0.0.1"]


class NoName(NameLookup):
    """A name service that knows nothing."""

    async def addresses(self, host: str, port: int) -> list[str]:
        raise NameLookupError(f"name of {len(host)} characters, port {port}")


async def test_the_next_address_is_tried() -> None:
    """A name with an address that refuses is up when another one answers."""
    async with serving(OK) as server:
        found = await UrlChecker(TwoAddresses()).check(f"http://x:{server.port}/", TIMEOUT_S)
    assert found.up


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
async def test_a_scheme_has_its_port(scheme: str, port: int) -> None:
    """A URL without a port has that of its scheme; a failed lookup is told as it is."""
    found = await UrlChecker(NoName()).check(f"{scheme}://box", TIMEOUT_S)
    assert found.detail == f"name of 3 characters, port {port}"


@pytest.fixture
def certified(tmp_path: Path) -> ssl.SSLContext:
    """A server's certificate that nobody vouches for."""
    files = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return context


async def test_certificates_are_verified(certified: ssl.SSLContext) -> None:
    """A certificate that no authority of the box has signed is not trusted."""
    async with serving(OK, tls=certified) as server:
        found = await checker().check(f"https://127.0.0.1:{server.port}/", TIMEOUT_S)
        assert (found.up, found.detail) == (False, "certificate not trusted")


async def test_an_address_that_hangs_leaves_time_for_the_next(
    tmp_path: Path, certified: ssl.SSLContext
) -> None:
    """Of two addresses the one that never ends its handshake has half of the time."""
    trusting = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
    trusting.check_hostname = False
    left = asyncio.Event()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await left.wait()
        writer.transport.abort()

    async with serving(OK, tls=certified) as server:
        hanging = await asyncio.start_server(hang, "127.0.0.99", server.port)
        found = await UrlChecker(TwoAddresses(), trusting).check(f"https://x:{server.port}/", 4.0)
        left.set()
        await settle()
        hanging.close()
    assert found.up


async def test_a_certificate_is_of_its_name(tmp_path: Path, certified: ssl.SSLContext) -> None:
    """A certificate that is trusted counts for its own name alone."""
    trusting = ssl.create_default_context(cafile=str(tmp_path / "tls.crt"))
    async with serving(OK, tls=certified) as server:
        url = f"https://localhost:{server.port}/"
        found = await checker(trusting).check(url, TIMEOUT_S)
        assert found.detail == "certificate of another name"
        trusting.check_hostname = False
        assert (await checker(trusting).check(url, TIMEOUT_S)).up


async def test_a_server_without_tls_is_told() -> None:
    """A server that speaks plain text on a TLS address is no answer."""

    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found = await checker().check(f"https://127.0.0.1:{port}/", TIMEOUT_S)
    server.close()
    assert (found.up, found.detail) == (False, "TLS failed")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://box/",
        "http:///health",
        "http://user:password@box/",
        "http://box:99999/",
        "http://box/a b",
        "http://box/\r\nX-Injected: 1",
        "http://box/\x7f",
        "http://bo\u00df/",
        "http://[::1/",
        "http://box/" + "x" * 2000,
        "//box/",
        "file:///etc/passwd",
    ],
)
async def test_what_is_no_url_is_refused(url: str) -> None:
    """Neither another scheme nor a user, nor anything that could leave the request's line."""
    with pytest.raises(BadRequestError, match="url is no"):
        await checker().check(url, 1.0)


@pytest.mark.parametrize("timeout_s", [0.0, 60.1])
async def test_a_check_takes_a_bounded_time(timeout_s: float) -> None:
    """No time, or more than a minute, is refused."""
    with pytest.raises(BadRequestError, match="timeout_s"):
        await checker().check("http://127.0.0.1/", timeout_s)


async def test_any_bytes_are_an_answer() -> None:
    """Random bytes are a status, or one of our phrases."""
    noise = random.Random(2)  # noqa: S311
    parts = [b"HTTP/1.1 ", b"200", b"1", b"\r\n", b"\n", b"\r", b" ", b":", b"\0", b"\xff"]
    for _ in range(60):
        answer = b"".join(noise.choices(parts, k=noise.randrange(12)))
        found = await outcome(answer)
        assert found.up == (found.status in range(200, 300))
        assert found.detail in {
            *("", "no HTTP answer", "connection closed without an answer"),
            *(f"status {status}" for status in range(200, 1000)),
            *(f"status {status}, a redirect" for status in range(300, 400)),
        }
