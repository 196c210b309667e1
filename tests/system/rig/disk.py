"""A disk that forgets what was not synced when the power goes.

Killing a box proves nothing about durability: what it wrote is in the kernel's page cache and
stays there. So this is ext4 on a loop device, and the cut is a copy of the file behind it: what
never left the page cache of the file system is not in the copy.
"""

import itertools
from pathlib import Path

from tests.system.rig.host import RigError
from tests.system.rig.stage import Stage

SIZE = "64M"


class CrashDisk:
    """An ext4 file system on a file inside a stage."""

    def __init__(self, stage: Stage, *, like: Path) -> None:
        """Make the disk and mount it.

        Args:
            stage: where the file and the mount are.
            like: a directory in the box whose content and owner the disk starts with, if there.
        """
        self._stage = stage
        self._numbers = itertools.count()
        self.mount_point = stage.directory / "disk"
        self._file = self._next_file()
        stage.run("mkdir", str(self.mount_point))
        stage.run("truncate", "-s", SIZE, str(self._file))
        stage.run("mkfs.ext4", "-qF", str(self._file))
        self._mount()
        source = stage.root / like.relative_to("/")
        if stage.seen(source).is_dir():
            stage.run("cp", "-aT", str(source), str(self.mount_point))
        stage.run("sync", "-f", str(self.mount_point))

    def _next_file(self) -> Path:
        return self._stage.directory / f"disk-{next(self._numbers)}.img"

    def _mount(self) -> None:
        try:
            self._stage.run("mount", "-o", "loop", str(self._file), str(self.mount_point))
        except RigError as error:
            raise RigError(
                f"a crash disk needs a loop device, and there is none: {error}"
            ) from error

    def cut(self) -> None:
        """Go back to what a power cut at this moment leaves on the disk."""
        after, before = self._next_file(), self._file
        self._stage.run("cp", "--sparse=always", str(before), str(after))
        self.close()
        self._stage.run("rm", str(before))
        self._file = after
        self._mount()

    def close(self) -> None:
        """Unmount it; the loop device goes with the mount."""
        self._stage.run("umount", str(self.mount_point))
