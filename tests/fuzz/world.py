"""An event loop without sockets or waiting, and the ends of connections in it.

Time passes only while nothing else is left to do, and costs nothing then.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any


class _NoSelector(selectors.BaseSelector):
    """Selector without outside events; the clock moves forward instead of a wait."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everybody waits for ever")
        self.now_s += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class End(asyncio.Transport):
    """A transport whose other side is written in the test.

    Args:
        protocol: Of the gateway.
        heard: Called with all that the gateway writes.
    """

    def __init__(
        self, protocol: asyncio.Protocol, heard: Callable[[End, bytes], None] | None = None
    ) -> None:
        super().__init__()
        self.protocol = protocol
        self.heard = heard
        self.written = bytearray()
        self.paused = False
        """The gateway does not want to read."""
        self.ended = False
        """The gateway writes no more."""
        self.aborted = False
        self.lost = False
        """The connection is gone, and the gateway knows it."""
        self.unsent = 0
        """Bytes that the gateway sees as not taken yet."""
        self._closing = False
        protocol.connection_made(self)

    def say(self, data: bytes) -> None:
        """Bytes for the gateway."""
        if not self._closing:
            self.protocol.data_received(data)

    def hang_up(self) -> None:
        """The other side is gone."""
        if not self._closing:
            self.protocol.eof_received()
            self.close()

    # What the gateway does with it.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Take bytes."""
        assert not self.ended, "written after the end"
        if self._closing:
            return
        self.written += data
        if self.heard is not None:
            self.heard(self, bytes(data))

    def write_eof(self) -> None:
        """The gateway says no more."""
        self.ended = True

    def can_write_eof(self) -> bool:
        """Tell that the end can be written, as with TCP."""
        return True

    def close(self) -> None:
        """Close; everything written has been taken."""
        self._lose(None)

    def abort(self) -> None:
        """Close at once."""
        self.aborted = self.aborted or not self._closing
        self._lose(None)

    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._closing

    def pause_reading(self) -> None:
        """The gateway wants no more."""
        self.paused = True

    def resume_reading(self) -> None:
        """Resume reading."""
        self.paused = False

    def is_reading(self) -> bool:
        """Whether it does."""
        return not self.paused

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Ignore the limits."""

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that are not taken."""
        return self.unsent

    def _lose(self, error: Exception | None) -> None:
        if not self._closing:
            self._closing = True
            asyncio.get_running_loop().call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        self.lost = True
        self.protocol.connection_lost(error)


class World(asyncio.SelectorEventLoop):
    """The loop; `engine` hears what is written on connections that the gateway makes."""

    def __init__(self) -> None:
        self._outside = _NoSelector()
        super().__init__(self._outside)
        self.engines: list[End] = []
        """Connections that the gateway has made."""
        self.engine: Callable[[End, bytes], None] | None = None
        self.troubles: list[str] = []
        self.set_exception_handler(self._note)

    def begin(self) -> None:
        """Forget everybody."""
        self.engines.clear()
        self.troubles.clear()
        self.engine = None

    def time(self) -> float:
        """The virtual clock."""
        return self._outside.now_s

    async def create_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        """A connection to the engine."""
        protocol = protocol_factory()
        end = End(protocol, self.engine)
        self.engines.append(end)
        return end, protocol

    def _note(self, _loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self.troubles.append(f"{context.get('message')}: {context.get('exception')!r}")
