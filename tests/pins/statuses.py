"""Pins of the status: its document and its screen, for a box in each of the states of `box_states`.

The document is that of a real supervisor, ledger and stall watch on fakes in virtual time. It is told
by that of the state `serving`, which is pinned in full.
"""

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.fakes.profiles import FakeProfiles
from tests.pins.appliance_code import VERSION, FakeOutside, screen, supervised
from tests.pins.box_states import BASE, STATES, Scene, State, catalogue_in, settle
from tests.pins.normal import RAM_DISK, normal, normal_document, told_by

_LONG_S: Final = 1.0
"""More than a status waits for anything."""
_HEADING: Final = "==== status --json\n"


def make() -> dict[str, str]:
    """The pin of every state, by file."""
    with utc():
        found = {name: _run(state) for name, state in STATES.items()}
    base = found[BASE][1]
    return {
        f"{name}.txt": face + _HEADING + (document if name == BASE else told_by(base, document))
        for name, (face, document) in found.items()
    }


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose time does not pass: a busy machine runs nobody out of patience."""

    now_s = 0.0

    def time(self) -> float:
        """What was set."""
        return self.now_s


def _run(state: State) -> tuple[str, str]:
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, StillLoop)
        return runner.run(_pin(state, loop))


async def _pin(state: State, loop: StillLoop) -> tuple[str, str]:
    """The screen and the document."""
    with tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="pins-") as folder:
        root = Path(folder)
        outside = FakeOutside(catalogue_in(root), *state.committed)
        outside.serve(*state.committed)
        profiles = FakeProfiles(outside.systemd.catalogue)
        async with supervised(outside, profiles) as box:
            await settle()
            scene = Scene(box=box, root=root)
            await state.arrange(scene)
            await settle()
            asked = asyncio.create_task(box.document())
            await settle()
            if scene.is_slow:
                loop.now_s += _LONG_S
            document = normal_document(await asked, VERSION)
            face = screen(document, outside.clock.unix_s())
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        return normal(face, root, {}), normal(text, root, {})


@contextmanager
def utc() -> Iterator[None]:
    """Local times are those of Greenwich."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    try:
        yield
    finally:
        if before is None:
            del os.environ["TZ"]
        else:
            os.environ["TZ"] = before
        time.tzset()
