"""Cases of the corpus, and short ways to write one."""

from collections.abc import Iterable
from dataclasses import dataclass

BODY = b'{"model":"m"}'
CHUNKED_BODY = b"d\r\n" + BODY + b"\r\n0\r\n\r\n"
# Behind what a sender and a receiver may measure differently: it must never be a request.
SMUGGLED = b"GET /v1/smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
CHAT = b"/v1/chat/completions"
SENTINEL = b"/v1/sentinel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A request as the engine has to get it, but that it gets GET for HEAD."""

    method: bytes = b"POST"
    target: bytes = CHAT
    body: bytes = BODY
    status: int = 200
    """Status that the client is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Bytes from a client, and what has to become of them."""

    name: str
    raw: bytes
    taken: tuple[Taken, ...] = ()
    """Requests that the engine gets, in this order and no others."""
    refused: frozenset[int] = frozenset()
    """Status with which the gateway itself refuses the next request; empty: none is refused."""
    closes: bool = False
    """The connection is closed after that. Otherwise another request can follow."""
    unfinished: bool = False
    """The bytes end in the middle of a request, and then the client is gone."""
    droppable: bool = False
    """The connection may be closed after any of the answers: what follows is not sent on then."""


def taken(name: str, raw: bytes, *requests: Taken, closes: bool = False) -> Case:
    """Requests that go to the engine; without any given, the usual one."""
    return Case(name=name, raw=raw, taken=requests or (Taken(),), closes=closes)


def refused(name: str, raw: bytes, *statuses: int, after: tuple[Taken, ...] = ()) -> Case:
    """A request that is refused (with 400 unless said), and its connection closed."""
    return Case(name=name, raw=raw, taken=after, refused=frozenset(statuses or (400,)), closes=True)


def answered(name: str, raw: bytes, *statuses: int) -> Case:
    """A well-formed request that the gateway answers itself; the next one is none the worse."""
    return Case(name=name, raw=raw, refused=frozenset(statuses))


def droppable(name: str, raw: bytes, *requests: Taken) -> Case:
    """Several requests at once, of which the gateway need not take more than the first."""
    return Case(name=name, raw=raw, taken=requests, droppable=True)


def unfinished(name: str, raw: bytes, *requests: Taken) -> Case:
    """Return a case that stops in the middle, after so many whole requests."""
    return Case(name=name, raw=raw, taken=requests, unfinished=True, closes=True)


def request(
    *lines: bytes,
    start: bytes = b"POST /v1/chat/completions HTTP/1.1",
    host: bytes = b"Host: x\r\n",
    body: bytes = b"",
) -> bytes:
    """A request of a start line, a Host and these header lines."""
    head = b"".join(line + b"\r\n" for line in lines)
    return start + b"\r\n" + host + b"Content-Type: application/json\r\n" + head + b"\r\n" + body


def post(*lines: bytes, body: bytes = BODY) -> bytes:
    """A request with a body of declared length, and these header lines besides."""
    return request(*lines, b"Content-Length: %d" % len(body), body=body)


def chunked(*lines: bytes, body: bytes = CHUNKED_BODY) -> bytes:
    """A request with a body in chunks, as they are given."""
    return request(*lines, b"Transfer-Encoding: chunked", body=body)


def get(target: bytes = b"/v1/thing", *lines: bytes) -> bytes:
    """A request without a body."""
    head = b"".join(line + b"\r\n" for line in lines)
    return b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n"


def asking_sentinel() -> bytes:
    """A request that is sent after a case: whose answer comes, tells whether all are in step."""
    return get(SENTINEL)


def got(target: bytes = b"/v1/thing", *, status: int = 200) -> Taken:
    """Return the request as the engine receives it."""
    return Taken(method=b"GET", target=target, body=b"", status=status)


def unique(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return all cases; a name that is used twice is a mistake in the corpus."""
    by_name: dict[str, Case] = {}
    for case in cases:
        if case.name in by_name:
            raise ValueError(f"two cases are called {case.name!r}")
        by_name[case.name] = case
    return tuple(by_name.values())
