"""Boxes with the appliance installed in them."""

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Final

from tests.system.rig.box import Box
from tests.system.rig.host import RigError

CHECKOUT: Final = Path(__file__).parents[3]
SOURCE: Final = "/mnt/source"
"""Path at which a box sees the checkout."""
WHEELS: Final = "/mnt/wheels"
"""Path at which a box sees the wheels."""


def fetch_wheels(directory: Path | None = None) -> Path:
    """Fetch what install.sh needs, once, into the cache directory; return that."""
    wheels = directory or Path(os.environ.get("APPLIANCE_WHEELS", "/var/cache/appliance-wheels"))
    command = [str(CHECKOUT / "scripts/install.sh"), "--download", str(wheels)]
    wheels.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{wheels}.lock").open("w") as lock:
        # Test processes that run side by side share them.
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"install.sh --download failed:\n{done.stdout}{done.stderr}")
    return wheels


def sources(wheels: Path) -> dict[str, Path]:
    """Return the sources that a box must see so that `install` works in it."""
    return {SOURCE: CHECKOUT, WHEELS: wheels}


def install(box: Box, *options: str) -> None:
    """Run scripts/install.sh in a box, which has no network."""
    command = [f"{SOURCE}/scripts/install.sh", "--wheels", WHEELS, "--no-index", *options]
    box.run(*command, timeout_s=280)
