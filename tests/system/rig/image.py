"""A disk prepared once, on which many boxes are stacked."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from tests.system.rig.box import Box
from tests.system.rig.host import mark_owned, work_dir
from tests.system.rig.stage import Stage

_TAR: Final = ("tar", "--xattrs", "--xattrs-include=*", "--numeric-owner")
"""Keeps what an overlay writes for a deleted or replaced directory."""


class Image:
    """The layers of a box that was prepared, shut down and kept."""

    def __init__(self, box: Box) -> None:
        """Keep the layers of `box`, which has been shut down or was never booted."""
        self._box = box
        self._box.stage.run("umount", str(box.stage.root))

    @classmethod
    def build(cls, box: Box, prepare: Callable[[Box], None]) -> Self:
        """Boot `box`, let `prepare` work on it, shut it down and keep what it wrote."""
        try:
            box.setup().boot()
            prepare(box)
            return cls._kept(box)
        except BaseException:
            box.close()
            raise

    @classmethod
    def once(cls, box: Box, prepare: Callable[[Box], None], archive: Path) -> Self:
        """Return what `build` does; of the processes that name one archive, the first builds.

        Args:
            box: Layer below, the same for all these processes.
            prepare: Works on it.
            archive: File in which the first stores its layer, and from which the others read it.
        """
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if archive.exists():
                return cls._restored(box, archive)
            built = cls.build(box, prepare)
            unfinished = archive.with_suffix(".new")
            built.stage.run(*_TAR, "-cf", str(unfinished), "-C", str(built.stage.upper), ".")
            unfinished.rename(archive)
            return built

    @classmethod
    def _restored(cls, box: Box, archive: Path) -> Self:
        try:
            stage = box.setup().stage
            stage.run("umount", str(stage.root))
            stage.run("sh", "-c", f"rm -rf {stage.upper}/*")
            stage.run(*_TAR, "-xpf", str(archive), "-C", str(stage.upper))
            box.mount()
            # Daemons keep their settings until a file's inode changes, and here all have: each box would pay.
            return cls._kept(box.boot())
        except BaseException:
            box.close()
            raise

    @classmethod
    def _kept(cls, box: Box) -> Self:
        """Shut a booted box down, and keep it."""
        # Each box starts a journal of its own, with none of this one's lines in it.
        box.power_off().stage.run("sh", "-c", f"rm -rf {box.stage.root}/var/log/journal/*")
        return cls(box)

    @property
    def stage(self) -> Stage:
        """Return where the layers are mounted."""
        return self._box.stage

    @property
    def layers(self) -> tuple[Path, ...]:
        """Highest layer first, without the machine's root."""
        return self._box.layers

    def close(self) -> None:
        """Let go of the layers; boxes that run on them keep them."""
        self._box.close()


@contextmanager
def shared_directory(run: str) -> Iterator[Path]:
    """Directory of all processes of one parent that name the same run; the last one removes it."""
    directory = work_dir() / f"run-{run}"
    directory.mkdir(parents=True, exist_ok=True)
    mark_owned(directory, os.getppid())
    with (directory / "users").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        yield directory
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        shutil.rmtree(directory)
