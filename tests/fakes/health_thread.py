"""A health agent with a real store and its real server, in a thread, for commands that wait for it."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from appliance.health.agent import HealthAgent
from appliance.health.answering.health_verbs import HealthVerbs
from appliance.health.answering.lease_desk import LeaseDesk
from appliance.health.clock import SystemHealthClock
from appliance.model.profile import Catalogue
from appliance.model.status import ProfileRow, StatusDocument
from appliance.system.sqlite.measurement_store import MeasurementStore
from tests.fakes.health_monitors import FakeQualityWatch, FakeSpeedWatch
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer

_PATIENCE_S: Final = 60.0


class HealthThread:
    """Thread that answers on a socket from a database.

    Args:
        path: The socket.
        database: Of the measurements.
        catalogue: Applied profiles, which all serve; those that generate have fake monitors.
    """

    def __init__(self, path: Path, database: Path, catalogue: Catalogue) -> None:
        self.path = path
        self.speeds: dict[str, FakeSpeedWatch] = {}
        self._database = database
        self._catalogue = catalogue
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)

    def begin(self) -> None:
        """Return once the agent answers."""
        self._thread.start()
        assert self._ready.wait(_PATIENCE_S)

    def end(self) -> None:
        """End the agent."""
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_PATIENCE_S)
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        store, clock = MeasurementStore(self._database), SystemHealthClock()
        desk = LeaseDesk(FakeProbeLane(lambda _request: LaneAnswer()), clock)
        agent = HealthAgent(
            catalogue=lambda: self._catalogue,
            make_watches=self._watches,
            store=store,
            is_leased=desk.is_leased,
            clock=clock,
            on_alive=lambda _status: None,
        )
        await store.open()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.path))
            listener.listen()
            listener.settimeout(0)
            tasks = [
                asyncio.create_task(agent.run(self._documents())),
                asyncio.create_task(HealthVerbs(agent, store, desk, clock).serve(listener)),
            ]
            while len(agent.serving()) < len(self._catalogue):
                await asyncio.sleep(0)
            self._ready.set()
            await self._end.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await store.close()

    async def _watches(
        self, names: Sequence[str]
    ) -> Mapping[str, tuple[FakeSpeedWatch, FakeQualityWatch]]:
        self.speeds |= {name: FakeSpeedWatch(name) for name in names}
        return {name: (self.speeds[name], FakeQualityWatch()) for name in names}

    async def _documents(self) -> AsyncIterator[StatusDocument | None]:
        rows = [ProfileRow(name=name, state="serving") for name in self._catalogue]
        yield StatusDocument(profiles=rows)
        await asyncio.Event().wait()


@contextmanager
def health_thread(path: Path, database: Path, catalogue: Catalogue) -> Iterator[HealthThread]:
    """Answer on the socket `path` meanwhile."""
    thread = HealthThread(path, database, catalogue)
    thread.begin()
    try:
        yield thread
    finally:
        thread.end()
