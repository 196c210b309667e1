"""Server that speaks ntfy's publish API, takes webhooks and pings, and fails as it is told.

It knows sequence ids, scheduled messages and their end, as ntfy does from 2.16 on; `old` makes it the
server of before, which publishes each message anew and answers success. A standalone program of the
standard library, so that it runs in a box, too: see `main`. Paths:

==========================  ==============================================================
``POST /``                  publish: JSON with a ``topic``
``POST /TOPIC[/SEQUENCE]``  publish: the body is the text, headers have the rest
``DELETE /TOPIC/SEQUENCE``  end a scheduled message, and delete the entry
``/hook/…``, ``/ping/…``    a webhook, a ping: recorded
``GET /_state``             everything that was received, as JSON
``POST /_control``          JSON with the fields of `Faults`, or ``skip_s``: time that passes
==========================  ==============================================================
"""

import argparse
import json
import re
import signal
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from email.header import decode_header, make_header
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

LEAST_DELAY_S: Final = 10.0
MOST_DELAY_S: Final = 3 * 86_400.0
MOST_MESSAGE_BYTES: Final = 4096
_MOST_BODY_BYTES: Final = 1 << 20
_TOPIC: Final = re.compile(r"[-_A-Za-z0-9]{1,64}")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_SPAN: Final = re.compile(r"(\d+)\s*(s|min|m|h|d)?")
_OTHER_NAMES: Final = {"x-in": "delay", "in": "delay", "at": "delay", "x-at": "delay"}


class RefusedError(Exception):
    """Request that the server answers with an error."""

    def __init__(self, status: int, code: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """Message that was published."""

    id: str
    topic: str
    event: str = "message"
    """Kind: ``message`` or ``message_delete``."""
    sequence_id: str = ""
    at_s: float
    """Time when it came."""
    due_s: float
    """Time of its delivery; for one that is not scheduled `at_s`."""
    title: str = ""
    message: str = ""
    priority: int = 3
    tags: tuple[str, ...] = ()
    click: str = ""
    actions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Notification as the phone shows it: the last message of a sequence id."""

    topic: str
    sequence_id: str
    shown: Received
    messages: int
    """Count of messages of which it is the last."""


@dataclass(slots=True, kw_only=True)
class Faults:
    """Faults of requests, except those of the test itself."""

    status: int = 0
    """Status of every answer, and nothing is taken; 0: as it should be."""
    retry_after: str = ""
    """Header of these answers."""
    delay_s: float = 0.0
    """Time before each answer."""
    hang_up: str = ""
    """``before``: the connection ends and nothing is taken; ``after``: it is taken, and ends so."""
    times: int = -1
    """Count of requests after which all is well again; -1: never."""


class NtfyInbox:
    """Messages published, scheduled and delivered, without a socket; may run on virtual time.

    Args:
        now: Clock.
        old: Whether it is of before 2.16 and knows no sequence ids.
    """

    def __init__(self, now: Callable[[], float] = time.time, *, old: bool = False) -> None:
        self.now = now
        self.old = old
        self._all: list[Received] = []

    def publish(self, form: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take a message by the fields of ntfy's JSON form; return the answer.

        Raises:
            RefusedError: ntfy would refuse it.
        """
        topic, text = str(form.get("topic", "")), str(form.get("message") or "triggered")
        if not _TOPIC.fullmatch(topic):
            raise RefusedError(400, 40009, "invalid request: topic invalid")
        if len(text.encode()) > MOST_MESSAGE_BYTES:
            raise RefusedError(413, 41301, "message too large, and attachments are not allowed")
        if (priority := int(form.get("priority") or 3)) not in range(1, 6):
            raise RefusedError(400, 40007, "invalid priority parameter")
        sequence = "" if self.old else str(form.get("sequence_id") or "")
        if sequence and not _TOPIC.fullmatch(sequence):
            raise RefusedError(400, 40049, "invalid request: sequence ID invalid")
        if len(actions := tuple(form.get("actions") or ())) > 3:
            raise RefusedError(400, 40018, "invalid request: actions invalid; too many actions")
        now = self.now()
        message = Received(
            id=f"m{len(self._all):011d}",
            topic=topic,
            sequence_id=sequence,
            at_s=now,
            due_s=now + _delay(str(form.get("delay") or "")),
            title=str(form.get("title") or ""),
            message=text,
            priority=priority,
            tags=tuple(map(str, form.get("tags") or ())),
            click=str(form.get("click") or ""),
            actions=actions,
        )
        self._end_scheduled(topic, sequence)
        self._all.append(message)
        return _answer(message)

    def delete(self, topic: str, sequence_id: str) -> Mapping[str, Any]:
        """End a scheduled message and delete the entry; return the answer. Raises `RefusedError`."""
        if self.old:
            raise RefusedError(404, 40401, "page not found")
        now = self.now()
        self._end_scheduled(topic, sequence_id)
        mark = Received(
            id=f"m{len(self._all):011d}",
            topic=topic,
            event="message_delete",
            sequence_id=sequence_id,
            at_s=now,
            due_s=now,
        )
        self._all.append(mark)
        return _answer(mark)

    def delivered(self) -> list[Received]:
        """Return the messages that phones have, in the order in which they came there."""
        now = self.now()
        return sorted((m for m in self._all if m.due_s <= now), key=lambda m: m.due_s)

    def scheduled(self) -> list[Received]:
        """Return the messages that wait for their time."""
        now = self.now()
        return [m for m in self._all if m.due_s > now]

    def entries(self) -> list[Entry]:
        """Return the notifications that a phone with every topic shows, the oldest first."""
        shown: dict[tuple[str, str], Entry] = {}
        for message in self.delivered():
            key = message.topic, message.sequence_id or message.id
            before = shown.pop(key, None) if message.event != "message" else shown.get(key)
            if message.event == "message":
                count = 1 if before is None else before.messages + 1
                shown[key] = Entry(topic=key[0], sequence_id=key[1], shown=message, messages=count)
        return list(shown.values())

    def _end_scheduled(self, topic: str, sequence_id: str) -> None:
        now = self.now()
        if sequence_id:
            self._all = [
                m
                for m in self._all
                if m.due_s <= now or (m.topic, m.sequence_id) != (topic, sequence_id)
            ]


def _delay(text: str) -> float:
    if not text:
        return 0.0
    match = _SPAN.fullmatch(text)
    if match is None:
        raise RefusedError(400, 40004, "invalid delay parameter: unable to parse delay")
    delay = float(match[1]) * _UNITS[match[2] or ""]
    if delay < LEAST_DELAY_S:
        raise RefusedError(400, 40005, "invalid delay parameter: too small")
    if delay > MOST_DELAY_S:
        raise RefusedError(400, 40006, "invalid delay parameter: too large")
    return delay


def _answer(message: Received) -> Mapping[str, Any]:
    """Return ntfy's JSON of a message: it leaves out what is empty."""
    document = asdict(message)
    document.pop("at_s")
    return {key: value for key, value in document.items() if value} | {"time": int(message.due_s)}


@dataclass(slots=True, kw_only=True)
class Requests:
    """Requests that are no messages, and those that were refused."""

    hooks: list[Mapping[str, Any]] = field(default_factory=list)
    """Requests below ``/hook``, with `path`, `body` and `at_s`."""
    pings: list[Mapping[str, Any]] = field(default_factory=list)
    """Requests below ``/ping``, with `path` and `at_s`."""
    credentials: list[str] = field(default_factory=list)
    """Value of the header Authorization of each request, decoded where it is Basic."""
    refused: int = 0
    served: int = 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _ntfy(self) -> "NtfyServer":
        assert isinstance(self.server, _Http)
        return self.server.ntfy

    def _serve(self) -> None:
        server = self._ntfy
        length = min(int(self.headers.get("Content-Length") or 0), _MOST_BODY_BYTES)
        body = self.rfile.read(length)
        if self.path == "/_state":
            with server.lock:
                return self._answer(200, server.state())
        if self.path == "/_control":
            with server.lock:
                server.control(json.loads(body or b"{}"))
            return self._answer(200, {})
        return self._serve_others(body)

    def _serve_others(self, body: bytes) -> None:
        server = self._ntfy
        with server.lock:
            fault = server.next_fault()
        if fault.delay_s:
            time.sleep(fault.delay_s)  # real time: a server that is slow to answer
        if fault.status or fault.hang_up == "before":
            server.requests.refused += 1
            return self._fail(fault)
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            with server.lock:
                answer = server.take(self.command, self.path, headers, body)
                server.requests.served += 1
        except RefusedError as error:
            server.requests.refused += 1
            document = {"code": error.code, "http": error.status, "error": str(error)}
            return self._answer(error.status, document)
        if fault.hang_up:
            self.close_connection = True
            return None
        return self._answer(200, answer)

    def _fail(self, fault: Faults) -> None:
        if not fault.status:
            self.close_connection = True
            return
        more = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        if 300 <= fault.status < 400:
            more["Location"] = f"http://{self._ntfy.address}/hook/login"
        self._answer(fault.status, {"code": fault.status * 100, "http": fault.status}, more)

    def _answer(
        self, status: int, document: Mapping[str, Any], more: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815 - the base's names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Print nothing."""


class _Http(ThreadingHTTPServer):
    """HTTP server whose connections all end with it."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], ntfy: "NtfyServer") -> None:
        self.ntfy = ntfy
        self.open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        for connection in tuple(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().server_close()


class NtfyServer:
    """The server, as a context manager.

    Args:
        host: Address to listen on.
        port: 0: any that is free.
        inbox: What takes the messages; None: a new one.
        token: Value of ``Authorization`` that every request must have; empty: none must.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        inbox: NtfyInbox | None = None,
        token: str = "",
    ) -> None:
        self._skipped_s = 0.0
        self.inbox = inbox or NtfyInbox(lambda: time.time() + self._skipped_s)
        self.requests = Requests()
        self.faults = Faults()
        self.token = token
        self.lock = threading.Lock()
        self._http = _Http((host, port), self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )

    @property
    def address(self) -> str:
        """Return ``host:port``."""
        host, port = self._http.server_address[:2]
        return f"{host!s}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def state(self) -> Mapping[str, Any]:
        """Return everything that was received, as JSON has it."""
        return {
            "delivered": [asdict(m) for m in self.inbox.delivered()],
            "scheduled": [asdict(m) for m in self.inbox.scheduled()],
            "entries": [asdict(e) for e in self.inbox.entries()],
            **asdict(self.requests),
        }

    def control(self, orders: Mapping[str, Any]) -> None:
        """Let time pass (``skip_s``), or fail from now on as the fields of `Faults` say."""
        self._skipped_s += float(orders.get("skip_s", 0))
        known = {f.name for f in fields(Faults)}
        if known & orders.keys() or not orders:
            self.faults = Faults(**{key: orders[key] for key in known & orders.keys()})

    def next_fault(self) -> Faults:
        """Return what goes wrong with the next request, and count it."""
        faults = self.faults
        if faults.times == 0:
            return Faults()
        if faults.times > 0:
            faults.times -= 1
        return Faults(**asdict(faults))

    def take(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Mapping[str, Any]:
        """Take a request that nothing goes wrong with; return the answer. Raises `RefusedError`."""
        now = self.inbox.now()
        self.requests.credentials.append(_credential(headers.get("authorization", "")))
        if path.startswith("/ping/"):
            self.requests.pings.append({"path": path, "at_s": now})
            return {}
        if path.startswith("/hook/"):
            text = body.decode(errors="replace")
            self.requests.hooks.append({"path": path, "body": text, "at_s": now})
            return {}
        if self.token and headers.get("authorization") != self.token:
            raise RefusedError(401, 40101, "unauthorized")
        parts = [part for part in path.partition("?")[0].split("/") if part]
        if method == "DELETE" and len(parts) == 2:
            return self.inbox.delete(parts[0], parts[1])
        if method in {"POST", "PUT"} and len(parts) <= 2:
            return self.inbox.publish(_form(parts, headers, body))
        raise RefusedError(404, 40401, "page not found")


def _form(parts: list[str], headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
    """Return a message in the JSON form, whichever form it came in."""
    if not parts:
        try:
            form = json.loads(body)
        except ValueError as error:
            raise RefusedError(400, 40024, "invalid request: request body must be JSON") from error
        return form if isinstance(form, dict) else {}
    plain = {
        _OTHER_NAMES.get(name, name.removeprefix("x-")): str(make_header(decode_header(value)))
        for name, value in headers.items()
    }
    return {
        "topic": parts[0],
        "sequence_id": parts[1] if len(parts) == 2 else plain.get("sequence-id"),
        "message": body.decode(errors="replace"),
        "title": plain.get("title"),
        "priority": plain.get("priority"),
        "tags": [tag for tag in plain.get("tags", "").split(",") if tag],
        "click": plain.get("click"),
        "delay": plain.get("delay"),
        "actions": json.loads(plain.get("actions") or "[]"),
    }


def _credential(text: str) -> str:
    kind, _, value = text.partition(" ")
    return b64decode(value).decode() if kind.lower() == "basic" else value


def main() -> None:
    """Serve until a signal; with --print, print each notification as a phone shows it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--old", action="store_true", help="knows no sequence ids")
    parser.add_argument("--token", default="")
    parser.add_argument("--state", type=Path, help="file with the state, written at each change")
    parser.add_argument("--print", action="store_true", dest="prints")
    flags = parser.parse_args()
    server = NtfyServer(host=flags.host, port=flags.port, token=flags.token)
    server.inbox.old = flags.old
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with server:
        print(f"listening on {server.address}", flush=True)  # noqa: T201
        _watch(server, flags.state, prints=flags.prints)


def _watch(server: NtfyServer, state: Path | None, *, prints: bool) -> None:
    """Show what comes until SIGTERM; what came in the last moment before it, too."""
    shown, written, is_last = 0, "", False
    while not is_last:
        # Real time: whoever reads the output waits for it anyway.
        is_last = signal.sigtimedwait({signal.SIGTERM}, 0.1) is not None
        with server.lock:
            delivered = server.inbox.delivered()
            text = json.dumps(server.state())
        if state is not None and text != written:
            new = state.with_name(f"{state.name}.new")
            new.write_text(text)
            new.rename(state)
            written = text
        for message in delivered[shown:] if prints else ():
            lines = [
                f"[{message.sequence_id or message.id}] {'!' * message.priority} {message.title}"
            ]
            lines += [f"    {line}" for line in message.message.splitlines()]
            print("\n".join(lines), flush=True)  # noqa: T201
        shown = len(delivered)


if __name__ == "__main__":
    main()
