"""A model server that is ready at once and does what a test asks. Standard library only.

usage: engine.py PORT [--delay S] [--think S] [--die] [--mute] [--ignore-term] [--where A]
"""

import argparse
import json
import os
import signal
import socket
import threading
import time

CHUNKS = 60
CHUNK_PAUSE_S = 0.05


def answer(connection: socket.socket, options: argparse.Namespace) -> None:
    """One request, one answer, then the connection ends."""
    with connection:
        request = connection.recv(65536)
        if b"/completions" in request and options.mute:
            reply(connection, b"500 Internal Server Error", b"{}")
        elif b'"stream": true' in request or b'"stream":true' in request:
            stream(connection)
        else:
            time.sleep(options.think if b"/completions" in request else 0)
            text = f"hello from {options.port}"
            choice = {"text": text, "message": {"role": "assistant", "content": text}}
            reply(connection, b"200 OK", json.dumps({"choices": [choice]}).encode())


def reply(connection: socket.socket, status: bytes, body: bytes) -> None:
    """A response whose length is known."""
    head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    connection.sendall(head % (status, len(body)) + body)


def stream(connection: socket.socket) -> None:
    """Server-sent events, slow enough for something to happen meanwhile."""
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    )
    for number in range(CHUNKS):
        connection.sendall(b'data: {"chunk": %d}\n\n' % number)
        time.sleep(CHUNK_PAUSE_S)
    connection.sendall(b"data: [DONE]\n\n")


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--think", type=float, default=0.0)
    parser.add_argument("--where", default="127.0.0.1")
    for flag in ("--die", "--mute", "--ignore-term"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print("weights: loading", flush=True)  # noqa: T201  # what an engine logs
    time.sleep(options.delay)
    if options.die:
        print("weights: corrupt", flush=True)  # noqa: T201  # what an engine logs
        os._exit(3)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.where, options.port))
        listener.listen(64)
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=answer, args=(connection, options), daemon=True).start()


if __name__ == "__main__":
    main()
