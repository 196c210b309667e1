"""The lane is tested on the event loop that it runs on."""

import asyncio
from collections.abc import Callable, Mapping

import uvloop


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """For every test of this directory."""
    return {"uvloop": uvloop.new_event_loop}
