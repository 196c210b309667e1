"""Cost of many profiles that all exclude one another: ``python -m tests.bench.profiles [--profiles N]`` (root).

list      the whole command `appliance list`, one profile serving
status    GET /api/v1/status, from the connection to its last byte, of a web process that runs; each after
          `FRESH_S`, so that supervisor and health agent are asked anew
apply     the whole command, for profiles that are all new: `apply_s`; straight after it, and for one more
          profile while a model serves, when systemd has all units in memory
command   `appliance status`: straight after an apply, and later
switch    the first, for which systemd loads all units, and between two of them
idle      CPU time of the supervisor's control group, one model serving, with few profiles and with all

Figures are medians of several runs. Ratios are to a Python that does nothing, run in turns with the others.
"""

import argparse
import statistics
import time
from typing import Final

from appliance.web.live_box import FRESH_S
from tests.bench.footprint import idle
from tests.bench.machine import prepared, report, say, stopwatch
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import install

USUAL: Final = 200
FEW: Final = 5
RUNS: Final = 11
APPLY_RUNS: Final = 3
SETTLED_S: Final = 5.0
APPLY: Final = "appliance apply"
LIST: Final = "appliance list"
STATUS: Final = "sh -c 'appliance status; true'"
"""Status whatever it tells: nothing is committed at first."""
PYTHON: Final = "python3 -I -S -c pass"
RESOURCE: Final = "http://127.0.0.1:8011/api/v1/status"
SUPERVISOR: Final = "appliance-supervisor"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", type=int, default=USUAL)
    count: int = parser.parse_args().profiles
    with prepared(install) as image:
        with Box(image) as box:
            fleet = Fleet(box)
            _profiles(fleet, FEW)
            fleet.apply()
            fleet.switch("p000")
            time.sleep(SETTLED_S)  # real time: the first looks after a switch
            (few,) = idle(fleet, SUPERVISOR)
        with Box(image) as box:
            figures = _many(Fleet(box), count)
    report({**figures, f"idle_cpu_percent_{FEW}": few.cpu_percent})


def _many(fleet: Fleet, count: int) -> dict[str, float]:
    """Return the figures of a box with so many profiles."""
    _profiles(fleet, count)
    first = _applies(fleet)
    status_first, again = stopwatch(fleet, [STATUS, APPLY])
    (first_switch,) = stopwatch(fleet, ["appliance switch p000"])
    fleet.profile("more", 9000)
    one_more, status_after = stopwatch(fleet, [APPLY, STATUS])
    say(f"apply: {first:.0f} ms, again {again:.0f} ms, of one more {one_more:.0f} ms")
    time.sleep(SETTLED_S)  # real time: the first looks after a switch
    times = stopwatch(fleet, [LIST, STATUS, PYTHON] * RUNS)
    listed, status, python = (statistics.median(times[n::3]) for n in range(3))
    resource = _resource_ms(fleet)
    say(f"list {listed:.0f} ms, GET status {resource:.1f} ms, Python alone {python:.1f} ms")
    last = f"p{count - 1:03d}"
    switches = [f"appliance switch {last}", "appliance switch p000"] * (RUNS // 2)
    switch_ms = statistics.median(stopwatch(fleet, switches))
    (many,) = idle(fleet, SUPERVISOR)
    return {
        "profiles": count,
        "list_ms": listed,
        "status_ms": resource,
        "apply_s": first / 1000,
        "python_ms": python,
        "list_ratio": listed / python,
        "status_ratio": resource / python,
        "apply_ratio": first / python,
        "apply_again_s": again / 1000,
        "apply_one_more_s": one_more / 1000,
        "status_command_after_first_apply_ms": status_first,
        "status_command_after_apply_ms": status_after,
        "status_command_ms": status,
        "first_switch_ms": first_switch,
        "switch_ms": switch_ms,
        "idle_cpu_percent": many.cpu_percent,
        "supervisor_rss_mib": many.pss_mib,
    }


def _applies(fleet: Fleet) -> float:
    """Return the milliseconds of an apply that writes every unit; the profiles are removed in between."""
    times = []
    for number in range(APPLY_RUNS):
        if number:
            fleet.box.run(f"mv {PROFILES} {PROFILES}.away; mkdir {PROFILES}")
            fleet.apply()
            fleet.box.run(f"rmdir {PROFILES}; mv {PROFILES}.away {PROFILES}")
        times += stopwatch(fleet, [APPLY])
    return statistics.median(times)


def _resource_ms(fleet: Fleet) -> float:
    """Return the milliseconds of a GET; the first one, which starts the web process, is left out."""
    lines = [f"curl -sf -o /dev/null -w %{{time_total}} {RESOURCE}; echo; sleep {FRESH_S + 0.2}"]
    told = fleet.box.run("\n".join(lines * (RUNS + 1))).stdout.split()
    return statistics.median(float(seconds) for seconds in told[1:]) * 1000


def _profiles(fleet: Fleet, count: int) -> None:
    for number in range(count):
        fleet.profile(f"p{number:03d}", 9001 + number)


if __name__ == "__main__":
    main()
