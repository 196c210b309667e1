"""Pretend GPUs in a box: every process in it sees them, and the test sees who holds them."""

import shutil
import sysconfig
from pathlib import Path
from typing import Final

from tests.pretend.building import NAME, build
from tests.pretend.gpus import Gpus
from tests.system.rig import Box

STATE: Final = "/var/lib/pretend-gpu/state"
HOLDS: Final = "/dev/pretend-gpu"
ENGINE: Final = "/usr/local/lib/test-engine/engine.py"
_UNIT: Final = f"""[Unit]
Description=Where processes keep the pretend memory that they hold
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/mkdir -p -m 0777 {HOLDS}
"""
_WANTED: Final = "/etc/systemd/system/sysinit.target.wants"


def install_engine(box: Box) -> None:
    """Put the engine into a box; without GPUs it serves too."""
    source = Path(__file__).with_name("engine.py").read_text(encoding="utf-8")
    box.write(ENGINE, source, mode=0o755)


def install(box: Box) -> Gpus:
    """Put the driver library, the engine and two empty GPUs of 16 GiB into a box.

    Of a box that is being made into an image, or of one that runs.
    """
    library = Path(f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}") / NAME
    target = box.root / library.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(build(), target)
    install_engine(box)
    box.unit("pretend-gpu.service", _UNIT)
    (box.root / _WANTED.lstrip("/")).mkdir(parents=True, exist_ok=True)
    (box.root / _WANTED.lstrip("/") / "pretend-gpu.service").symlink_to("../pretend-gpu.service")
    box.run("ldconfig; systemctl start pretend-gpu.service")
    gpus = gpus_of(box)
    gpus.furnish()
    return gpus


def gpus_of(box: Box) -> Gpus:
    """The pretend GPUs of a box in which they are installed."""
    return Gpus(box.root / STATE.lstrip("/"), lambda: Path(f"/proc/{box.leader}/root{HOLDS}"))
