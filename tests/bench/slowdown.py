"""A real loss of speed on a booted box: the embedded model under a quota of CPU time.

usage: python -m tests.bench.slowdown [TRIAL_SPEED]

The health agent measures the embedded model, with all its times shorter by the trial speed:

learn     until the decode rate has a baseline
nothing   two other programs take the CPU for some probes: no event may follow
loss      a quota cuts the engine's CPU time; the agent is killed with -9 meanwhile; the regression is
          told with its size, which requests through the gateway measure too
recovery  the quota is lifted

The last line is JSON. Times in it are those of the agent's clock, in minutes: real ones times the trial
speed.
"""

import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.machine import prepared, say
from tests.system.fleet import PROFILES, Fleet
from tests.system.rig import Box
from tests.system.rig.appliance import CHECKOUT, install

NAME: Final = "smol"
UNIT: Final = f"appliance-backend-{NAME}.service"
HEALTH: Final = "appliance-health.service"
TRIAL_SPEED: Final = 30.0
QUOTA: Final = 0.75
"""Share of the CPU time that decoding takes without a quota."""
PATIENCE_S: Final = 1200.0
FIRST: Final = -15
"""Priority of the engine (nice(2)): what else runs on this machine disturbs it less."""
LEAST_LOSS: Final = 0.2
CPU_CONTROLLER: Final = Path("/sys/fs/cgroup/cpu")
"""Controller of cgroup v1, which a box does not get; with cgroup v2 systemd in the box has it."""
ASK: Final = (
    "curl -sfN -m 120 http://127.0.0.1:8010/v1/chat/completions -d"
    ' \'{"model": "smol", "messages": [{"role": "user", "content": "Count to fifty."}],'
    ' "max_tokens": 96, "temperature": 0, "seed": 1, "cache_prompt": false, "stream": true}\''
)
"""Streamed, as probes are."""
ASKED: Final = 7
"""Requests of which the median is the rate."""
BURN_S: Final = 6.0


def main() -> None:
    """Print the figures."""
    speed = float(sys.argv[1]) if sys.argv[1:] else TRIAL_SPEED
    with prepared(install) as image, Box(image) as box:
        fleet = Fleet(box)
        box.write(f"{PROFILES}/{NAME}.toml", profile())
        box.write("/etc/appliance/appliance.toml", f"[health]\ntrial_speed = {speed}\n")
        fleet.apply()
        box.run(f"systemctl restart {HEALTH}")
        fleet.switch(NAME)
        figures = trial(fleet, speed)
    sys.stdout.write(json.dumps(figures) + "\n")


def profile() -> str:
    """Return the demo's profile with one thread.

    Two threads fill a machine of two cores: gateway and agent then take a part of their time, which a quota
    leaves them for nothing, so that the loss is smaller for probes than for the engine alone.
    """
    text = (CHECKOUT / f"profiles/{NAME}.toml").read_text()
    assert "threads = 2" in text
    return text.replace("threads = 2", "threads = 1")


def trial(fleet: Fleet, speed: float) -> Mapping[str, object]:
    """Make the model slow and quick again; return what was told of it."""
    (inside,) = main_pids(fleet, UNIT)
    prefer(outside(fleet.box, int(inside)))
    learned_s = waited(lambda: baseline(fleet) is not None, "a baseline")
    say(f"baseline {baseline(fleet)} tok/s after {learned_s:.0f} s")
    usual = rate(fleet)
    burn(fleet)
    time.sleep(600 / speed)
    contaminated = kinds(fleet)
    say(f"{usual:.1f} tok/s; after two other programs on the CPU: {contaminated}")
    began = time.monotonic()
    with quota(fleet):
        slow = rate(fleet)
        say(f"with a quota {slow:.1f} tok/s, {slow / usual - 1:+.0%}")
        kill(fleet)
        waited(lambda: "regression" in kinds(fleet), "a regression")
        told_s = time.monotonic() - began
        told = next(
            event
            for event in events(fleet)
            if (event["kind"], event["series"]) == ("regression", "decode")
        )
        say(f"after {told_s:.0f} s: {told['text']}")
        kill(fleet)
        time.sleep(600 / speed)
    began = time.monotonic()
    waited(lambda: "recovered" in kinds(fleet), "a recovery")
    recovered_s = time.monotonic() - began
    say(f"recovered after {recovered_s:.0f} s")
    return {
        "trial_speed": speed,
        "usual_tok_s": round(usual, 2),
        "slow_tok_s": round(slow, 2),
        "true_change": round(slow / usual - 1, 3),
        "told_change": round(told["change"], 3),
        "told_after_min": round(told_s * speed / 60, 1),
        "recovered_after_min": round(recovered_s * speed / 60, 1),
        "events_before": contaminated,
        "events": kinds(fleet),
        "cause": told["cause"],
        "met": slow / usual - 1 <= -LEAST_LOSS
        and abs(told["change"] - (slow / usual - 1)) <= 0.05
        and contaminated == []
        and kinds(fleet) == ["regression", "recovered"],
    }


def waited(condition: Callable[[], bool], what: str) -> float:
    """Wait until something holds; seconds that it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > PATIENCE_S:
            raise SystemExit(f"no {what} within {PATIENCE_S:.0f} s")
        time.sleep(1.0)
    return time.monotonic() - began


def baseline(fleet: Fleet) -> float | None:
    """The accepted decode rate; None: none is learned, or the agent does not answer."""
    done = fleet.box.run("appliance", "baseline", "show", NAME, "--json", check=False)
    if done.returncode:
        return None
    series: Sequence[Mapping[str, Any]] = json.loads(done.stdout)["series"]
    return next((s["baseline"] for s in series if s["series"] == "decode"), None)


def events(fleet: Fleet) -> Sequence[Mapping[str, Any]]:
    """Return the events that the agent has told, apart from baselines that it found."""
    done = fleet.box.run("appliance", "events", NAME, "-n", "100", "--json", check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [
        event for event in lines if event.get("event") == "measured" and event["kind"] != "accepted"
    ]


def kinds(fleet: Fleet) -> list[str]:
    """Return the kinds of the events about decoding, in their order."""
    return [event["kind"] for event in events(fleet) if event["series"] in {"decode", None}]


def rate(fleet: Fleet) -> float:
    """Tokens a second of real requests, by the engine's own timings."""
    return statistics.median(
        _told_rate(fleet.box.run(ASK, timeout_s=130).stdout) for _ in range(ASKED)
    )


def _told_rate(stream: str) -> float:
    """The rate that the last event of a stream tells."""
    events = [
        line.removeprefix("data: ") for line in stream.splitlines() if "predicted_per" in line
    ]
    return float(json.loads(events[-1])["timings"]["predicted_per_second"])


def burn(fleet: Fleet) -> None:
    """Have two other programs take the CPU for some probes."""
    loop = f"timeout {BURN_S} sh -c 'while :; do :; done' &"
    fleet.box.run(f"{loop} {loop} wait", check=False, timeout_s=60)


def kill(fleet: Fleet) -> None:
    """Kill the agent with -9, and wait until it is back."""
    (pid,) = main_pids(fleet, HEALTH)
    fleet.box.run(f"kill -9 {pid}")
    fleet.box.wait_for(
        f"test $(systemctl show -P MainPID {HEALTH}) -ne {pid} && systemctl is-active -q {HEALTH}",
        timeout_s=60,
    )


def main_pids(fleet: Fleet, *units: str) -> list[str]:
    """The main process of each unit."""
    return fleet.box.run("systemctl", "show", "-P", "MainPID", *units).stdout.split()


@contextlib.contextmanager
def quota(fleet: Fleet) -> Iterator[None]:
    """Limit the engine's CPU time to `QUOTA` of what it takes while it decodes."""
    (inside,) = main_pids(fleet, UNIT)
    pid = outside(fleet.box, int(inside))
    cores = busy_cores(fleet, pid) * QUOTA
    say(f"quota of {cores:.2f} cores")
    if not CPU_CONTROLLER.exists():
        with _systemd_quota(fleet, cores):
            yield
        return
    group = CPU_CONTROLLER / f"appliance-slowdown-{fleet.box.name}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("10000")
        (group / "cpu.cfs_quota_us").write_text(str(max(1000, round(cores * 10_000))))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (CPU_CONTROLLER / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@contextlib.contextmanager
def _systemd_quota(fleet: Fleet, cores: float) -> Iterator[None]:
    """Limit it by systemd in the box, where that has the controller."""
    limit = f"systemctl set-property --runtime {UNIT} CPUQuota="
    fleet.box.run(f"{limit}{round(cores * 100)}%")
    try:
        yield
    finally:
        fleet.box.run(limit)


def busy_cores(fleet: Fleet, pid: int) -> float:
    """Cores that the engine uses while it decodes."""
    before, began = cpu_s(pid), time.monotonic()
    fleet.box.run(ASK, timeout_s=130)
    return (cpu_s(pid) - before) / (time.monotonic() - began)


def prefer(pid: int) -> None:
    """Let all threads of a process run before other programs."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.setpriority(os.PRIO_PROCESS, int(thread.name), FIRST)


def cpu_s(pid: int) -> float:
    """CPU time of all threads of a process."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def outside(box: Box, inside: int) -> int:
    """The process id on this machine of a process in a box."""
    space = Path(f"/proc/{box.leader}/ns/pid").readlink()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and (entry / "ns/pid").readlink() == space:
                status = (entry / "status").read_text()
                line = next(text for text in status.splitlines() if text.startswith("NSpid:"))
                if int(line.split()[-1]) == inside:
                    return int(entry.name)
    raise SystemExit(f"no process {inside} in the box")


if __name__ == "__main__":
    main()
