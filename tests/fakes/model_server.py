"""A small model server: a real process with real sockets, told by flags how to behave."""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path


def main() -> None:
    """Serve until a signal."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--socket")
    parser.add_argument("--after-s", type=float, default=0.0)
    parser.add_argument("--status", type=int, default=200)
    parser.add_argument("--report", help="write environment and descriptors there")
    parser.add_argument("--work-s", type=float, default=0.0, help="use the CPU for so long first")
    parser.add_argument("--hang", action="store_true", help="wait for ever with a heartbeat")
    parser.add_argument("--orphan", action="store_true", help="leave a worker behind")
    flags = parser.parse_args()
    if flags.report:
        _report(flags.report)
    if flags.orphan:
        code = "import os, time; os.setsid(); time.sleep(60)"
        worker = subprocess.Popen([sys.executable, "-c", code], close_fds=False)
        print(worker.pid, flush=True)  # noqa: T201
    if flags.hang:
        _hang()
    end = time.monotonic() + flags.work_s
    while time.monotonic() < end:
        pass
    time.sleep(flags.after_s)  # real time: an engine that takes long to listen
    _serve(flags)


def _report(path: str) -> None:
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            targets.append(str(descriptor.readlink()))
    document = {"environment": dict(os.environ), "open": targets, "pid": os.getpid()}
    unfinished = Path(path + ".new")
    unfinished.write_text(json.dumps(document))
    unfinished.rename(path)


def _hang() -> None:
    """Hang as a deadlocked engine does: threads blocked, and one that wakes up and looks."""
    heart, _ = socket.socketpair()
    counter = os.eventfd(0)

    def beat() -> None:
        while True:
            time.sleep(0.1)  # real time: a heartbeat
            os.eventfd_write(counter, 1)
            os.eventfd_read(counter)
            heart.getsockname()

    threading.Thread(target=beat, daemon=True).start()
    threading.Event().wait()


def _serve(flags: argparse.Namespace) -> None:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if flags.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(flags.socket)
    else:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", flags.port))
    listener.listen()
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(f"HTTP/1.1 {flags.status} X\r\nContent-Length: 0\r\n\r\n".encode())


if __name__ == "__main__":
    main()
