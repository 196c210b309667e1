"""Time of ``/v1/models`` in the middle of a switch: ``python -m tests.bench.models`` (root).

A booted box with two hundred profiles. A client waits for an answer of the model that serves, whose engine is then
frozen (SIGSTOP), and a switch to another model begins: it drains in vain, and the engine has to be killed. From before
the switch until after it the list is read every few milliseconds, on a kept connection and on a new one
(`model_list_reader`).

``p99_ms`` is that of the kept connection, ``new_p99_ms`` that of new ones, the connecting included. ``values`` are those
of the new model's status, in their order.
"""

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.machine import percentile, prepared, say
from tests.system.fleet import Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import install

PROFILES = 200
GATEWAY = 8010
READER = "/usr/local/lib/model_list_reader.py"
SECONDS = 12
MOST_MS = 5.0
_CHATS = f"http://127.0.0.1:{GATEWAY}/v1/chat/completions"
_QUESTION = '{"model":"default","messages":[]}'
_TIMEOUT_S = 300


def main() -> None:
    """Print the figures; fail when the list is late, or the switch was not seen in it."""
    with prepared(install) as image, Box(image) as box:
        fleet = Fleet(box)
        for number in range(PROFILES):
            # An answer takes longer than the drain: the client is cut.
            fleet.profile(
                f"p{number:03}",
                9000 + number % 2,
                *("--think", "50"),
                top='gpus = []\nwarm_up = "none"',
                tables='[deadlines]\nstop = "3s"\ndrain = "2s"',
            )
        fleet.apply()
        fleet.switch("p000")
        say("the model that serves is frozen, and another one is switched to")
        box.write(READER, Path(__file__).with_name("model_list_reader.py").read_text())
        box.run("systemd-run", "-q", "curl", "-s", "-m", "60", "-d", _QUESTION, _CHATS)
        box.wait_for("appliance status --json | grep -q '\"in_flight\": 1'")
        box.run(f"kill -STOP {fleet.main_pid('p000')}")
        box.run("systemd-run", "-q", "sh", "-c", "sleep 1; appliance switch p001")
        argv = ("/usr/bin/python3", READER, str(GATEWAY), "p001", str(SECONDS))
        done = box.run(*argv, timeout_s=_TIMEOUT_S)
    found: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    kept, new = found["kept_ms"], found["new_ms"]
    figures = {
        "profiles": PROFILES,
        "entries": found["entries"],
        "requests": len(kept) + len(new),
        "p50_ms": round(statistics.median(kept), 2),
        "p99_ms": round(percentile(kept, 0.99), 2),
        "slowest_ms": round(max(kept), 2),
        "new_p50_ms": round(statistics.median(new), 2),
        "new_p99_ms": round(percentile(new, 0.99), 2),
        "values": found["values"],
    }
    sys.stdout.write(json.dumps(figures) + "\n")
    if figures["p99_ms"] > MOST_MS or figures["values"] != ["unloaded", "loading", "loaded"]:
        sys.exit("the list came late, or did not tell the switch")


if __name__ == "__main__":
    main()
