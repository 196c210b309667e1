"""Fixtures from which many of the unit tests start."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.fakes.notify_socket import NotifySocket
from tests.fakes.virtual_time import VirtualTimeLoop
from tests.leaks import no_child_or_socket_left, no_task_left, no_task_left_on_loop

__all__ = ["manager", "no_child_or_socket_left", "no_task_left", "no_task_left_on_loop"]


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run what has the mark ``virtual_time`` in virtual time."""
    if item.get_closest_marker("virtual_time"):
        return {"virtual time": VirtualTimeLoop}
    return {"asyncio": asyncio.SelectorEventLoop}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[NotifySocket]:
    """The service manager's end of a notification socket."""
    end = NotifySocket(tmp_path / "notify")
    yield end
    end.close()
