"""Profiles, units and the CLI in a box: the words that system tests are written in."""

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Literal

from appliance.model.names import unit_of
from appliance.wire.run_ticket import FILE, encoded
from tests.pretend.boxes import ENGINE, install_engine
from tests.system.baseline import Baseline
from tests.system.rig import Box, Polling, RigError

__all__ = ["ENGINE", "OPERATOR", "STRANGER", "Answer", "Fleet"]

PROFILES: Final = "/etc/appliance/profiles"
OPERATOR: Final = "ana"
STRANGER: Final = "bob"
_JOB: Final = """
import socket, sys
with socket.socket(socket.AF_UNIX) as jobs:
    jobs.connect("/run/appliance/jobs.sock")
    jobs.sendall(sys.argv[1].encode() + b"\\n")
    print(jobs.makefile().readline())
"""
"""Asks the program that queues jobs for one."""
_GPUS: Final = 2
"""Number of pretend GPUs that a box has when it boots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Answer of one run of the CLI. `ms` is its wall time, process start and entering included."""

    exit: int
    events: Sequence[Mapping[str, Any]]
    errors: str
    ms: float

    @property
    def result(self) -> Mapping[str, Any]:
        """The closing event."""
        return self.events[-1]


class Fleet:
    """A box with test profiles on it."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._baseline: Baseline | None = None
        self._foreign: set[str] = set()
        install_engine(box)
        (box.root / "etc/appliance/profiles").mkdir(parents=True, exist_ok=True)

    def profile(
        self, name: str, port: int, *options: str, top: str = "gpus = []", tables: str = ""
    ) -> None:
        """Write a profile that runs the test engine."""
        argv = json.dumps(["/usr/bin/python3", "-S", ENGINE, "{port}", *options])
        self.box.write(
            f"{PROFILES}/{name}.toml",
            f'description = "test"\nengine = "command"\nport = {port}\n{top}\n'
            f'[command]\nargv = {argv}\nhealth = "/health"\n{tables}\n',
        )

    def gpu_profile(
        self,
        name: str,
        port: int,
        *options: str,
        gib: float = 24.0,
        gpus: Literal["all"] | tuple[int, ...] = "all",
        need: float | None = -1.0,
        release: str = "20s",
        top: str = "",
        tables: str = "",
    ) -> None:
        """Write a profile whose engine holds pretend VRAM, evenly on each of its GPUs.

        Args:
            name: the profile's.
            port: its port.
            options: more options of the engine.
            gib: GiB that it takes in all.
            gpus: the GPUs that it claims.
            need: GiB that it declares; None: nothing; negative: what it takes.
            release: how long its gate waits for memory.
            top: more keys of the profile.
            tables: more tables, `deadlines` excepted.
        """
        indexes = range(_GPUS) if gpus == "all" else gpus
        memory = [w for i in indexes for w in ("--vram", f"{i}:{gib / len(indexes)}")]
        declared = gib if need is not None and need < 0 else need
        lines = [
            f"gpus = {json.dumps(gpus)}",
            "" if declared is None else f'need = {{ vram = "{declared}GiB" }}',
            top,
            f'deadlines = {{ release = "{release}", stop = "5s", drain = "1s" }}',
        ]
        self.profile(name, port, *memory, *options, top="\n".join(lines), tables=tables)

    def gpu_pair(self) -> None:
        """Two profiles, a and b, that each fill most of both GPUs, applied."""
        self.gpu_profile("a", 9001)
        self.gpu_profile("b", 9002)
        self.apply()

    def pair(self) -> None:
        """Two profiles, a and b, that can never run together, applied."""
        self.profile("a", 9001)
        self.profile("b", 9002)
        self.apply()

    def foreign_holder(self, name: str, *vram: str, user: str = STRANGER) -> int:
        """Start a unit that is not ours and holds pretend VRAM, "GPU:GIB" each; its pid."""
        self.people()
        memory = [w for text in vram for w in ("--vram", text)]
        # A port of its own: it is an engine that nobody asked for.
        argv = ["/usr/bin/python3", "-S", ENGINE, "9100", *memory]
        self._foreign.add(name)
        self.box.run("systemd-run", "-q", f"--unit={name}", f"--uid={user}", *argv)
        self.box.wait_for_listener(9100)
        return int(self.box.run(f"systemctl show -P MainPID {name}").stdout)

    def people(self) -> None:
        """An operator and a stranger."""
        self.box.run(
            f"id -u {OPERATOR} 2>/dev/null || useradd -G appliance-operators {OPERATOR};"
            f" id -u {STRANGER} 2>/dev/null || useradd {STRANGER}"
        )

    def apply(self, *options: str, check: bool = True) -> str:
        """Run `appliance apply`; its output."""
        return self.box.run("appliance", "apply", *options, check=check).stdout

    def cli(self, *argv: str, user: str | None = None, timeout_s: float = 60.0) -> Answer:
        """Run a verb that tells its story as events."""
        began = time.monotonic()
        done = self.box.run(
            "appliance", *argv, "--json", user=user, check=False, timeout_s=timeout_s
        )
        ms = (time.monotonic() - began) * 1000
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return Answer(exit=done.returncode, events=events, errors=done.stderr, ms=ms)

    def switch(self, name: str, *options: str, user: str | None = None) -> Answer:
        """Switch, and insist that it worked."""
        answer = self.cli("switch", name, *options, user=user)
        if answer.exit:
            raise RigError(f"switch {name}: {answer}\n{self.box.journal('-n60')}")
        return answer

    def keep(self) -> None:
        """Have `restore` bring back profiles, settings, units and drop-ins as they are now."""
        self._baseline = Baseline(self.box.root)

    def restore(self, name: str | None) -> None:
        """Bring back what `keep` kept, with the supervisor running and no start counted.

        Args:
            name: The profile that serves then, committed alone; None: nothing serves.
        """
        changed = self._baseline.put_back() if self._baseline else set()
        self._quiet(changed, everything=name is None)
        if changed:
            self.apply("--discard")
        if self._baseline and (left := self._baseline.changed()):
            raise RigError(f"not as it was: {sorted(map(str, left))}")
        self.box.run("appliance wait --for idle --timeout 60s")
        for other in {*self.committed()} - {name}:
            self.box.run("appliance", "uncommit", other, "--exclusive")
        if name is None:
            return
        if not self.active() == self.committed() == [name]:
            self.switch(name)
        elif any(path.stem == name or path.parent.name == f"{unit_of(name)}.d" for path in changed):
            self.cli("restart", name)

    def _quiet(self, changed: set[Path], *, everything: bool) -> None:
        """Stop what does not belong to the baseline, and have the supervisor run."""
        profiles = {path.stem for path in changed if path.suffix == ".toml"}
        kept = {path.stem for path in (self.box.root / PROFILES.lstrip("/")).glob("*.toml")}
        stopped = {*self._foreign, *map(unit_of, profiles - kept)}
        if everything:
            stopped |= {unit_of("*"), "appliance-hold.service"}
        self._foreign.clear()
        commands = (
            "systemctl daemon-reload" if changed else ":",
            f"systemctl stop {' '.join(map(shlex.quote, sorted(stopped)))}" if stopped else ":",
            "systemctl reset-failed 'appliance-*'",
            "systemctl start appliance-supervisor.socket appliance-supervisor.service",
        )
        self.box.run("; ".join(commands))

    def status(self) -> Mapping[str, Any]:
        """The status document."""
        out = self.box.run("appliance", "status", "--json", check=False).stdout
        document: Mapping[str, Any] = json.loads(out)
        return document

    def active(self) -> list[str]:
        """Profiles whose unit is active, by systemd's own word."""
        listed = self.box.run(
            "systemctl list-units --state=active --plain --no-legend 'appliance-backend-*'"
        ).stdout
        units = [line.split()[0] for line in listed.splitlines() if line.strip()]
        return [u.removeprefix("appliance-backend-").removesuffix(".service") for u in units]

    def job(self, request: str, user: str) -> str:
        """Return the job program's answer to a user, or the error of asking it."""
        done = self.box.run("/usr/bin/python3", "-c", _JOB, request, user=user, check=False)
        return (done.stdout + done.stderr).strip()

    def main_pid(self, name: str) -> int:
        """The engine's process id in the box; 0: none."""
        return int(self.show(name, "MainPID"))

    def show(self, name: str, prop: str) -> str:
        """One property of a profile's unit."""
        unit = f"appliance-backend-{name}.service"
        return self.box.run("systemctl", "show", "-P", prop, unit).stdout.strip()

    def committed(self) -> list[str]:
        """Return the content of the file that a boot follows."""
        return self.box.run("cat /var/lib/appliance/active", check=False).stdout.split()

    def await_command(self) -> None:
        """Have the launcher of `appliance run` listen for a command of root's that never comes."""
        ticket = encoded(operation=99, uid=0, gpus=(), token=token_hex())
        self.box.run(f"cat >{FILE}", stdin=ticket)
        self.box.run("rm -f /run/appliance-run/socket; systemctl --no-block start appliance-run")
        self.box.wait_for("test -S /run/appliance-run/socket")

    def wait_serving(self, *names: str, timeout_s: float = 10.0) -> float:
        """Wait until exactly these are active; seconds it took."""
        began, polling = time.monotonic(), Polling(timeout_s)
        while self.active() != sorted(names):
            if not polling.pause():
                raise RigError(
                    f"{self.active()} instead of {names} after {timeout_s} s\n"
                    f"{self.box.journal('-n60')}"
                )
        return time.monotonic() - began
