"""Cost of a reload of the gateway for clients that connect meanwhile, and for readers.

The gateway is replaced again and again by a new process that takes over its listeners, while some
clients read streams of two seconds and another one asks on a new connection every few
milliseconds. The old process stays until its last stream has ended.

wait_ms     a newcomer's whole request, from connecting to the answer's end
usual_ms    the same while nothing is replaced
takeover_ms from the order to the moment when systemd's main process is the new one
"""

import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.machine import installed, percentile, report, say
from tests.system.fleet import Fleet

RELOADS = 20
STREAMS = 8
APART_S = 0.7
"""Less than a stream lasts: several old processes are there at once."""
USUAL_S = 5.0
_PORT = 8010
_GATEWAY = "appliance-gateway.service"
_PROGRAM = "/usr/local/lib/newcomers.py"
_CHUNKS = ("--chunks", "100", "--pause", "0.02")


def main() -> None:
    """Print the figures."""
    with installed() as fleet:
        fleet.profile("slow", 9009, *_CHUNKS)
        fleet.apply()
        fleet.switch("slow")
        fleet.box.write(_PROGRAM, Path(__file__).with_name("newcomers.py").read_text())
        usual, _ = _asked(fleet, reloads=0)
        told, takeovers_ms = _asked(fleet, reloads=RELOADS)
    waits_ms = told["waits_ms"]
    say(f"usually {statistics.median(usual['waits_ms']):.1f} ms; {usual['whole']} streams")
    report(
        {
            "reloads": RELOADS,
            "newcomers": len(waits_ms),
            "refused": told["refused"],
            "failed": told["failed"],
            "streams": told["whole"],
            "streams_lost": told["lost"],
            "usual_ms_p50": statistics.median(usual["waits_ms"]),
            "usual_ms_max": max(usual["waits_ms"]),
            "wait_ms_p50": statistics.median(waits_ms),
            "wait_ms_p99": percentile(waits_ms, 0.99),
            "wait_ms_max": max(waits_ms),
            "takeover_ms_max": max(takeovers_ms),
        }
    )


def _asked(fleet: Fleet, *, reloads: int) -> tuple[Mapping[str, Any], list[float]]:
    """Return clients' answers during so many reloads, and the time of each; 0: for a while."""
    takeovers_ms = []
    with fleet.box.stream("/usr/bin/python3", "-S", _PROGRAM, str(_PORT), str(STREAMS)) as stream:
        lines = stream.lines()
        assert next(lines) == "asking"
        for number in range(reloads):
            takeovers_ms.append(_reload(fleet))
            say(f"{number + 1}: {takeovers_ms[-1]:.0f} ms")
            time.sleep(APART_S)
        time.sleep(0 if reloads else USUAL_S)
        fleet.box.run(f"pkill -TERM -f {_PROGRAM}")
        told: Mapping[str, Any] = json.loads(next(lines))
    return told, takeovers_ms


def _reload(fleet: Fleet) -> float:
    """Have a new process take over; milliseconds, those of entering the box included."""
    before = _main_pid(fleet)
    began_s = time.monotonic()
    fleet.box.run(f"systemctl reload {_GATEWAY}")
    fleet.box.wait_for(f"test $(systemctl show -P MainPID {_GATEWAY}) -ne {before}")
    return (time.monotonic() - began_s) * 1000


def _main_pid(fleet: Fleet) -> int:
    return int(fleet.box.run(f"systemctl show -P MainPID {_GATEWAY}").stdout)


if __name__ == "__main__":
    main()
