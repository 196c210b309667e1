"""Disposable boxes: a real systemd booted over an overlay of this machine's own root.

A box is a `systemd-nspawn` container whose disk is an overlay: the machine's root file system
below, read only, and a tmpfs above. It costs about a quarter of a second and nothing outside its
own working directory is written. An `Image` is the upper layer of a box that was prepared once;
boxes stacked on it start with that preparation done.

What a box cannot show: clocks and uptime are the machine's (tell boots apart by
/proc/sys/kernel/random/boot_id), there is no network but loopback, and a killed box keeps what it
wrote to memory only, except on its crash disk (see `CrashDisk`).

The demo uses this package too, so it needs nothing but the standard library.
"""

from tests.system.rig.box import Box
from tests.system.rig.disk import CrashDisk
from tests.system.rig.host import BoxInUseError, RigError, missing, sweep, work_dir
from tests.system.rig.image import Image, shared_directory
from tests.system.rig.polling import Polling
from tests.system.rig.staying import stay_behind
from tests.system.rig.stream import Stream

__all__ = [
    "Box",
    "BoxInUseError",
    "CrashDisk",
    "Image",
    "Polling",
    "RigError",
    "Stream",
    "missing",
    "shared_directory",
    "stay_behind",
    "sweep",
    "work_dir",
]
