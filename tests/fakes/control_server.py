"""A supervisor as its clients see it: a unix socket that speaks the control protocol."""

import json
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

HELLO: Final[Mapping[str, object]] = {"event": "hello", "protocol": 1, "version": "0.1.0"}
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Hang:
    """Say nothing more until the client goes."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection without a closing event."""


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Say nothing until there is such a file."""

    path: Path


Step = Mapping[str, object] | Hang | HangUp | WaitFor
Story = Sequence[Step]
"""Answer to a request, after the greeting."""


class FakeSupervisor:
    """Answers every request for a verb with that verb's story.

    Args:
        path: Where to listen.
        stories: By verb.
        greeting: The first line; None: stay silent for ever.
    """

    def __init__(
        self,
        path: Path,
        stories: Mapping[str, Story],
        *,
        greeting: Mapping[str, object] | None = HELLO,
    ) -> None:
        self.path = path
        self.requests: list[Mapping[str, object]] = []
        """Every request, in order."""
        self._stories = stories
        self._greeting = greeting
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._listener.settimeout(0.05)
        self._run(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), "a conversation did not end"
        self._listener.close()

    def _run(self, target: "threading._Target", *args: object) -> None:  # type: ignore[name-defined]
        thread = threading.Thread(target=target, args=args)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while not self._ending.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._run(self._converse, connection)

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(0.05)
            request = self._request(connection)
            if request is None:
                return
            self.requests.append(request)
            if self._greeting is None:
                self._until_gone(connection)
                return
            self._send(connection, self._greeting)
            if self._greeting["event"] == "hello":
                self._tell(connection, self._story(request))

    def _story(self, request: Mapping[str, object]) -> Story:
        return self._stories[str(request["verb"])]

    def _tell(self, connection: socket.socket, story: Story) -> None:
        for step in story:
            match step:
                case Hang():
                    self._until_gone(connection)
                case HangUp():
                    return
                case WaitFor(path):
                    while not path.exists() and not self._ending.wait(0.01):
                        pass
                case _:
                    self._send(connection, step)

    def _request(self, connection: socket.socket) -> Mapping[str, object] | None:
        line = b""
        while not line.endswith(b"\n"):
            chunk = self._receive(connection)
            if not chunk:
                return None
            line += chunk
        request = json.loads(line)
        assert isinstance(request, dict)
        return request

    def _until_gone(self, connection: socket.socket) -> None:
        while self._receive(connection):
            pass

    def _receive(self, connection: socket.socket) -> bytes:
        while not self._ending.is_set():
            try:
                return connection.recv(65_536)
            except TimeoutError:
                continue
            except ConnectionError:
                return b""
        return b""

    def _send(self, connection: socket.socket, event: Mapping[str, object]) -> None:
        line = memoryview(json.dumps(event).encode() + b"\n")
        while line and not self._ending.is_set():
            try:
                line = line[connection.send(line) :]
            except TimeoutError:
                continue  # the client reads later
            except OSError:
                return  # the client left, as it may
