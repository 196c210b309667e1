"""Bounds of the log that is told to the web process."""

import asyncio
from collections.abc import Sequence

from appliance.supervisor.log_reader import LogReader
from appliance.wire.status_socket import MOST_LOG_BYTES, MOST_LOG_CHARACTERS, MOST_LOG_LINES
from tests.fakes.ports import FakeHost
from tests.fakes.profiles import applied, catalogue
from tests.fakes.supervisor_ports import FakePorts

BOX = catalogue(applied("aeon", "gpu-all"))


class ChattyHost(FakeHost):
    """Host whose engines log long lines; counts how many are read at once."""

    def __init__(self, line: str) -> None:
        super().__init__(FakePorts(BOX).processes)
        self.line = line
        self.at_once = 0
        self.most_at_once = 0

    async def log_tail(self, name: str, lines: int, *, since_unix_s: float) -> Sequence[str]:
        assert name == "aeon"
        assert since_unix_s >= 0
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return [f"{number} {self.line}" for number in range(lines)]


def reader(host: ChattyHost) -> LogReader:
    return LogReader(host, FakePorts(BOX).clock, lambda: BOX)


async def test_long_lines_are_cut_and_the_newest_are_told() -> None:
    """Lines of 100,000 characters of three bytes make no answer above the limit of a line."""
    lines = await reader(ChattyHost("\u20ac" * 100_000)).lines("aeon", MOST_LOG_LINES)
    assert max(map(len, lines)) == MOST_LOG_CHARACTERS
    assert sum(len(line.encode()) for line in lines) <= MOST_LOG_BYTES
    assert lines[-1].startswith(f"{MOST_LOG_LINES - 1} ")
    assert len(lines) == MOST_LOG_BYTES // len(lines[-1].encode())


async def test_lone_surrogates_of_a_log_are_no_fault() -> None:
    """An engine may log bytes that are no text."""
    assert await reader(ChattyHost("\udcff")).lines("aeon", 1) == ["0 ?"]


async def test_one_journalctl_runs_at_a_time() -> None:
    """Many readers at once wait for one another."""
    host = ChattyHost("x")
    read = reader(host)
    await asyncio.gather(*(read.lines("aeon", 3) for _ in range(20)))
    assert host.most_at_once == 1
