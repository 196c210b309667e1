"""Time of a switch, and the part that the appliance adds to systemd's own.

Both sides switch between the same two generated units, with the same gate, wrapper and engine,
in turns of ten: `appliance switch` with the supervisor, `systemctl start` without it.
"""

import statistics

from tests.bench.machine import installed, percentile, report, say, stopwatch

ROUNDS = 4
SWITCHES = 10
PAUSE_S = 0.1


def main() -> None:
    """Print the figures."""
    ours: list[float] = []
    bare: list[float] = []
    with installed() as fleet:
        fleet.switch("a")
        fleet.switch("b")
        for _ in range(ROUNDS):
            turns = [f"appliance switch {name}" for name in "ab" * (SWITCHES // 2)]
            ours += stopwatch(fleet, turns, pause_s=PAUSE_S)
            fleet.box.run("systemctl stop appliance-supervisor.socket appliance-supervisor")
            turns = [
                f"systemctl start appliance-backend-{name}.service"
                for name in "ab" * (SWITCHES // 2)
            ]
            # A start by hand counts against the limit that the supervisor clears before each.
            fleet.box.run("systemctl daemon-reload")
            bare += stopwatch(fleet, turns, pause_s=PAUSE_S)
            fleet.box.run("systemctl start appliance-supervisor.socket appliance-supervisor")
            say(f"p50 so far: {statistics.median(ours):.1f} ms, bare {statistics.median(bare):.1f}")
    ours_p50, bare_p50 = statistics.median(ours), statistics.median(bare)
    report(
        {
            "switches": len(ours),
            "switch_ms_p50": ours_p50,
            "switch_ms_p99": percentile(ours, 0.99),
            "bare_ms_p50": bare_p50,
            "overhead_ms": ours_p50 - bare_p50,
            "overhead_ratio": (ours_p50 - bare_p50) / bare_p50,
        }
    )


if __name__ == "__main__":
    main()
