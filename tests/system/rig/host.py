"""Whether this machine can boot a box, and what killed runs left behind on it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

PROGRAMS: Final = {
    "systemd-nspawn": "systemd-container",
    "dbus-daemon": "dbus",
    "mkfs.ext4": "e2fsprogs",
    "losetup": "mount",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
"""Programs that the rig runs, each with its Debian package."""

HOST_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class RigError(RuntimeError):
    """A box could not be set up, booted or made to do as it was told."""


class BoxInUseError(RigError):
    """A box of this name is there already, in the same folder."""

    def __init__(self, directory: Path) -> None:
        pid = owner_of(directory)
        whose = (
            "nobody who runs: remove it" if pid is None else f"process {pid}: kill {pid} ends it"
        )
        super().__init__(f"{directory} belongs to {whose}; APPLIANCE_RIG_DIR names another folder")


def work_dir() -> Path:
    """Return where boxes are kept: APPLIANCE_RIG_DIR, or a folder that survives a small /tmp."""
    return Path(os.environ.get("APPLIANCE_RIG_DIR", "/var/tmp/appliance-rig"))  # noqa: S108


def missing() -> str | None:
    """Return why no box can be booted here, as one sentence; None when one can."""
    if os.geteuid() != 0:
        return "booting a box needs root"
    absent = {p: pkg for p, pkg in PROGRAMS.items() if shutil.which(p, path=HOST_PATH) is None}
    if absent:
        return f"no {', '.join(absent)}: apt-get install {' '.join(sorted(set(absent.values())))}"
    for part in (Path("/usr"), Path("/etc")):
        if part.stat().st_dev != Path("/").stat().st_dev:
            return f"{part} is a file system of its own, and the overlay shows only the root one"
    probe = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    return f"no private mounts here: {probe.stderr.strip()}" if probe.returncode else None


def sweep() -> None:
    """Remove boxes whose owner was killed before it could."""
    from tests.system.rig.cgroups import Slot  # noqa: PLC0415  # it needs RigError from here

    for directory in sorted(work_dir().glob("*/")):
        if (directory / "owner").exists() and owner_of(directory) is None:
            slot = Slot(directory)
            slot.kill()
            slot.remove()
            shutil.rmtree(directory, ignore_errors=True)


def mark_owned(directory: Path, pid: int | None = None) -> None:
    """Say that a process, or this one, answers for `directory`."""
    new = directory / f"owner.{os.getpid()}"
    new.write_text(_identity(pid or os.getpid()) or "")
    # At once: whoever sweeps meanwhile takes an empty file for that of a process that has died.
    new.rename(directory / "owner")


def owner_of(directory: Path) -> int | None:
    """Return the process id of who answers for `directory`; None: nobody that runs."""
    try:
        identity = (directory / "owner").read_text()
    except OSError:
        return None
    pid = identity.partition(" ")[0]
    return int(pid) if pid.isdigit() and _identity(int(pid)) == identity else None


def _identity(pid: int) -> str | None:
    """The process id and its start time, which together are never used twice."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return f"{pid} {stat.rpartition(')')[2].split()[19]}"
