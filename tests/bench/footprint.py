"""Cost of the idle appliance, and the time that it adds to a start.

idle      CPU time and PSS of the supervisor's control group over a minute, one model serving
status    the whole command `appliance status`, and as a multiple of a Python that does nothing
gate      `systemctl start` of the generated unit, with and without its ExecCondition
wrapper   the same, with and without the wrapper around the engine, both until the port accepts
"""

import statistics
import time

from tests.bench.machine import installed, report, say, stopwatch
from tests.system.fleet import Fleet

IDLE_S = 60.0
STATUS_RUNS = 21
PYTHON = "python3 -I -S -c pass"
ROUNDS = 4
STARTS = 5
UNIT = "appliance-backend-a.service"
DROP_IN = f"/etc/systemd/system/{UNIT}.d/bench.conf"
WITHOUT_GATE = "[Service]\nExecCondition=\n"
# The engine is Type=notify only through the wrapper: alone it is started as a plain process,
# and its port is awaited in the same way on both sides.
ALONE = "[Service]\nExecCondition=\nType=exec\nNotifyAccess=none\nExecStart=\nExecStart={engine}\n"


def main() -> None:
    """Print the figures."""
    with installed() as fleet:
        fleet.switch("a")
        time.sleep(2.0)
        cpu, pss_mib = idle(fleet)
        say(f"idle: {cpu:.3f} % of a core, {pss_mib:.1f} MiB")
        times = stopwatch(fleet, ["appliance status", PYTHON] * STATUS_RUNS)
        status_ms, python_ms = statistics.median(times[::2]), statistics.median(times[1::2])
        say(f"status: {status_ms:.1f} ms, Python alone {python_ms:.1f}")
        fleet.box.run("systemctl stop appliance-supervisor.socket appliance-supervisor")
        whole, no_gate, alone = starts(fleet)
    say(f"start: {whole:.1f} ms, without the gate {no_gate:.1f}, the engine alone {alone:.1f}")
    report(
        {
            "idle_cpu_percent": cpu,
            "supervisor_rss_mib": pss_mib,
            "status_ms": status_ms,
            "python_ms": python_ms,
            "status_ratio": status_ms / python_ms,
            "gate_ms": whole - no_gate,
            "wrapper_ms": no_gate - alone,
        }
    )


def idle(fleet: Fleet) -> tuple[float, float]:
    """CPU use in percent of a core and memory (PSS) in MiB, of every process of the unit."""
    before = cpu_s(fleet)
    began = time.monotonic()
    time.sleep(IDLE_S)
    used = cpu_s(fleet) - before
    percent = used / (time.monotonic() - began) * 100
    rollups = " ".join(f"/proc/{pid}/smaps_rollup" for pid in pids(fleet))
    lines = fleet.box.run(f"grep -h ^Pss: {rollups}").stdout.splitlines()
    return percent, sum(int(line.split()[1]) for line in lines) / 1024


def pids(fleet: Fleet) -> list[int]:
    """The processes in the supervisor's control group."""
    group = fleet.box.run(
        "systemctl show -P ControlGroup appliance-supervisor.service"
    ).stdout.strip()
    return [int(p) for p in fleet.box.run(f"cat /sys/fs/cgroup{group}/cgroup.procs").stdout.split()]


def cpu_s(fleet: Fleet) -> float:
    """CPU time of those processes so far, by the scheduler's own nanoseconds."""
    files = " ".join(f"/proc/{pid}/task/*/schedstat" for pid in pids(fleet))
    lines = fleet.box.run(f"cat {files}").stdout.splitlines()
    return sum(int(line.split()[0]) for line in lines) / 1e9


def starts(fleet: Fleet) -> tuple[float, float, float]:
    """Medians in ms of a start: whole, without the gate, the engine alone; in turns."""
    variants = {"whole": "", "no gate": WITHOUT_GATE, "alone": ALONE.format(engine=engine(fleet))}
    times: dict[str, list[float]] = {name: [] for name in variants}
    fleet.box.write("/usr/local/lib/test-engine/start.sh", START, mode=0o755)
    for _ in range(ROUNDS):
        for name, text in variants.items():
            fleet.box.write(DROP_IN, text)
            fleet.box.run(f"systemctl stop {UNIT}; systemctl daemon-reload")
            for _ in range(STARTS):
                fleet.box.run("systemctl", "reset-failed", UNIT, check=False)
                times[name] += stopwatch(fleet, ["/usr/local/lib/test-engine/start.sh"])
                fleet.box.run("systemctl", "stop", UNIT)
    whole, no_gate, alone = (statistics.median(values) for values in times.values())
    return whole, no_gate, alone


START = f"""#!/bin/sh
# Start the unit and wait until its port accepts: 9001 is 2329 in the kernel's table.
systemctl start {UNIT} || exit 1
until grep -qs ': 0100007F:2329 [0-9A-F:]* 0A' /proc/net/tcp; do :; done
"""


def engine(fleet: Fleet) -> str:
    """The engine's own command line, from the generated unit."""
    text = (fleet.box.root / "etc/systemd/system" / UNIT).read_text(encoding="utf-8")
    (start,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    return start.partition(" -- ")[2]


if __name__ == "__main__":
    main()
