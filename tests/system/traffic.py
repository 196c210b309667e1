"""Clients that keep asking, in a box: what they were told, counted. Standard library only.

`python3 traffic.py PORT CLIENTS`: every other client streams. At SIGTERM each finishes its request;
then one JSON object is printed: what each request came to, who answered, and the longest wait. A stream has an end only with
``[DONE]``, and a failure only with an error event; anything else was truncated.
"""

import http.client
import json
import signal
import sys
import threading
import time
from collections import Counter

TIMEOUT_S = 120.0


class Client(threading.Thread):
    """One that asks, waits for the answer and asks again, on one connection while it lasts."""

    def __init__(self, port: int, enough: threading.Event, *, stream: bool) -> None:
        super().__init__(daemon=True)
        self.outcomes: Counter[str] = Counter()
        self.answered_by: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.slowest_s = 0.0
        self._port = port
        self._enough = enough
        self._stream = stream

    def run(self) -> None:
        """Ask until it is time."""
        connection = self._connected()
        while not self._enough.is_set():
            began_s = time.monotonic()
            try:
                outcome, lasts = self._ask(connection), True
            except ConnectionRefusedError:
                outcome, lasts = "refused", False
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                outcome, lasts = "disconnected", False
            except (http.client.HTTPException, OSError, ValueError):
                outcome, lasts = "truncated", False
            self.outcomes[outcome] += 1
            self.slowest_s = max(self.slowest_s, time.monotonic() - began_s)
            if not lasts:
                connection.close()
                connection = self._connected()
        connection.close()

    def _connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_S)

    def _ask(self, connection: http.client.HTTPConnection) -> str:
        body = json.dumps(
            {
                "model": "default",
                "messages": [{"role": "user", "content": "hello"}],
                "stream": self._stream,
            }
        )
        head = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, head)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.headers.get_content_type() == "text/event-stream":
            return self._streamed(text)
        whole = json.loads(text)
        if answer.status != http.client.OK:
            self.errors[f"{answer.status} {whole['error'].get('code')}"] += 1
            return "error"
        self.answered_by[whole["choices"][0]["message"]["content"]] += 1
        return "answered"

    def _streamed(self, text: str) -> str:
        events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        for event in events[:1]:
            delta = json.loads(event).get("choices", [{}])[0].get("delta", {})
            if "content" in delta:
                self.answered_by[delta["content"]] += 1
        if events and events[-1] == "[DONE]":
            return "answered"
        failed = [e for e in events if e.startswith("{") and "error" in json.loads(e)]
        if failed:
            self.errors[str(json.loads(failed[-1])["error"].get("code"))] += 1
            return "cut"
        return "truncated"


def main() -> None:
    """Run them all."""
    port, count = int(sys.argv[1]), int(sys.argv[2])
    enough = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: enough.set())
    clients = [Client(port, enough, stream=bool(number % 2)) for number in range(count)]
    for client in clients:
        client.start()
    sys.stdout.write("asking\n")
    sys.stdout.flush()
    for client in clients:
        client.join()
    total = {
        name: dict(sum((getattr(client, name) for client in clients), Counter()))
        for name in ("outcomes", "answered_by", "errors")
    }
    slowest = max(client.slowest_s for client in clients)
    sys.stdout.write(json.dumps({**total, "slowest_s": round(slowest, 3)}) + "\n")


if __name__ == "__main__":
    main()
