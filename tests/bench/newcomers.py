"""Clients of a gateway that is being replaced, in a box. Standard library only.

``python3 newcomers.py PORT STREAMS``: that many clients read one stream after the other, and one
more asks for small answers, each on a connection of its own. At SIGTERM all of them finish what
they are at, and one JSON object is printed: streams that were whole and that were not, connections
that were refused, answers that were none, and how long each small answer took, in milliseconds.
"""

import http.client
import json
import signal
import sys
import threading
import time

TIMEOUT_S = 60.0
PAUSE_S = 0.005
HEAD = {"Content-Type": "application/json"}


class Told:
    """Answers that all newcomers received."""

    def __init__(self) -> None:
        self.whole = self.lost = self.refused = self.failed = 0
        self.waits_ms: list[float] = []


def ask(port: int, *, stream: bool) -> bytes:
    """One request on a connection of its own; raise `OSError` or `HTTPException` if it fails."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "stream": stream})
    try:
        connection.request("POST", "/v1/chat/completions", body, HEAD)
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(answer.status)
    return text


def read_streams(port: int, told: Told, enough: threading.Event) -> None:
    """Read streams until it is time."""
    while not enough.is_set():
        try:
            whole = ask(port, stream=True).rstrip().endswith(b"data: [DONE]")
        except (OSError, http.client.HTTPException):
            whole = False
        told.whole += whole
        told.lost += not whole


def keep_coming(port: int, told: Told, enough: threading.Event) -> None:
    """Be a newcomer, again and again."""
    while not enough.wait(PAUSE_S):
        began_s = time.monotonic()
        try:
            ask(port, stream=False)
        except ConnectionRefusedError:
            told.refused += 1
        except (OSError, http.client.HTTPException):
            told.failed += 1
        told.waits_ms.append((time.monotonic() - began_s) * 1000)


def main() -> None:
    """Run them all."""
    port, streams = int(sys.argv[1]), int(sys.argv[2])
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: enough.set())
    all_told = [Told() for _ in range(streams + 1)]
    threads = [
        threading.Thread(target=read_streams if number else keep_coming, args=(port, told, enough))
        for number, told in enumerate(all_told)
    ]
    for thread in threads:
        thread.start()
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    for thread in threads:
        thread.join()
    total = {
        name: sum(getattr(told, name) for told in all_told)
        for name in ("whole", "lost", "refused", "failed")
    }
    sys.stdout.write(json.dumps({**total, "waits_ms": all_told[0].waits_ms}) + "\n")


if __name__ == "__main__":
    main()
