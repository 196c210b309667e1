"""Clients that hang up at random moments, in a box: ``python3 hangup_clients.py GATEWAY ENGINE PID COUNT SEED``.

Standard library only. One client after the other asks the gateway, and leaves: in the middle of a prompt or of an
answer, streaming or not, by closing, by resetting or by closing its sending half. After each the connections that the
gateway has to the engine are counted in the kernel's table, and the engine is asked for the requests that it works
on. The last line is JSON with the times of both, in milliseconds, and what was left at the end.

``python3 hangup_clients.py --held GATEWAY COUNT SEED`` instead has so many clients wait at once, tells of it in a line,
and has them leave at random within a second.
"""

import http.client
import json
import pwd
import random
import re
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 120.0
WORDS = ("sea", "ship", "wind", "wave", "rope", "sail", "storm", "coast", "night", "reef")
GATEWAY_USER = "appliance-gateway"
ESTABLISHED = "01"
MOST_TOKENS = 400
"""Length of an answer: made to its end it takes longer than a second by far."""
AT_REST = 6
"""Samples, 2 ms apart and one after the other, of a process without a running thread."""
PROCESSING = re.compile(r"^llamacpp:requests_(?:processing|deferred) (\S+)$", re.MULTILINE)


def request(chance: random.Random, *, stream: bool, words: int) -> bytes:
    """Return a request whose prompt no earlier one begins like: a cached prompt takes no time."""
    prompt = " ".join(chance.choice(WORDS) for _ in range(words))
    body = json.dumps(
        {
            "model": "default",
            "stream": stream,
            "max_tokens": MOST_TOKENS,
            "messages": [{"role": "user", "content": f"{chance.random()} {prompt}"}],
        }
    ).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def leave(client: socket.socket, how: str) -> None:
    """Hang up."""
    if how == "half":
        client.shutdown(socket.SHUT_WR)
        return
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def connections(port: int, uid: int) -> int:
    """Return how many connections a user's processes have to a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]]
    wanted = f":{port:04X}"
    return sum(
        row[2].endswith(wanted) and row[3] == ESTABLISHED and int(row[7]) == uid for row in rows
    )


class Engine:
    """Engine, by its threads and by its page of metrics."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._threads = Path(f"/proc/{pid}/task")

    def ended_ms(self, began_s: float) -> float | None:
        """Return the milliseconds since `began_s` at which its work ended; None: it does not end."""
        while time.monotonic() - began_s < PATIENCE_S:
            rests_s, samples = time.monotonic(), 0
            while samples < AT_REST and not self._runs():
                samples += 1
                time.sleep(0.002)  # real time: the engine has a clock of its own
            if samples == AT_REST and not self.works():
                return (rests_s - began_s) * 1000
            time.sleep(0.002)  # real time: as before
        return None

    def _runs(self) -> bool:
        """Tell whether a thread runs, or waits for a processor."""
        for thread in self._threads.iterdir():
            with suppress(OSError):  # a thread may end meanwhile
                # proc(5), stat: the state follows the name, which ends with the last parenthesis.
                if (thread / "stat").read_text("utf-8").rpartition(")")[2].split()[0] == "R":
                    return True
        return False

    def works(self) -> bool:
        """Tell whether the engine works on a request, or has one waiting."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = [float(value) for value in PROCESSING.findall(text)]
        if not found:
            raise SystemExit(
                f"the engine does not tell how many requests it works on: {text[:300]}"
            )
        return any(found)


def wait_until(condition: Callable[[], bool], began_s: float) -> float | None:
    """Return the milliseconds since `began_s` at which a condition holds; None: it does not."""
    while not condition():
        if time.monotonic() - began_s > PATIENCE_S:
            return None
        time.sleep(0.001)  # real time: the kernel and the engine have clocks of their own
    return (time.monotonic() - began_s) * 1000


def main(gateway: int, engine_port: int, pid: int, count: int, seed: int) -> None:
    """Hang up `count` times; print what came of it."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    engine = Engine(engine_port, pid)
    uid = pwd.getpwnam(GATEWAY_USER).pw_uid
    closed_ms: list[float] = []
    engine_ms: dict[str, list[float]] = {"stream": [], "whole": []}
    """Times of the engine by the kind of answer that was asked for."""
    stages: dict[str, int] = {}
    unended = 0
    for _ in range(count):
        stage = chance.choice(("prefill", "decode"))
        stream = stage == "decode" or chance.random() < 0.5
        client = socket.create_connection(("127.0.0.1", gateway), timeout=PATIENCE_S)
        client.sendall(request(chance, stream=stream, words=40 if stage == "prefill" else 5))
        if stage == "decode":
            while b"data: " not in client.recv(65536):
                pass
        elif wait_until(lambda: connections(engine_port, uid) > 0, time.monotonic()) is None:
            raise SystemExit("no request reaches the engine")
        time.sleep(chance.random() * 0.1)  # real time: a moment of the engine's work
        began_s = time.monotonic()
        leave(client, chance.choice(("close", "reset", "half")))
        closed = wait_until(lambda: connections(engine_port, uid) == 0, began_s)
        done = engine.ended_ms(began_s)
        with suppress(OSError):
            client.close()
        stages[stage] = stages.get(stage, 0) + 1
        if closed is None or done is None:
            unended += 1
        else:
            closed_ms.append(closed)
            engine_ms["stream" if stream else "whole"].append(done)
    left = connections(engine_port, uid) + engine.works()
    say(
        json.dumps(
            {
                "closed_ms": closed_ms,
                "engine_ms": engine_ms,
                "stages": stages,
                "unended": unended,
                "left": left,
            }
        )
    )


def held(gateway: int, count: int, seed: int) -> None:
    """Have clients wait in the hold queue, then leave."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    clients = []
    for number in range(count):
        client = socket.create_connection(("127.0.0.1", gateway), timeout=PATIENCE_S)
        client.sendall(request(chance, stream=number % 2 == 0, words=5))
        clients.append(client)
    say("waiting")
    chance.shuffle(clients)
    for client in clients:
        time.sleep(chance.random() / count)  # real time: they leave one by one
        leave(client, chance.choice(("close", "reset", "half")))
    say("left")
    # Half-closed connections are the gateway's to end.
    for client in clients:
        with suppress(OSError):
            client.close()


if __name__ == "__main__":
    if sys.argv[1] == "--held":
        held(*map(int, sys.argv[2:]))
    else:
        main(*map(int, sys.argv[1:]))
