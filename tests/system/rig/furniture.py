"""Differences of a fresh box from the machine below it.

Everything is written into the upper layer before it is mounted, so that hiding a directory of the
machine costs one attribute and not a walk through it.
"""

import os
import shutil
import stat
import uuid
from pathlib import Path
from typing import Final

NULL: Final = "/dev/null"

MASKED_UNITS: Final = """
    console-getty.service getty.target dev-hugepages.mount dev-mqueue.mount
    proc-sys-fs-binfmt_misc.automount sys-fs-fuse-connections.mount sys-kernel-config.mount
    sys-kernel-debug.mount sys-kernel-tracing.mount systemd-ask-password-console.path
    systemd-ask-password-wall.path systemd-binfmt.service systemd-firstboot.service
    systemd-logind.service systemd-machine-id-commit.service systemd-modules-load.service
    systemd-random-seed.service systemd-remount-fs.service systemd-sysctl.service
    systemd-sysusers.service systemd-timesyncd.service systemd-tmpfiles-setup-dev.service
    systemd-udev-trigger.service systemd-udevd.service systemd-update-utmp.service
    systemd-update-utmp-runlevel.service
""".split()  # noqa: SIM905  # forty lines as a list
"""Units that cost time, or would reach for the machine's kernel."""

EMPTY: Final = ("/etc/systemd/system", "/etc/systemd/system-generators", "/var/log/journal")
"""Directories that start empty: what the machine enabled must not start in a box."""

ABSENT: Final = """
    /etc/appliance /etc/polkit-1/rules.d/50-appliance.rules /opt/appliance
    /usr/local/bin/appliance /usr/local/lib/systemd /usr/local/lib/sysusers.d
    /usr/local/lib/tmpfiles.d /usr/local/share/appliance /var/lib/appliance
    /var/lib/appliance-applied /var/lib/appliance-backend
""".split()  # noqa: SIM905  # forty lines as a list
"""An appliance of the machine's own must not show in a box."""

GENERATORS: Final = ("/usr/lib/systemd/system-generators", "/lib/systemd/system-generators")

JOURNAL: Final = """[Journal]
Storage=persistent
RateLimitIntervalSec=0
ForwardToConsole=no
SyncIntervalSec=1
"""


def furnish(upper: Path) -> None:
    """Fill the upper layer of a fresh box."""
    for name in EMPTY:
        empty(upper, Path(name))
    for name in ABSENT:
        hide(upper, Path(name))
    system = _inside(upper, Path("/etc/systemd/system"))
    for unit in MASKED_UNITS:
        (system / unit).symlink_to(NULL)
    (system / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
    for generator in sorted({p.name for d in GENERATORS for p in Path(d).glob("*")}):
        _inside(upper, Path("/etc/systemd/system-generators") / generator).symlink_to(NULL)
    write(upper, "/etc/machine-id", uuid.uuid4().hex + "\n")
    write(upper, "/etc/fstab", "")
    write(upper, "/etc/systemd/journald.conf.d/box.conf", JOURNAL)


def name_box(upper: Path, name: str) -> None:
    """Give the box its host name."""
    write(upper, "/etc/hostname", f"{name}\n")
    write(upper, "/etc/hosts", f"127.0.0.1 localhost {name}\n::1 localhost\n")


def write(upper: Path, name: str, text: str) -> None:
    """Write one file below `upper`, making the directories it needs."""
    path = _inside(upper, Path(name))
    _make_directory(upper, Path(name).parent)
    path.write_text(text)


def empty(upper: Path, name: Path) -> None:
    """Make the directory `name` exist and be empty, whatever the layers below have there."""
    _make_directory(upper, name)
    os.setxattr(_inside(upper, name), "trusted.overlay.opaque", b"y")


def hide(upper: Path, name: Path) -> None:
    """Make `name` not exist: a character device 0:0 is the overlay's word for that."""
    if name.exists():
        _make_directory(upper, name.parent)
        os.mknod(_inside(upper, name), stat.S_IFCHR, os.makedev(0, 0))


def _make_directory(upper: Path, name: Path) -> None:
    """Make a directory of the upper layer with the mode and owner it has in the machine."""
    for part in (*reversed(name.parents), name):
        path = _inside(upper, part)
        if path.exists():
            continue
        path.mkdir(mode=0o755)
        if part.is_dir():
            shutil.copystat(part, path)
            os.chown(path, part.stat().st_uid, part.stat().st_gid)


def _inside(upper: Path, name: Path) -> Path:
    return upper / name.relative_to("/")
