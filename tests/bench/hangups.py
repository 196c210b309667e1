"""Clients that hang up, before a real engine on a booted box: ``python -m tests.bench.hangups`` (root).

The embedded llama.cpp serves SmolLM2 on the CPU with one slot. Clients leave one after the other, at random moments of a
prompt and of an answer, streaming or not, by closing, by resetting or by closing their sending half (`hangup_clients`).
A fifth of them leaves while the model is restarted, so in the hold queue.

``slowest_ms`` and ``p99_ms`` are the gateway's part: from the client's leaving until its connection to the engine is
closed. ``stream_slowest_ms`` and ``whole_slowest_ms`` are the engine's, by the kind of answer: until it works on nothing.
llama.cpp looks for a closed connection before each piece of a stream, and for an answer in one piece once in a second, if
no result of another request has come meanwhile. ``held_reached_engine`` are the tokens
that held requests cost the engine although their clients had left: there must be none.
"""

import argparse
import json
import statistics
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.machine import percentile, prepared, say
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import CHECKOUT, install

NAME = "smol"
GATEWAY = 8010
PROGRAM = "/usr/local/lib/hangup_clients.py"
HELD_AT_ONCE = 50
HELD_SHARE = 0.2
SLOW_START = f"/etc/systemd/system/appliance-backend-{NAME}.service.d/slow.conf"
"""Drop-in by which the model starts after all held clients have left: a second, or a few on a busy machine."""
SLOW_START_S = 10
_LOOKS = 15
"""Looks at the gateway's count, 0.2 s apart: the status may show one that is 2 s old."""
_STEADY_S = 3
"""Time without a token more, after which the engine is done."""
_TIMEOUT_S = 5400
"""Time for all that leave: 800 took more than 25 minutes on two cores of load 8 to 17."""


def main() -> None:
    """Print the figures; fail when a request was not ended, or a place is still taken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hangups", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    text = (CHECKOUT / f"profiles/{NAME}.toml").read_text()
    engine: int = tomllib.loads(text)["port"]
    rounds = round(asked.hangups * HELD_SHARE / HELD_AT_ONCE)
    at_work = asked.hangups - rounds * HELD_AT_ONCE
    with prepared(install) as image, Box(image, disk="/var/lib/appliance") as box:
        fleet = Fleet(box)
        box.write(f"{PROFILES}/{NAME}.toml", text)
        box.write(PROGRAM, Path(__file__).with_name("hangup_clients.py").read_text())
        fleet.apply()
        fleet.switch(NAME)
        # Its probes go to the engine on connections of the gateway, too; a status would start it.
        box.run("systemctl mask --runtime --now appliance-health.socket appliance-health.service")
        box.write(SLOW_START, f"[Service]\nExecStartPre=/bin/sleep {SLOW_START_S}\n")
        box.run("systemctl daemon-reload")
        # A restart without clients takes tokens, too, for the warm-up: those are not of clients that left.
        usual = held_round(fleet, engine, asked.seed, clients=0)
        of_rounds = [held_round(fleet, engine, asked.seed + n) for n in range(rounds)]
        say(f"tokens after a restart: {usual} without clients, {of_rounds} with clients that left")
        reached = sum(of_rounds) - usual * rounds
        box.run(f"rm {SLOW_START}; systemctl daemon-reload")
        say(f"held: {rounds * HELD_AT_ONCE} left, {reached} tokens of theirs at the engine")
        done = box.run(
            *("/usr/bin/python3", PROGRAM, str(GATEWAY), str(engine), str(fleet.main_pid(NAME))),
            *(str(at_work), str(asked.seed)),
            timeout_s=_TIMEOUT_S,
        )
        found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
        traffic = gateway_row(box)
    closed, ended = found["closed_ms"], found["engine_ms"]
    figures = {
        "hangups": asked.hangups,
        "ended": asked.hangups - found["unended"],
        "slowest_ms": round(max(closed), 2),
        "p99_ms": round(percentile(closed, 0.99), 2),
        "median_ms": round(statistics.median(closed), 2),
        **{f"{kind}_median_ms": round(statistics.median(ms), 2) for kind, ms in ended.items()},
        **{f"{kind}_slowest_ms": round(max(ms), 2) for kind, ms in ended.items()},
        "held": rounds * HELD_AT_ONCE,
        "held_reached_engine": reached,
        **found["stages"],
        "leaked_slots": found["left"] + traffic["in_flight"] + traffic["queued"],
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    if figures["leaked_slots"] or reached or figures["ended"] != asked.hangups:
        sys.exit("a request was not ended, or a place is still taken")


def held_round(fleet: Fleet, engine: int, seed: int, *, clients: int = HELD_AT_ONCE) -> int:
    """Have clients leave while the model restarts; return the tokens that the new engine works on."""
    box = fleet.box
    began_s = time.monotonic()
    # The count of starts is reset: a start that the limit refuses is repaired, with a warm-up.
    box.run(f"systemctl reset-failed appliance-backend-{NAME}")
    box.run(f"systemctl restart --no-block appliance-backend-{NAME}")
    box.wait_for(f"! systemctl is-active -q appliance-backend-{NAME}")
    argv = ("/usr/bin/python3", PROGRAM, "--held", str(GATEWAY), str(clients), str(seed))
    box.run(*argv, timeout_s=_TIMEOUT_S)
    waiting = held_for_nobody(box)
    fleet.wait_serving(NAME, timeout_s=60)
    if time.monotonic() - began_s < SLOW_START_S:
        sys.exit(f"the model has started without the wait of {SLOW_START}: nobody was held")
    return waiting + settled_tokens(box, engine)


def held_for_nobody(box: Box) -> int:
    """Return how many requests the gateway still holds some seconds after the last client has left."""
    queued = gateway_row(box)["queued"]
    for _ in range(_LOOKS):
        if queued:
            box.run("sleep 0.2")
            queued = gateway_row(box)["queued"]
    return queued


def settled_tokens(box: Box, engine: int) -> int:
    """Return the tokens that the engine has worked on since its start, once it works on no more."""
    tokens, steady_s = prompt_tokens(box, engine), 0
    while steady_s < _STEADY_S:
        box.run("sleep 1")
        before, tokens = tokens, prompt_tokens(box, engine)
        steady_s = steady_s + 1 if tokens == before else 0
    return tokens


def prompt_tokens(box: Box, engine: int) -> int:
    """Return how many tokens of prompts the engine has worked on since its start."""
    page = box.run(f"curl -sf http://127.0.0.1:{engine}/metrics").stdout
    return int(
        float(
            next(
                line.split()[1]
                for line in page.splitlines()
                if line.startswith("llamacpp:prompt_tokens_total")
            )
        )
    )


def gateway_row(box: Box) -> Mapping[str, int]:
    """Return the profile's requests in flight and in the hold queue, by the gateway's own count."""
    status = json.loads(box.run("appliance status --json", check=False).stdout)
    rows = [row for row in status["gateway"]["profiles"] if row["name"] == NAME]
    return {key: sum(row[key] for row in rows) for key in ("in_flight", "queued")}


if __name__ == "__main__":
    main()
