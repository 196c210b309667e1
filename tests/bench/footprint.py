"""Cost of the idle appliance, and the time that it adds to a start.

idle      CPU time and PSS of the control groups of supervisor and health agent over a minute, one
          model serving, after the probes and canaries that follow its start
status    the whole command `appliance status`, and as a multiple of a Python that does nothing
gate      `systemctl start` of the generated unit, with and without its ExecCondition
wrapper   the same, with and without the wrapper around the engine, both until the port accepts
web       PSS of the web process after some requests, and whether it is gone once nobody looks
"""

import statistics
import time
from dataclasses import dataclass

from tests.bench.machine import installed, report, say, stopwatch
from tests.system.fleet import Fleet

SETTLED_S = 20.0
"""Time for the first probes, which the test engine answers in no time: those after it wait for minutes."""
IDLE_S = 60.0
WEB_IDLE_S = 10.0
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
        fleet.box.write("/etc/appliance/appliance.toml", f'[web]\nidle = "{WEB_IDLE_S:.0f}s"\n')
        fleet.switch("a")
        time.sleep(SETTLED_S)
        supervisor, health = idle(fleet, "appliance-supervisor", "appliance-health")
        say(f"idle: supervisor {supervisor}, health agent {health}")
        times = stopwatch(fleet, ["appliance status", PYTHON] * STATUS_RUNS)
        status_ms, python_ms = statistics.median(times[::2]), statistics.median(times[1::2])
        say(f"status: {status_ms:.1f} ms, Python alone {python_ms:.1f}")
        web_mib, gone_s = web(fleet)
        say(f"web process: {web_mib:.1f} MiB, gone {gone_s:.0f} s after the last request")
        fleet.box.run("systemctl stop appliance-supervisor.socket appliance-supervisor")
        whole, no_gate, alone = starts(fleet)
    say(f"start: {whole:.1f} ms, without the gate {no_gate:.1f}, the engine alone {alone:.1f}")
    report(
        {
            "idle_cpu_percent": supervisor.cpu_percent,
            "supervisor_rss_mib": supervisor.pss_mib,
            "health_idle_cpu_percent": health.cpu_percent,
            "health_rss_mib": health.pss_mib,
            "status_ms": status_ms,
            "python_ms": python_ms,
            "status_ratio": status_ms / python_ms,
            "gate_ms": whole - no_gate,
            "wrapper_ms": no_gate - alone,
            "web_rss_mib": web_mib,
            "web_gone_after_s": gone_s,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Use of one unit's control group."""

    cpu_percent: float
    """Of one core."""
    pss_mib: float
    """Memory of all its processes, shared pages in parts (PSS)."""

    def __str__(self) -> str:
        return f"{self.cpu_percent:.3f} % of a core, {self.pss_mib:.1f} MiB"


def idle(fleet: Fleet, *units: str) -> list[Use]:
    """CPU use and memory of every process of each unit, over the same minute."""
    before = [cpu_s(fleet, unit) for unit in units]
    began = time.monotonic()
    time.sleep(IDLE_S)
    spent_s = time.monotonic() - began
    return [
        Use(
            cpu_percent=(cpu_s(fleet, unit) - used_s) / spent_s * 100,
            pss_mib=pss_mib(fleet, unit),
        )
        for unit, used_s in zip(units, before, strict=True)
    ]


def web(fleet: Fleet) -> tuple[float, float]:
    """Memory of the web process after some requests, and the time after which it has left."""
    pages = ("/", "/metrics", "/api/v1/status", "/api/v1/openapi.json", "/api/v1/events")
    for page in pages * 4:
        fleet.box.run("curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:8011{page}")
    memory_mib = pss_mib(fleet, "appliance-web")
    began = time.monotonic()
    fleet.box.wait_for(
        "systemctl show -P ActiveState appliance-web | grep -qx inactive",
        timeout_s=WEB_IDLE_S + 30,
    )
    return memory_mib, time.monotonic() - began


def pss_mib(fleet: Fleet, unit: str) -> float:
    """Memory (PSS) of the processes in a unit's control group, in MiB."""
    rollups = " ".join(f"/proc/{pid}/smaps_rollup" for pid in pids(fleet, unit))
    lines = fleet.box.run(f"grep -h ^Pss: {rollups}").stdout.splitlines()
    return sum(int(line.split()[1]) for line in lines) / 1024


def pids(fleet: Fleet, unit: str) -> list[int]:
    """The processes in a unit's control group."""
    group = fleet.box.run(f"systemctl show -P ControlGroup {unit}.service").stdout.strip()
    return [int(p) for p in fleet.box.run(f"cat /sys/fs/cgroup{group}/cgroup.procs").stdout.split()]


def cpu_s(fleet: Fleet, unit: str) -> float:
    """CPU time of those processes so far, by the scheduler's own nanoseconds."""
    files = " ".join(f"/proc/{pid}/task/*/schedstat" for pid in pids(fleet, unit))
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
