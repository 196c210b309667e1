"""A disk prepared once, on which many boxes are stacked."""

from collections.abc import Callable
from pathlib import Path
from typing import Self

from tests.system.rig.box import Box
from tests.system.rig.stage import Stage


class Image:
    """The layers of a box that was prepared, shut down and kept."""

    def __init__(self, box: Box) -> None:
        """Keep the layers of `box`, which has been shut down."""
        self._box = box
        self._box.stage.run("umount", str(box.stage.root))

    @classmethod
    def build(cls, box: Box, prepare: Callable[[Box], None]) -> Self:
        """Boot `box`, let `prepare` work on it, shut it down and keep what it wrote."""
        try:
            box.setup().boot()
            prepare(box)
            # Each box starts a journal of its own, with none of this one's lines in it.
            box.power_off().stage.run("sh", "-c", f"rm -rf {box.stage.root}/var/log/journal/*")
            return cls(box)
        except BaseException:
            box.close()
            raise

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
