"""A caller of the program that runs commands, as another user if need be. Standard library only.

usage: run_caller.py SOCKET REQUEST [--extra] [--mute] [--long]

Writes what it is told, a line each, to the descriptor in TELL; signals it gets are passed on.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time

PATIENCE_S = 20.0


def connected(path: str) -> socket.socket:
    """A connection, as soon as somebody listens."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # real time: no event tells that a program listens
        else:
            return connection


def main(path: str, request: str, *options: str) -> None:
    """Ask, say go, and tell how it ends."""
    told = int(os.environ["TELL"])
    connection = connected(path)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGWINCH):
        signal.signal(
            number,
            lambda n, _: connection.sendall(
                json.dumps({"signal": signal.Signals(n).name[3:]}).encode() + b"\n"
            ),
        )
    descriptors = [0, 1, 2, *([told] if "--extra" in options else [])]
    with contextlib.suppress(ConnectionError):  # it may have refused that already
        socket.send_fds(connection, [request.encode()], descriptors)
        connection.sendall(b" " * (2 << 20 if "--long" in options else 0) + b"\n")
    with contextlib.suppress(ConnectionError):  # it may have left with some of that unread
        for line in connection.makefile():
            os.write(told, line.encode())
            if '"ready"' in line and "--mute" not in options:
                connection.sendall(b'{"go": true}\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
