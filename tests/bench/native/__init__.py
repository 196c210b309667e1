"""Programs in C, compiled where they are first needed."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.system.rig import work_dir

_HERE = Path(__file__).parent
_FLAGS = ("-Wall", "-Wextra", "-Werror", "-O2")


def program(name: str) -> Path:
    """The program from ``NAME.c``, compiled unless that was done before."""
    sources = [_HERE / f"{name}.c", *sorted(_HERE.glob("*.h"))]
    text = b"".join(path.read_bytes() for path in sources)
    key = hashlib.sha256(text + repr(_FLAGS).encode()).hexdigest()[:16]
    built = folder() / f"bench-{key}" / name
    if not built.exists():
        _compile(sources[0], built)
    return built


def folder() -> Path:
    """Beside the boxes, which are root's; another user's own one otherwise."""
    boxes = work_dir()
    return boxes if os.geteuid() == 0 else boxes.with_name(f"{boxes.name}-{os.geteuid()}")


def script(name: str) -> Path:
    """A file that is used as it is."""
    return _HERE / name


def _compile(source: Path, built: Path) -> None:
    if shutil.which("gcc") is None:
        sys.exit("no figures: gcc is missing: apt-get install gcc libc6-dev")
    built.parent.mkdir(parents=True, exist_ok=True)
    fresh = built.with_name(f"{built.name}.{os.getpid()}")
    subprocess.run(["gcc", *_FLAGS, "-o", str(fresh), str(source)], check=True)
    fresh.rename(built)
