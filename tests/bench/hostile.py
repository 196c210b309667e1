"""Harm that a hostile client does to its neighbours: ``python -m tests.bench.hostile``.

The gateway runs in a process of its own at the settings' defaults, before an engine that takes
anything. One attack after the other runs in a process of another user, while a neighbour asks the
gateway: on a kept connection, on a new one, and with 200 KB on a new one. The gateway and its
neighbour run before the attacker, as far as the kernel is asked: what is measured is the
gateway's queue, not the machine's. The last attack is on the supervisor's control socket, in a
box, while root asks for the status.

stall_ms       by how much the neighbour's slowest answer was later than its usual one
refused        of the neighbour's requests, those that had another answer than 200
rss_mib        the gateway's memory at its highest
"""

import argparse
import http.client
import json
import os
import resource
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.attacks import ATTACKS, lan_address
from tests.bench.contestants import gateway, sink
from tests.bench.gateway import go_before_others
from tests.bench.machine import installed, report, say

NOBODY = 65534
FILES = 8192
ASK_EVERY_S = 0.2
USUAL_S = 4.0
_PATIENCE_S = 10.0
_PATH = "/v1/chat/completions"
_FLOOD = "/usr/local/lib/control_flood.py"
_SMALL = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "hello"}]})
_MEDIUM = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "x" * 200_000}]})


@dataclass
class Neighbour:
    """A client that asks every now and then."""

    port: int
    times_ms: dict[str, list[float]] = field(default_factory=dict)
    """Times by kind of request."""
    refused: list[str] = field(default_factory=list)
    """Refusals that the client was sent instead of an answer."""
    kept: http.client.HTTPConnection | None = None

    def ask(self, seconds: float) -> None:
        """Ask in turns, for so long."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._timed("kept", self._on_the_kept_one)
            self._timed("new", lambda: self._on_a_new_one(_SMALL))
            self._timed("medium", lambda: self._on_a_new_one(_MEDIUM))
            time.sleep(ASK_EVERY_S)

    def _timed(self, kind: str, ask: Callable[[], None]) -> None:
        began_s = time.monotonic()
        try:
            ask()
        except (OSError, http.client.HTTPException) as error:
            self.refused.append(f"{kind}: {error!r}")
        self.times_ms.setdefault(kind, []).append((time.monotonic() - began_s) * 1000)

    def _on_the_kept_one(self) -> None:
        if self.kept is not None:
            try:
                _asked(self.kept, _SMALL)
            except ConnectionError:
                # It was idle, and made room: what every client of HTTP does then.
                self.kept = None
        if self.kept is None:
            self.kept = self._connection()
            _asked(self.kept, _SMALL)

    def _on_a_new_one(self, body: str) -> None:
        connection = self._connection()
        try:
            _asked(connection, body)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)


def _asked(connection: http.client.HTTPConnection, body: str) -> None:
    connection.request("POST", _PATH, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != http.client.OK:
        raise http.client.HTTPException(f"{answer.status} {text[:200]!r}")


@dataclass
class Attacked:
    """Outcome of one attack."""

    stall_ms: float
    refused: int
    peak_mib: float


def attacked(name: str, neighbour: Neighbour, pid: int, seconds: float) -> Attacked:
    """Run an attack while the neighbour asks."""
    usual = {kind: statistics.median(times) for kind, times in neighbour.times_ms.items()}
    victim = Neighbour(neighbour.port)
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")
    attacker = _forked(name, neighbour.port)
    try:
        victim.ask(seconds)
    finally:
        os.kill(attacker, signal.SIGKILL)
        os.waitpid(attacker, 0)
    slowest = {kind: max(times) - usual[kind] for kind, times in victim.times_ms.items()}
    done = Attacked(max(0.0, *slowest.values()), len(victim.refused), peak_mib(pid))
    late = ", ".join(f"{kind} +{late_ms:.0f}" for kind, late_ms in slowest.items())
    say(f"{name}: {late} ms, {done.refused} refused, {done.peak_mib:.0f} MiB")
    for text in victim.refused[:3]:
        say(f"  {text}")
    return done


def _forked(name: str, port: int) -> int:
    """A process that attacks; as another user, where that is possible."""
    child = os.fork()
    if child:
        return child
    try:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, 5)
            os.setsid()
            Path("/proc/self/autogroup").write_text("5", encoding="ascii")
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        ATTACKS[name](port)
    finally:
        os._exit(1)


def peak_mib(pid: int) -> float:
    """Return the most memory that a process has held, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def supervisor_attacked(seconds: float) -> Attacked:
    """Run the attack on the control socket, in a box."""
    with installed() as fleet:
        fleet.switch("a")
        fleet.box.write(_FLOOD, Path(__file__).with_name("control_flood.py").read_text("utf-8"))
        done = fleet.box.run("/usr/bin/python3", "-S", _FLOOD, f"{seconds:g}", timeout_s=120)
    found = json.loads(done.stdout.splitlines()[-1])
    say(f"half requests to the supervisor: {found}")
    return Attacked(max(0.0, found["stall_ms"]), found["refused"], found["peak_mib"])


def main() -> int:
    """Print the figures, the last line as JSON."""
    asked = _options().parse_args()
    names = [name for name in ATTACKS if asked.only in name]
    if os.getuid():
        sys.exit("no figures: only root can attack as another user")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    go_before_others()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engine = stack.enter_context(sink())
        # What a model has to do for the attacker is not what is measured.
        other = stack.enter_context(sink())
        others = {"other": other.port, "coming": 0}
        relay = stack.enter_context(gateway(engine.port, folder, others, lan_address()))
        neighbour = Neighbour(relay.port)
        neighbour.ask(USUAL_S)
        all_done = [attacked(name, neighbour, relay.pid, asked.seconds) for name in names]
    if asked.only in "supervisor":
        all_done.append(supervisor_attacked(asked.seconds))
    report(
        {
            "cases": len(all_done),
            "stall_ms_max": max(done.stall_ms for done in all_done),
            "rss_mib_max": max(done.peak_mib for done in all_done),
            "refused_neighbours": sum(done.refused for done in all_done),
        }
    )
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each attack (5)")
    parser.add_argument("--only", default="", help="attacks whose name has this in it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
