"""Programs from Debian's packages, unpacked beside the boxes rather than installed.

Installing nginx would start it on port 80 of whatever machine this is.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.native import folder

# With the libraries that a machine without them lacks.
_PACKAGES = ("nginx", "wrk", "libluajit-5.1-2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Where the programs are."""

    nginx: Path
    wrk: Path
    environment: dict[str, str]
    """Variables by which the programs find their libraries."""


def tools() -> Tools:
    """Return the machine's tools where it has both, else unpacked ones."""
    nginx, wrk = _found("nginx"), _found("wrk")
    if nginx and wrk:
        return Tools(nginx=nginx, wrk=wrk, environment=dict(os.environ))
    root = folder() / "bench-packages"
    if not (root / "usr/bin/wrk").exists():
        _unpack(root, _PACKAGES)
    libraries = ":".join(str(path) for path in (root / "usr/lib").glob("*-linux-gnu*"))
    return Tools(
        nginx=root / "usr/sbin/nginx",
        wrk=root / "usr/bin/wrk",
        environment=os.environ | {"LD_LIBRARY_PATH": libraries},
    )


def unpacked(package: str, program: str) -> Path:
    """Return a program of one of Debian's packages, unpacked unless that was done before."""
    root = folder() / f"bench-{package}"
    if not (root / program).exists():
        _unpack(root, [package])
    return root / program


def downloaded(packages: Sequence[str]) -> Path:
    """Return a directory with packages, and with those that they need and this machine lacks."""
    target = folder() / f"bench-{'-'.join(packages)}"
    mark = target / "complete"
    if not mark.exists():
        (target / "partial").mkdir(parents=True, exist_ok=True)
        _apt_get(
            *("install", "--download-only", "--no-install-recommends", "-qq", "-y"),
            *("-o", f"Dir::Cache::archives={target}", *packages),
        )
        mark.touch()
    return target


def _found(name: str) -> Path | None:
    place = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    return Path(place) if place else None


def _unpack(root: Path, packages: Sequence[str]) -> None:
    archives = root / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    _apt_get("download", "-qq", *packages, directory=archives)
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(archive), str(root)], check=True)


def _apt_get(*arguments: str, directory: Path | None = None) -> None:
    """Run apt-get in a directory, if need be once more with new lists."""
    command = ["apt-get", *arguments]
    if subprocess.run(command, cwd=directory, stderr=subprocess.DEVNULL, check=False).returncode:
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        if subprocess.run(command, cwd=directory, check=False).returncode:
            sys.exit(f"no figures: Debian's packages are not here: {' '.join(command)}")
