"""Watch of states: what the status documents of the supervisor add to the record."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from appliance.health.agent import HealthAgent, QualityWatch, SpeedWatch
from appliance.health.clock import SystemHealthClock
from appliance.health.watching.state_watch import StateWatch
from appliance.model.status import StatusDocument
from appliance.system.sqlite.state_store import StateStore
from tests.fakes.course_prober import FakeProbeStore
from tests.fakes.health_monitors import FakeCompactingStore, FakeQualityWatch, FakeSpeedWatch
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import as_status


def document(state: str, **more: object) -> StatusDocument:
    rows = [{"name": "a", "state": state, **more}, {"name": "b", "state": "stopped"}]
    return as_status({"profiles": rows})


async def test_each_document_adds_what_has_changed(tmp_path: Path) -> None:
    """An engine that does not answer has its state, a reported loss of speed is degraded; what a supervisor that is away did is not known."""
    events = FakeProbeStore()
    clock, store, speed = (
        SystemHealthClock(),
        StateStore(tmp_path / "states.sqlite"),
        FakeSpeedWatch("a"),
    )

    async def make(names: Sequence[str]) -> Mapping[str, tuple[SpeedWatch, QualityWatch]]:
        return {name: (speed, FakeQualityWatch()) for name in names}

    agent = HealthAgent(
        catalogue=lambda: {"a": applied("a")},
        make_watches=make,
        store=FakeCompactingStore(),
        is_leased=lambda: False,
        clock=clock,
        on_alive=lambda _text: None,
    )
    ended = asyncio.Event()
    unresponsive: set[str] = set()

    async def documents() -> AsyncIterator[StatusDocument | None]:
        yield document("loading")
        yield document("serving")
        unresponsive.add("a")
        yield document("serving")
        unresponsive.clear()
        yield None
        yield document("serving")
        speed.last_probe_unix_s, speed.phase = 1.0, "regressed"
        yield document("serving")
        yield document("restarting")
        ended.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(
        agent.run(
            StateWatch(
                agent, store, events, clock, unresponsive=lambda: tuple(unresponsive)
            ).watched(documents())
        )
    )
    try:
        await asyncio.wait_for(ended.wait(), 20)
        changes, until = await store.changes()
        assert [one.state for one in changes if one.profile == "a"] == [
            "loading",
            "serving",
            "unresponsive",
            "serving",
            "degraded",
            "restarting",
        ]
        assert [one.state for one in changes if one.profile == "b"] == ["stopped"]
        assert until is not None
        assert [event.kind for event in events.events] == ["engine-serves", "engine-ended"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()
