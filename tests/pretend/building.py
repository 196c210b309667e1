"""The pretend driver library, compiled."""

import hashlib
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Final

from tests.system.rig import RigError, work_dir

NAME: Final = "libnvidia-ml.so.1"
_HERE: Final = Path(__file__).parent
_FLAGS: Final = ("-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-pthread")


def build(*defines: str) -> Path:
    """Compile the library unless that was done before; the library.

    Args:
        defines: such as ``-DOLD_DRIVER``.
    """
    sources = sorted(_HERE.glob("*.c"))
    text = b"".join(p.read_bytes() for p in (*sources, *sorted(_HERE.glob("*.h"))))
    key = hashlib.sha256(text + repr((_FLAGS, defines)).encode()).hexdigest()[:16]
    library = _folder() / f"pretend-{key}" / NAME
    if not library.exists():
        _compile(sources, defines, library)
    return library


def _folder() -> Path:
    """Beside the boxes, which are root's; another user's own folder otherwise."""
    boxes = work_dir()
    return boxes if os.geteuid() == 0 else boxes.with_name(f"{boxes.name}-{os.geteuid()}")


def _compile(sources: list[Path], defines: tuple[str, ...], library: Path) -> None:
    if shutil.which("gcc") is None:
        raise RigError("no gcc for the pretend driver: apt-get install gcc libc6-dev")
    library.parent.mkdir(parents=True, exist_ok=True)
    # Boxes are furnished by several threads at once, tests by several processes.
    fresh = library.with_name(f"{NAME}.{os.getpid()}-{threading.get_ident()}")
    command = ["gcc", *_FLAGS, *defines, "-o", str(fresh), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RigError(f"the pretend driver does not compile:\n{done.stderr}")
    fresh.rename(library)
