"""A control group for each box: boxes started side by side would otherwise share one."""

import contextlib
import os
import signal
import subprocess
import time
import zlib
from pathlib import Path
from typing import Final

HIERARCHIES: Final = tuple(
    Path(p) for p in ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
)


class Slot:
    """Where the processes of one box live, so that all of them can be found and ended."""

    def __init__(self, directory: Path) -> None:
        """Name the group after the box's directory: boxes of one name may lie in several places."""
        place = zlib.crc32(str(directory.parent.resolve()).encode())
        self.name = f"appliance-rig-{directory.name}-{place:08x}"
        # sd_booted(3). Where systemd is in charge it is the only writer of control groups.
        self._scoped = Path("/run/systemd/system").is_dir()

    @property
    def _groups(self) -> list[Path]:
        return [h / self.name for h in HIERARCHIES if (h / "cgroup.procs").exists()]

    def argv(self) -> list[str]:
        """Return the words to put in front of a command that shall run in this group."""
        if not self._scoped:
            return []
        scope = ["systemd-run", "--quiet", "--scope", "--collect", "-p", "Delegate=yes"]
        return [*scope, f"--unit={self.name}"]

    def enter(self) -> str:
        """Shell lines by which a process moves itself in here; makes the groups."""
        if self._scoped:
            return ""
        for group in self._groups:
            group.mkdir(exist_ok=True)
        return "".join(f"echo $$ >{group}/cgroup.procs\n" for group in self._groups)

    def kill(self) -> None:
        """End everything in here."""
        if self._scoped:
            command = ["systemctl", "kill", "--signal=KILL", f"{self.name}.scope"]
            subprocess.run(command, capture_output=True, check=False)
            return
        for group in self._groups:
            for procs in group.rglob("cgroup.procs"):
                for pid in procs.read_text().split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)

    def remove(self) -> None:
        """Remove the groups; they can take a moment to be empty."""
        if self._scoped:
            return
        for group in self._groups:
            for _ in range(40):
                if _removed(group):
                    break
                time.sleep(0.05)


def _removed(group: Path) -> bool:
    try:
        for path, _, _ in os.walk(group, topdown=False):
            Path(path).rmdir()
    except OSError:
        return False
    return True
