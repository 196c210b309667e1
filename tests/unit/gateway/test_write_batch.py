"""The batch of the writes of one turn of the event loop."""

import asyncio
from collections.abc import Callable

import pytest

from appliance.gateway.write_batch import WriteBatch


class FakeTransport(asyncio.Transport):
    """Transport that notes what is written, in one list for all."""

    def __init__(self, name: str, written: list[str]) -> None:
        super().__init__()
        self._name = name
        self._written = written
        self.closing = False
        self.on_write: Callable[[], None] | None = None
        """Called once in the next write, as a transport calls its protocol."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written.append(f"{self._name}{bytes(data[:9]).decode()}")
        call, self.on_write = self.on_write, None
        if call is not None:
            call()

    def abort(self) -> None:
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing


class Rig:
    """A batch with two transports."""

    def __init__(self) -> None:
        self.batch = WriteBatch()
        self.written: list[str] = []
        self.one, self.two = (FakeTransport(name, self.written) for name in "ab")

    async def turn(self, writes: int) -> int:
        """Write so often in one turn; return how many went out before its end."""
        self.written.clear()
        for _ in range(writes):
            self.batch.write(self.one, b"x")
        direct = len(self.written)
        await asyncio.sleep(0)
        assert len(self.written) == writes
        return direct


async def test_end_of_turn() -> None:
    """Writes of a turn go out at its end, in their order."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.two, b"2")
    rig.batch.write(rig.one, b"3")
    assert rig.written == []
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2", "a3"]


async def test_lone_client() -> None:
    """After eight turns with few writes they go out at once, and are looked at again in time."""
    rig = Rig()
    assert [await rig.turn(2) for _ in range(9)] == [0] * 8 + [2]
    direct = [await rig.turn(1) for _ in range(254)]
    assert direct == [1] * 254
    assert await rig.turn(1) == 0
    assert [await rig.turn(1) for _ in range(256)] == [1] * 256
    assert await rig.turn(3) == 0
    assert [await rig.turn(1) for _ in range(8)] == [0] * 8
    assert await rig.turn(1) == 1


async def test_crowd() -> None:
    """Turns with many writes are batched for good."""
    rig = Rig()
    for _ in range(20):
        assert await rig.turn(1) == 0
        assert await rig.turn(3) == 0


async def test_flush() -> None:
    """A flush writes at once, and once."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.flush()
    assert rig.written == ["a1"]
    rig.batch.write(rig.two, b"2")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2"]


async def test_callbacks() -> None:
    """A transport that calls back in a write, where others write and flush, keeps the order."""
    rig = Rig()

    def write_and_flush() -> None:
        rig.batch.write(rig.one, b"4")
        rig.batch.flush()

    rig.one.on_write = write_and_flush
    for transport, data in ((rig.one, b"1"), (rig.two, b"2"), (rig.one, b"3")):
        rig.batch.write(transport, data)
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2", "a3", "a4"]


async def test_callback_of_the_last_turn_with_few_writes() -> None:
    """A write of a callback goes out after those that wait, also when later ones go out directly."""
    rig = Rig()
    for _ in range(7):
        await rig.turn(1)
    rig.written.clear()
    rig.one.on_write = lambda: rig.batch.write(rig.one, b"3")
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.one, b"2")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "a2", "a3"]


async def test_closed_transport() -> None:
    """Bytes that wait for a transport that was aborted meanwhile are dropped."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.two, b"2")
    rig.one.closing = True
    await asyncio.sleep(0)
    assert rig.written == ["b2"]


async def test_large_write() -> None:
    """A large write goes out at once, after what waits."""
    rig = Rig()
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.one, b"2" * 20_000)
    rig.batch.write(rig.one, b"3")
    assert rig.written == ["a1", "a222222222"]
    await asyncio.sleep(0)
    assert rig.written[2:] == ["a3"]


async def test_a_write_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """A write that raises is logged, ends its own connection, and holds up no other."""
    rig = Rig()

    def fail() -> None:
        raise RuntimeError("after write_eof")

    rig.one.on_write = fail
    rig.batch.write(rig.one, b"1")
    rig.batch.write(rig.two, b"2")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2"]
    assert rig.one.closing
    assert not rig.two.closing
    (record,) = caplog.records
    assert "RuntimeError at test_write_batch.py" in record.getMessage()
    rig.batch.write(rig.two, b"3")
    await asyncio.sleep(0)
    assert rig.written == ["a1", "b2", "b3"]
