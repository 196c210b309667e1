"""Box for commands that are run in the process of the test."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.cli_box import CliBox
from tests.fakes.profiles import applied

_OF_A_COMMAND = ("TZ", "APPLIANCE_")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliBox]:
    """Return a box whose environment, its time zone too, is that of this process."""
    box = CliBox(tmp_path)
    box.install(applied("genesis", "gpu-all"))
    for name, value in box.environment.items():
        if name.startswith(_OF_A_COMMAND):
            monkeypatch.setenv(name, value)
    time.tzset()
    yield box
    monkeypatch.undo()
    time.tzset()
