"""Cost of five hundred profiles that all exclude one another.

apply    the first one, which writes everything, one straight after it, and one that adds a profile
         while a model serves, when systemd has all units in memory
status   the whole command `appliance status`: straight after an apply, and later
switch   the first, for which systemd loads all units, and between two of them
idle     CPU time of the supervisor's control group, one model serving, with few profiles and with all
"""

import statistics
import time

from tests.bench.footprint import idle
from tests.bench.machine import prepared, report, say, stopwatch
from tests.system.fleet import Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import install

PROFILES = 500
FEW = 5
RUNS = 11
SETTLED_S = 5.0
APPLY = "appliance apply"
STATUS = "appliance status"
SUPERVISOR = "appliance-supervisor"
STATUS_OF_NONE = f"sh -c '{STATUS}; true'"
"""Exit status of a status that tells that nothing is committed."""


def main() -> None:
    """Print the figures."""
    with prepared(install) as image:
        with Box(image) as box:
            fleet = Fleet(box)
            _profiles(fleet, FEW)
            fleet.apply()
            fleet.switch("p000")
            time.sleep(SETTLED_S)
            (few,) = idle(fleet, SUPERVISOR)
        with Box(image) as box:
            fleet = Fleet(box)
            _profiles(fleet, PROFILES)
            first, status_first, again = stopwatch(fleet, [APPLY, STATUS_OF_NONE, APPLY])
            (first_switch,) = stopwatch(fleet, ["appliance switch p000"])
            fleet.profile("more", 9000)
            one_more, status_after = stopwatch(fleet, [APPLY, STATUS])
            say(f"apply: {first:.0f} ms, again {again:.0f} ms, of one more {one_more:.0f} ms")
            time.sleep(SETTLED_S)
            status_ms = statistics.median(stopwatch(fleet, [STATUS] * RUNS))
            switches = ["appliance switch p499", "appliance switch p000"] * (RUNS // 2)
            switch_ms = statistics.median(stopwatch(fleet, switches))
            (many,) = idle(fleet, SUPERVISOR)
    report(
        {
            "profiles": PROFILES,
            "apply_s": first / 1000,
            "apply_again_s": again / 1000,
            "apply_one_more_s": one_more / 1000,
            "status_after_first_apply_ms": status_first,
            "status_after_apply_ms": status_after,
            "status_ms": status_ms,
            "first_switch_ms": first_switch,
            "switch_ms": switch_ms,
            f"idle_cpu_percent_{FEW}": few.cpu_percent,
            "idle_cpu_percent": many.cpu_percent,
            "supervisor_rss_mib": many.pss_mib,
        }
    )


def _profiles(fleet: Fleet, count: int) -> None:
    for number in range(count):
        fleet.profile(f"p{number:03d}", 9001 + number)


if __name__ == "__main__":
    main()
