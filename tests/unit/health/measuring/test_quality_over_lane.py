"""Canaries over real sockets: from a file through the gateway's lane to an engine, and to the store."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

from appliance.health.box_view import ProfileView
from appliance.health.clock import SystemHealthClock
from appliance.health.measuring.quality_monitor import STATE_KEY, QualityMonitor
from appliance.model.measurements import EventKind
from appliance.speed.canary_schedule import CanaryCadence
from appliance.speed.probe_schedule import ProbeConditions
from appliance.speed.quality_record import decode_quality
from appliance.system.canary_files import CanaryDirectory
from appliance.system.sqlite.measurement_store import MeasurementStore
from tests.fakes.engine_server import answering, sized
from tests.fakes.profiles import applied
from tests.unit.gateway.lane.lane_rig import lane_rigged
from tests.waiting import until

CITY = {"city": "São Paulo", "continent": "America", "coastal": False, "neighbours": 10}
ANSWER = {"choices": [{"message": {"content": json.dumps(CITY)}, "finish_reason": "stop"}]}
OWN = {
    "name": "ü-free",
    "request": {"messages": [{"role": "user", "content": "Größter Ort Brasiliens?"}]},
    "expect": {"contains": "Paulo", "json_schema": {"type": "object"}},
}


async def test_canaries_reach_the_store(tmp_path: Path) -> None:
    """Runs with their faults, and the record, are in the database; a bad line is an event."""
    own = json.dumps({**OWN, "name": "ort"}, ensure_ascii=False)
    (tmp_path / "genesis.jsonl").write_text(f"{own}\n{json.dumps(OWN)}\n", encoding="utf-8")
    profile = replace(applied("genesis"), served=("genesis",))
    view = ProfileView(
        name="genesis",
        applied=profile,
        serving=True,
        started_unix_s=1.0,
        main_pid=1,
        mark=None,
        held=False,
    )
    store = MeasurementStore(tmp_path / "measurements.sqlite")
    await store.open()
    async with lane_rigged(answering(sized(json.dumps(ANSWER).encode())), tmp_path) as rig:
        monitor = QualityMonitor(
            "genesis",
            lane=rig.lane,
            store=store,
            clock=SystemHealthClock(),
            canaries=CanaryDirectory(tmp_path),
            cadence=CanaryCadence(speed=10_000.0),
        )
        task = asyncio.create_task(monitor.run())
        monitor.observe(view, ProbeConditions(serving=True))
        await until(lambda: monitor.report().last_round_unix_s is not None)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        bodies = [json.loads(heard.body) for heard in rig.relay_rig.engine.heard]
    assert bodies[0]["model"] == "genesis"
    assert bodies[0]["response_format"]["type"] == "json_schema"
    assert [body["stream"] for body in bodies[:3]] == [False, True, False]
    assert bodies[2]["messages"][0]["content"] == "Größter Ort Brasiliens?"
    runs = {run.canary: run for run in await store.canary_runs("genesis", 0.0)}
    assert runs["schema"].passed
    assert runs["own:ort"].passed
    assert runs["schema-streamed"].detail == "the stream broke off"
    # On a slow machine there may be rounds enough for a loss as well.
    events = await store.events(profile="genesis")
    refused = [event.text for event in events if event.kind is EventKind.CANARIES_REFUSED]
    assert len(refused) == 1
    assert "line 2: name must be" in refused[0]
    record = decode_quality((await store.states())["genesis", STATE_KEY])
    assert set(record.groups) == {"schema", "own:ort"}
    await store.close()
