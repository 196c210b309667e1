"""Fifty dashboards on the stream of the status API, and what they cost a switch.

Clients in a booted box follow `/api/v1/stream` for a minute. Meanwhile the box switches between two models, in
turns with switches that nobody watches. Every client has to see every phase of each switch that it was there
for, in order.

The last line is JSON: ``clients``, ``watched_switches``, ``missed`` (events of a switch that a client lacks),
``out_of_order`` (clients to whom they came in another order), ``web_rss_mib`` (PSS with all clients),
``watched_ms_p50`` and ``alone_ms_p50`` (whole command), ``switch_ratio`` (the former over the latter).
"""

import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Final

from tests.bench.footprint import pss_mib
from tests.bench.machine import installed, say, stopwatch
from tests.system.fleet import Fleet

CLIENTS: Final = 50
ROUNDS: Final = 4
SWITCHES: Final = 6
WATCHED_S: Final = 15.0
"""Time of the clients in each round: a minute in all."""
PAUSE_S: Final = 0.1
_PROGRAM: Final = "/usr/local/lib/test-engine/dashboards.py"
_SEEN: Final = "/var/tmp/dashboards.json"  # noqa: S108 - in the box
_CLIENTS: Final = """
import asyncio, json, sys

class Client(asyncio.Protocol):
    # What comes is read when all is over: the browsers of fifty people are not on the box.
    def __init__(self):
        self.text = []
        self.there = False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"GET /api/v1/stream HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")

    def data_received(self, data):
        self.text.append(data)
        if not self.there and b"event: snapshot" in data:
            self.there = True
            print("there", flush=True)

    def seen(self):
        for line in b"".join(self.text).split(b"\\n"):
            if line.startswith(b"data: {"):
                change = json.loads(line[6:]).get("change")
                if change and change["event"] in ("accepted", "phase", "result") and change.get("state") != "progress":
                    yield [change["event"], change.get("phase"), change.get("state")]

async def main(count, path):
    loop = asyncio.get_running_loop()
    clients = [(await loop.create_connection(Client, "127.0.0.1", 8011))[1] for _ in range(count)]
    await loop.run_in_executor(None, sys.stdin.read)
    for client in clients:
        client.transport.abort()
    with open(path, "w") as file:
        json.dump([list(client.seen()) for client in clients], file)

asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
"""
Event = tuple[str, str | None, str | None]


def main() -> None:
    """Print the figures."""
    watched: list[float] = []
    alone: list[float] = []
    missed = disordered = 0
    rss_mib = 0.0
    with installed() as fleet:
        fleet.box.write(_PROGRAM, _CLIENTS)
        fleet.switch("a")
        fleet.switch("b")
        turns = [f"appliance switch {name}" for name in "ab" * (SWITCHES // 2)]
        for _ in range(ROUNDS):
            alone += stopwatch(fleet, turns, pause_s=PAUSE_S)
            times, seen, now_mib = watched_switches(fleet, turns)
            rss_mib = max(rss_mib, now_mib)
            watched += times
            longest = max(seen, key=len)
            missed += sum(len(longest) - len(one) for one in seen)
            disordered += sum(one != [e for e in longest if e in one][: len(one)] for one in seen)
            missed += max(0, len(turns) - sum(event[0] == "result" for event in longest))
            say(f"{len(longest)} events, missed {missed}, {rss_mib:.1f} MiB")
    p50, alone_p50 = statistics.median(watched), statistics.median(alone)
    figures = {
        "clients": CLIENTS,
        "watched_switches": len(watched),
        "missed": missed,
        "out_of_order": disordered,
        "web_rss_mib": round(rss_mib, 1),
        "watched_ms_p50": round(p50, 1),
        "alone_ms_p50": round(alone_p50, 1),
        "switch_ratio": round(p50 / alone_p50, 3),
    }
    sys.stdout.write(json.dumps(figures) + "\n")


def watched_switches(
    fleet: Fleet, turns: Sequence[str]
) -> tuple[list[float], list[list[Event]], float]:
    """Return the times of switches that all clients follow, what each saw, and the memory of the process."""
    argv = ("/usr/bin/python3", _PROGRAM, str(CLIENTS), _SEEN)
    with fleet.box.stream(*argv) as clients:
        lines = clients.lines()
        for _ in range(CLIENTS):
            next(lines)
        began = time.monotonic()
        times = stopwatch(fleet, list(turns), pause_s=PAUSE_S)
        time.sleep(max(1.0, WATCHED_S - (time.monotonic() - began)))
        rss_mib = pss_mib(fleet, "appliance-web")
        assert clients.process.stdin is not None
        clients.process.stdin.close()
        clients.process.wait(20)
    seen = json.loads(fleet.box.run(f"cat {_SEEN}").stdout)
    return times, [[(e[0], e[1], e[2]) for e in one] for one in seen], rss_mib


if __name__ == "__main__":
    main()
