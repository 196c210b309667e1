"""Pins of the status: document and screen for a box in each of the states that are registered.

A real supervisor, ledger and stall watch on fakes in virtual time make the document. Documents are stored
as differences to that of the state `serving`, which is stored in full.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.fakes.profiles import FakeProfiles
from tests.pins import box_states, box_states_of_readings
from tests.pins.appliance_code import VERSION, FakePorts, screen, supervised
from tests.pins.frozen_time import FrozenLoop, settle, utc
from tests.pins.normalisation import RAM_DISK, normal, normal_document, told_by
from tests.pins.pin_files import file_name
from tests.pins.status_box import BASE, STATES, State, StatusBox, catalogue_in

_REGISTER: Final = (box_states, box_states_of_readings)
"""Modules that register states when they are imported."""
_LONG_S: Final = 1.0
"""Longer than the status waits for any reading."""
_HEADING: Final = "==== status --json\n"


def make() -> dict[str, str]:
    """Make the pin of every state, by file."""
    with utc():
        found = {name: _run(state) for name, state in STATES.items()}
    base = found[BASE][1]
    return {
        file_name(name): face + _HEADING + (document if name == BASE else told_by(base, document))
        for name, (face, document) in found.items()
    }


def _run(state: State) -> tuple[str, str]:
    with asyncio.Runner(loop_factory=FrozenLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, FrozenLoop)
        return runner.run(_pin(state, loop))


def observe(state: State) -> tuple[Mapping[str, Any], float]:
    """Return the status document of a box in a state, as the supervisor makes it, and its time."""

    async def observed(loop: FrozenLoop) -> tuple[Mapping[str, Any], float]:
        async with _observed(state, loop) as (document, now_unix_s, _root):
            return document, now_unix_s

    with utc(), asyncio.Runner(loop_factory=FrozenLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, FrozenLoop)
        return runner.run(observed(loop))


async def _pin(state: State, loop: FrozenLoop) -> tuple[str, str]:
    """Return the screen and the document."""
    async with _observed(state, loop) as (found, now_unix_s, root):
        document = normal_document(dict(found), VERSION)
        face = screen(document, now_unix_s)
        text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
        return normal(face, root, {}), normal(text, root, {})


@asynccontextmanager
async def _observed(
    state: State, loop: FrozenLoop
) -> AsyncGenerator[tuple[Mapping[str, Any], float, Path], None]:
    """Arrange a box; yields its document, the time, and the directory of its files."""
    with tempfile.TemporaryDirectory(dir=RAM_DISK, prefix="pins-") as folder:
        root = Path(folder)
        fakes = FakePorts(catalogue_in(root), *state.committed)
        fakes.serve(*state.committed)
        profiles = FakeProfiles(fakes.systemd.catalogue)
        async with supervised(fakes, profiles) as running:
            await settle()
            box = StatusBox(supervised=running, root=root)
            await state.arrange(box)
            await settle()
            asked = asyncio.create_task(running.document())
            await settle()
            if box.is_slow:
                loop.now_s += _LONG_S
            yield await asked, fakes.clock.unix_s(), root
