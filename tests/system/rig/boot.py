"""One run of a box's systemd, from its boot to its end."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.system.rig.cgroups import Slot
from tests.system.rig.host import HOST_PATH, RigError
from tests.system.rig.stage import Stage

REBOOT: Final = 133
"""nspawn's exit status when the box asked to be booted again."""

POWER_OFF: Final = 0

PURE_TREE: Final = """
if [ "$(stat -fc %T /sys/fs/cgroup)" != cgroup2fs ]; then
  mount --make-rprivate /
  umount -R /sys/fs/cgroup
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
fi
"""
"""Shows nspawn the one control group tree that current systems have, on a machine with two."""

NSPAWN: Final = (
    *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
    *("--notify-ready=yes", "--console=pipe", "--settings=no", "--link-journal=no"),
    *("--resolv-conf=off", "--timezone=off", "--private-network"),
    *("--capability=all", "--system-call-filter=bpf"),
)
"""Without the last line, IPAddressDeny= in a box does nothing and says nothing."""


class Boot:
    """A running systemd-nspawn whose systemd said that it is ready."""

    def __init__(
        self, *, name: str, stage: Stage, slot: Slot, arguments: Sequence[str], log: Path
    ) -> None:
        """Boot and wait until it is ready, or raise `RigError` with the end of the console."""
        self._log = log
        started = time.monotonic()
        address = f"@appliance-rig-{name}-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready, log.open("ab") as console:
            ready.bind("\0" + address[1:])
            self.process = subprocess.Popen(
                _command(name, stage, slot, arguments),
                env={"PATH": HOST_PATH, "NOTIFY_SOCKET": address, "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
            self.leader = self._wait_ready(ready, started + 60)
        self.boot_s = time.monotonic() - started

    def _wait_ready(self, ready: socket.socket, deadline: float) -> int:
        ready.settimeout(0.2)
        leader = 0
        while time.monotonic() < deadline:
            try:
                lines = ready.recv(4096).decode().splitlines()
            except TimeoutError:
                if self.process.poll() is None:
                    continue
                break
            for line in lines:
                if line.startswith("X_NSPAWN_LEADER_PID="):
                    leader = int(line.partition("=")[2])
            if "READY=1" in lines:
                return leader
        tail = self._log.read_text(errors="replace")[-2000:]
        self.process.kill()
        self.process.wait(10)
        raise RigError(f"the box did not come up:\n{tail}")

    def kill(self) -> None:
        """End every process of the box at once, as a power cut does."""
        if self.process.poll() is None:
            os.kill(self.leader, signal.SIGKILL)
            self.process.wait(30)

    def poll(self, timeout_s: float) -> int | None:
        """Wait for the box to go down by itself; `REBOOT` or `POWER_OFF`, None: not yet."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


def _command(name: str, stage: Stage, slot: Slot, arguments: Sequence[str]) -> list[str]:
    script = f'set -e\n{slot.enter()}{PURE_TREE}exec "$@"'
    inside = ["nsenter", "-t", str(stage.pid), "-m", "unshare", "-m", "sh", "-c", script, "sh"]
    named = ("--machine", slot.name, "--hostname", name)
    box = [*NSPAWN, "-D", str(stage.root), *named, *arguments]
    return [*slot.argv(), *inside, *box]
