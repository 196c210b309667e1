"""Attacks on the gateway, each by one hostile program.

An attack runs in a process of its own until it is killed; what it is told it does not mind.
"""

import base64
import gzip
import os
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from tests.bench.sink import ENDLESS, SILENT, SOCKET
from tests.fakes.zstd import zstd

CROWD: Final = 1100
"""More connections than the gateway takes."""
_CHAT: Final = "/v1/chat/completions"
_LARGE: Final = 63 << 20
_PACE_S: Final = 0.5
_AGAIN_S: Final = 0.05
_ABANDON_S: Final = 0.01


def head(
    path: str = _CHAT, length: int | None = None, headers: str = "", method: str = "POST"
) -> bytes:
    """A request's head; a length of None: the body comes in chunks."""
    body = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    lines = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{body}\r\n{headers}\r\n"
    return lines.encode()


def whole(body: bytes, path: str = _CHAT, headers: str = "") -> bytes:
    """A request with its body."""
    return head(path, len(body), headers) + body


def lan_address() -> str | None:
    """IPv4 address of this machine that other machines use; None: it has no route to any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, suppress(OSError):
        # Nothing is sent: the kernel chooses the address at once. TEST-NET-1, RFC 5737.
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address
    return None


def _connected(port: int, address: str = "127.0.0.1") -> socket.socket:
    client = socket.create_connection((address, port), timeout=10)
    client.setblocking(False)  # noqa: FBT003 - has no keyword
    return client


class Crowd:
    """Connections that say something first, then drop by drop, and come back when hung up on.

    Args:
        count: How many.
        first: What each says when it has connected.
        drop: What each says every half a second; empty: nothing.
        reads: It takes what it is told.
        half: It says that it has no more to say, after `first`.
        address: Of the gateway.
    """

    def __init__(
        self,
        count: int,
        first: bytes,
        drop: bytes = b"",
        *,
        reads: bool = True,
        half: bool = False,
        address: str = "127.0.0.1",
    ) -> None:
        self._address = address
        self._count = count
        self._first = first
        self._drop = drop
        self._reads = reads
        self._half = half
        self._left: dict[socket.socket, memoryview] = {}
        self._events: selectors.BaseSelector = selectors.SelectSelector()

    def __call__(self, port: int) -> None:
        """Go on for ever."""
        self._events = selectors.EpollSelector()
        next_s = time.monotonic()
        while True:
            for _ in range(min(64, self._count - len(self._left))):
                self._join(port)
            if time.monotonic() >= next_s:
                next_s += _PACE_S
                self._drip()
            for key, mask in self._events.select(_AGAIN_S):
                self._serve(key.fileobj, mask)  # type: ignore[arg-type]  # only sockets are there

    def _join(self, port: int) -> None:
        with suppress(OSError):
            client = _connected(port, self._address)
            self._left[client] = memoryview(self._first)
            self._events.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _serve(self, client: socket.socket, mask: int) -> None:
        try:
            if mask & selectors.EVENT_WRITE:
                self._say(client)
            if mask & selectors.EVENT_READ and not client.recv(65_536):
                self._leave(client)
        except BlockingIOError:
            pass
        except OSError:
            self._leave(client)

    def _say(self, client: socket.socket) -> None:
        left = self._left[client]
        if left:
            left = self._left[client] = left[client.send(left[: 1 << 20]) :]
        if not left:
            if self._half:
                client.shutdown(socket.SHUT_WR)
            if self._reads:
                self._events.modify(client, selectors.EVENT_READ)
            else:
                self._events.unregister(client)

    def _drip(self) -> None:
        for client, left in tuple(self._left.items()):
            if self._drop and not left:
                try:
                    client.send(self._drop)
                except BlockingIOError:
                    pass
                except OSError:
                    self._leave(client)

    def _leave(self, client: socket.socket) -> None:
        self._left.pop(client, None)
        with suppress(KeyError, ValueError):
            self._events.unregister(client)
        client.close()


def churn(port: int) -> None:
    """Connect and hang up, as fast as it goes."""
    while True:
        with suppress(OSError):
            _connected(port).close()


def _abandon(request: bytes, port: int) -> None:
    """Ask, hang up before the answer, and ask again; a connection is kept for a hundredth of a second."""
    while True:
        with suppress(OSError), _connected(port) as client:
            client.send(request)
            time.sleep(_ABANDON_S)


Body = Callable[[], bytes]
"""Makes a body where it is needed: some have 63 MiB."""


def _again(count: int, request: Body, port: int) -> None:
    """Send a request on so many connections, read the answer, hang up, and begin again."""
    Crowd(count, request().replace(b"Host:", b"Connection: close\r\nHost:", 1))(port)


def _bodies(count: int, body: Body, port: int) -> None:
    _again(count, lambda: whole(body()), port)


def _list(value: bytes, size: int) -> bytes:
    return b'{"model":"fast","x":[%b1]}' % (value * (size // len(value)))


def _text(value: bytes, name: str = "prompt") -> bytes:
    return b'{"%b":"%b"}' % (name.encode(), value * (_LARGE // len(value)))


def _form() -> bytes:
    """A form of 120 parts whose heads are mostly blanks."""
    part = b'--x\r\nContent-Disposition: form-data; name="a%d"\r\nX:a%bb\r\n\r\n1\r\n'
    parts = b"".join(part % (number, b" " * 7900) for number in range(120))
    return whole(parts + b"--x--\r\n", headers="Content-Type: multipart/form-data; boundary=x\r\n")


def _dashes() -> bytes:
    """A form that is dear to search for its boundary."""
    mark = b"-" * 69 + b"x"
    file = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' % mark
    kind = f"Content-Type: multipart/form-data; boundary={mark.decode()}\r\n"
    return whole(file + b"-" * _LARGE + b"\r\n--%b--\r\n" % mark, headers=kind)


def _chat(size: int, model: str = "fast") -> bytes:
    content = b"x" * size
    return b'{"model":"%b","messages":[{"role":"user","content":"%b"}]}' % (model.encode(), content)


def _held_back(drop: bytes, port: int) -> None:
    """Bodies of 63 MiB that stop before their end."""
    Crowd(6, whole(_chat(_LARGE))[:-1_000_000], drop)(port)


def _coded(coding: str, body: Body, count: int = 20) -> Callable[[int], None]:
    """Return an attack of bodies that are coded already."""
    fields = f"Content-Encoding: {coding}\r\n"
    return partial(_again, count, lambda: whole(body(), headers=fields))


def _random_text() -> bytes:
    """Text that is shorter by a quarter when it is coded, and dear to decode."""
    return base64.b64encode(os.urandom(_LARGE * 3 // 4))


def _cut_short(body: bytes) -> bytes:
    return body[: len(body) * 9 // 10]


_FIELDS: Final = "".join(f"X-{number}: {'y' * 300}\r\n" for number in range(90))
_UPGRADE: Final = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
_LAN: Final = lan_address()
_HELLO_START: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""Record and handshake header of a ClientHello of 508 bytes (RFC 8446, 4.1.2)."""
_PIPELINED: Final = head("/v1/models", 0, method="GET") * 5000

ATTACKS: Final[Mapping[str, Callable[[int], None]]] = {
    "forms with blanks in their heads": partial(_again, 4, _form),
    "forms of 63 MB of dashes": partial(_again, 4, _dashes),
    "silent connections": Crowd(CROWD, b""),
    "slow heads": Crowd(CROWD, b"POST /v1", b"x"),
    "slow bodies": Crowd(CROWD, head(length=1 << 20) + b"{", b" "),
    "slow chunks": Crowd(CROWD, head() + b"1\r\n{\r\n", b"1\r\n \r\n"),
    "bodies held back": partial(_held_back, b""),
    "bodies held back, a byte at a time": partial(_held_back, b"x"),
    "63 MB of numbers": partial(_bodies, 4, lambda: _list(b"1,", _LARGE)),
    "63 MB of empty lists": partial(_bodies, 4, lambda: _list(b"[],", _LARGE)),
    "63 MB of short strings": partial(_bodies, 4, lambda: _list(b'"",', _LARGE)),
    "63 MB of escapes": partial(_bodies, 4, lambda: _text(b"\\n")),
    "63 MB of other scripts": partial(_bodies, 4, lambda: _text("漢".encode())),
    "63 MB of opening brackets": partial(_bodies, 4, lambda: b'{"x":' + b"[" * _LARGE),
    "63 MB of blanks": partial(_bodies, 4, lambda: b"{" + b" " * _LARGE + b"}"),
    "a model's name of 63 MB": partial(_bodies, 4, lambda: _text(b"a", "model")),
    "gzip of 63 MB of zeros": _coded("gzip", lambda: gzip.compress(bytes(_LARGE))),
    "zstd of 63 MB of zeros": _coded("zstd", lambda: zstd.compress(bytes(_LARGE))),
    "gzip of 63 MB of text": _coded("gzip", lambda: gzip.compress(_random_text(), 1), 4),
    "zstd of 63 MB of text": _coded("zstd", lambda: zstd.compress(_random_text(), 1), 4),
    "gzip of a megabyte of zeros": _coded("gzip", lambda: gzip.compress(bytes(1 << 20)), 200),
    "gzip without an end": _coded("gzip", lambda: _cut_short(gzip.compress(_random_text(), 1)), 4),
    "gzip in gzip in gzip": _coded(
        "gzip", lambda: gzip.compress(gzip.compress(gzip.compress(bytes(_LARGE)))), 200
    ),
    "a million members of gzip": _coded("gzip", lambda: gzip.compress(b"x") * 1_000_000),
    "a million frames of zstd": _coded("zstd", lambda: zstd.compress(b"x") * 1_000_000),
    "gzip of empty blocks": _coded(
        "gzip", lambda: gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 10_000_000, 4
    ),
    "zstd of empty blocks": _coded(
        "zstd", lambda: b"\x28\xb5\x2f\xfd\x00\x58" + b"\0\0\0" * 20_000_000, 4
    ),
    "zstd with windows of 2 GiB": _coded(
        "zstd", lambda: b"\x28\xb5\x2f\xfd\x00\xa8" + b"\2\0\x10x" * 16_000, 200
    ),
    "200 bodies of 16 KB of numbers": partial(_bodies, 200, lambda: _list(b"1,", 16_000)),
    "200 bodies of 200 KB of numbers": partial(_bodies, 200, lambda: _list(b"1,", 200_000)),
    "the same name again and again": partial(
        _bodies, 200, lambda: b'{%b"b":1}' % (b'"a":1,' * 900)
    ),
    "heads of 8,000 lines": partial(_again, 200, lambda: head("/", 0, "a:b\r\n" * 8000)),
    "heads of 30 KB": Crowd(CROWD, head("/v1/models", 0, _FIELDS, "GET")),
    "chunks of a byte": partial(_again, 100, lambda: head() + b"1\r\nx\r\n" * 100_000),
    "chunk extensions": partial(_again, 100, lambda: head() + b"1;" + b"x" * 1_000_000),
    "trailers": partial(_again, 100, lambda: head() + b"0\r\n" + b"X: y\r\n" * 100_000),
    "pipelined requests": Crowd(200, _PIPELINED, reads=False),
    "requests ahead of their turn": Crowd(CROWD, head(SILENT, 0) + _PIPELINED, reads=False),
    "requests that are never answered": Crowd(CROWD, whole(_chat(1000, "other"), SILENT)),
    "streams that nobody reads": Crowd(CROWD, whole(_chat(1000, "other"), ENDLESS), reads=False),
    "half-closed connections": Crowd(CROWD, whole(_chat(1000, "other"), SILENT), half=True),
    "websockets": Crowd(CROWD, head(SOCKET, 0, _UPGRADE, "GET"), b"x"),
    "held requests": Crowd(CROWD, whole(_chat(100_000, "coming"))),
    "held requests whose clients leave": partial(_abandon, whole(_chat(1000, "coming"))),
    "models that are not there": Crowd(CROWD, whole(_chat(1000, "missing"))),
    "connections that come and go": churn,
    **(
        {
            "TLS clients that stay silent": Crowd(CROWD, b"", address=_LAN),
            "TLS clients that stop in their hello": Crowd(CROWD, _HELLO_START, b"x", address=_LAN),
        }
        if _LAN
        else {}
    ),
}
"""Attacks by name; each takes the gateway's port."""
