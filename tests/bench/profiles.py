"""What five hundred profiles cost that all exclude one another.

apply    the first one, which writes everything, and one that adds a profile
status   the whole command `appliance status`
switch   between two of them, whose engines are ready at once
idle     CPU time of the supervisor's control group, one model serving
"""

import statistics
import time

from tests.bench.footprint import idle
from tests.bench.machine import prepared, report, say, stopwatch
from tests.system.fleet import Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import install

PROFILES = 500
RUNS = 11
SETTLED_S = 10.0
"""systemd loads all units once after an apply, which keeps it busy for a few seconds."""


def main() -> None:
    """Print the figures."""
    with prepared(install) as image, Box(image) as box:
        fleet = Fleet(box)
        for number in range(PROFILES):
            fleet.profile(f"p{number:03d}", 9001 + number)
        (apply_ms,) = stopwatch(fleet, ["appliance apply"])
        time.sleep(SETTLED_S)
        fleet.profile("more", 9000)
        (apply_one_ms,) = stopwatch(fleet, ["appliance apply"])
        say(f"apply: {apply_ms:.0f} ms, of one more {apply_one_ms:.0f} ms")
        fleet.switch("p000")
        status_ms = statistics.median(stopwatch(fleet, ["appliance status"] * RUNS))
        switches = ["appliance switch p499", "appliance switch p000"] * (RUNS // 2)
        switch_ms = statistics.median(stopwatch(fleet, switches))
        cpu, pss_mib = idle(fleet)
    report(
        {
            "profiles": PROFILES,
            "apply_s": apply_ms / 1000,
            "apply_one_more_s": apply_one_ms / 1000,
            "status_ms": status_ms,
            "switch_ms": switch_ms,
            "idle_cpu_percent": cpu,
            "supervisor_rss_mib": pss_mib,
        }
    )


if __name__ == "__main__":
    main()
