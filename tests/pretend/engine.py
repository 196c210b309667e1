"""A model server that holds pretend VRAM and does what a test asks. Standard library only.

SIGUSR1 ends it with status 0, SIGUSR2 with status 1. It answers the OpenAI API: /health, /v1/models, /v1/completions and /v1/chat/completions, also as
a stream. Memory that it cannot get ends it with status 1 and the words of a real engine.
"""

import argparse
import contextlib
import ctypes
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator

STEP_BYTES = 512 << 20


def arguments() -> argparse.Namespace:
    """Return the arguments of the test."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--where", default="127.0.0.1")
    parser.add_argument("--vram", action="append", default=[], metavar="GPU:GIB")
    parser.add_argument("--load", type=float, default=0.0, help="seconds, spread over the memory")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before it loads")
    parser.add_argument("--think", type=float, default=0.0, help="seconds for an answer")
    parser.add_argument("--chunks", type=int, default=60, help="of a stream")
    parser.add_argument("--obey", action="store_true", help="as many chunks as are asked for")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds after each chunk")
    parser.add_argument("--apart", action="store_true", help="another process makes the answers")
    parser.add_argument("--workers", type=int, default=0, help="each holds --worker-vram too")
    parser.add_argument("--worker-vram", action="append", default=[], metavar="GPU:GIB")
    parser.add_argument("--release", type=float, help="seconds its bytes stay; -1 for ever")
    parser.add_argument("--ghost", action="store_true", help="it stays in the list when dead")
    parser.add_argument("--kind", default="C", choices="CGM")
    parser.add_argument("--die", nargs="?", const="start", choices=("start", "load", "ready"))
    parser.add_argument("--die-status", type=int, default=3)
    parser.add_argument("--die-after", type=float, default=0.0, help="seconds after that moment")
    parser.add_argument("--metrics", help="file to answer /metrics with")
    parser.add_argument("--mute", action="store_true", help="completions fail")
    parser.add_argument("--ignore-term", action="store_true")
    parser.add_argument("--no-reuse", action="store_true", help="bind without SO_REUSEADDR")
    parser.add_argument("--hang", action="store_true", help="before it loads, with its workers")
    return parser.parse_args()


def say(text: str) -> None:
    """Log a line as an engine does."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def die(options: argparse.Namespace) -> None:
    """Fail, now or in a while."""

    def end() -> None:
        say("weights: corrupt")
        os._exit(options.die_status)

    if options.die_after:
        timer = threading.Timer(options.die_after, end)
        timer.daemon = True
        timer.start()
    else:
        end()


class Memory:
    """Pretend VRAM of this process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._driver = ctypes.CDLL("libnvidia-ml.so.1")
        if options.release is not None or options.ghost or options.kind != "C":
            delay_ms = -2 if options.release is None else int(options.release * 1000)
            kind = ctypes.c_char(options.kind.encode())
            delay_ms = -1 if options.release is not None and options.release < 0 else delay_ms
            self._driver.pretendBehave(kind, ctypes.c_longlong(delay_ms), int(options.ghost))

    def take(self, gpu: int, size_bytes: int) -> None:
        """Hold so much more, or end as an engine does when there is not enough."""
        code = self._driver.pretendAlloc(gpu, ctypes.c_longlong(size_bytes))
        if code:
            say(f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size_bytes} bytes")
            os._exit(1)


def load(options: argparse.Namespace, wanted: list[str]) -> None:
    """Take memory piece by piece, as loaders of weights do."""
    pieces: list[tuple[int, int]] = []
    for text in wanted:
        index, _, gib = text.partition(":")
        left = int(float(gib) * (1 << 30))
        while left > 0:
            pieces.append((int(index), min(left, STEP_BYTES)))
            left -= STEP_BYTES
    memory = Memory(options) if pieces else None
    for number, (gpu, size_bytes) in enumerate(pieces):
        if options.die == "load" and number == len(pieces) // 2:
            die(options)
        if memory is not None:
            memory.take(gpu, size_bytes)
        time.sleep(options.load / len(pieces))


def leak_worker(options: argparse.Namespace) -> None:
    """Start a worker as nobody's child: only its control group still knows whose it is."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            load(options, options.worker_vram)
            signal.pause()
        os._exit(0)
    os.wait()


class Maker:
    """A process of its own that has to say yes to each answer, as an engine core is one."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._turn = threading.Lock()
        if os.fork() == 0:
            self._ours.close()
            while asked := theirs.recv(1):
                theirs.sendall(asked)
            os._exit(0)
        theirs.close()

    def ask(self) -> None:
        """Wait for it."""
        with self._turn:
            self._ours.sendall(b"?")
            self._ours.recv(1)


makers: list[Maker] = []


def requests(connection: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Heads and bodies, as long as the client sends some."""
    buffered = b""
    while True:
        while b"\r\n\r\n" not in buffered:
            if not (more := connection.recv(65536)):
                return
            buffered += more
        head, _, buffered = buffered.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        size = int(length[1]) if length else 0
        while len(buffered) < size:
            if not (more := connection.recv(65536)):
                return
            buffered += more
        yield head, buffered[:size]
        buffered = buffered[size:]


def answer(connection: socket.socket, options: argparse.Namespace) -> None:
    """One request after the other, until the client goes."""
    with connection, contextlib.suppress(ConnectionError):
        for head, body in requests(connection):
            path = head.split(b" ", 2)[1]
            asked = json.loads(body) if body else {}
            if path.endswith(b"/completions"):
                complete(connection, options, asked)
            elif path == b"/v1/models":
                models = {"object": "list", "data": [{"id": "pretend", "object": "model"}]}
                reply(connection, b"200 OK", json.dumps(models).encode())
            elif path == b"/metrics" and options.metrics:
                with open(options.metrics, "rb") as file:  # noqa: PTH123 - a quick start
                    reply(connection, b"200 OK", file.read())
            else:
                reply(connection, b"200 OK", b"{}")


def complete(
    connection: socket.socket, options: argparse.Namespace, asked: dict[str, object]
) -> None:
    """Say hello, and which model was asked for."""
    if options.mute:
        reply(connection, b"500 Internal Server Error", b"{}")
        return
    for maker in makers:
        maker.ask()
    text, usage = f"hello from {options.port}", {"prompt_tokens": 3, "completion_tokens": 3}
    about = {"id": "pretend", "model": asked.get("model")}
    if asked.get("stream"):
        stream(connection, options, about, text, chunks_of(options, asked))
        return
    time.sleep(options.think)
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "text": text, "message": message, "finish_reason": "stop"}
    whole = {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
    reply(connection, b"200 OK", json.dumps(whole).encode())


def reply(connection: socket.socket, status: bytes, body: bytes) -> None:
    """A response whose length is known."""
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % (status, len(body)) + body)


def chunks_of(options: argparse.Namespace, asked: dict[str, object]) -> int:
    """Return the length of a stream."""
    most = asked.get("max_tokens")
    return most if options.obey and isinstance(most, int) else options.chunks


def stream(
    connection: socket.socket,
    options: argparse.Namespace,
    about: dict[str, object],
    text: str,
    chunks: int,
) -> None:
    """Server-sent events, slow enough for something to happen meanwhile."""
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    whole = {**about, "object": "chat.completion.chunk"}
    for number in range(chunks):
        piece = text if number == 0 else f" {number}"
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        event(connection, json.dumps({**whole, "choices": [choice]}))
        time.sleep(options.pause)
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": chunks}
    event(connection, json.dumps({**whole, "choices": [last], "usage": usage}))
    event(connection, "[DONE]")
    connection.sendall(b"0\r\n\r\n")


def event(connection: socket.socket, text: str) -> None:
    """One server-sent event in a chunk of its own."""
    line = f"data: {text}\n\n".encode()
    connection.sendall(b"%x\r\n%b\r\n" % (len(line), line))


def serve(options: argparse.Namespace) -> None:
    """Answer until the end."""
    with socket.socket() as listener:
        if not options.no_reuse:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.where, options.port))
        listener.listen(64)
        if options.die == "ready":
            die(options)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection, options), daemon=True).start()


def main() -> None:
    """Load, then serve until SIGTERM."""
    options = arguments()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    for status, number in enumerate((signal.SIGUSR1, signal.SIGUSR2)):
        signal.signal(number, lambda *_, status=status: os._exit(status))
    say("weights: loading")
    time.sleep(options.delay)
    if options.die == "start":
        die(options)
    for _ in range(options.workers):
        leak_worker(options)
    while options.hang:
        time.sleep(60)
    load(options, options.vram)
    if options.apart:
        makers.append(Maker())
    serve(options)


if __name__ == "__main__":
    main()
