"""What many of the unit tests start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import no_child_or_socket_left, no_task_left, no_task_left_on_loop
from tests.unit.launch_rig import Manager

__all__ = ["manager", "no_child_or_socket_left", "no_task_left", "no_task_left_on_loop"]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """The service manager's end of a notification socket."""
    end = Manager(tmp_path / "notify")
    yield end
    end.close()
