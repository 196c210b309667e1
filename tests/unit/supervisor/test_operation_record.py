"""Events of one operation, for those that follow it from its beginning and for those that come late."""

from contextlib import aclosing

from appliance.model.operations import Goal, Kind, Operation, Phase, PhaseState
from appliance.supervisor.operation_record import OperationRecord
from appliance.wire.control_events import OperationChange, PhaseEvent
from tests.fakes.supervisor_ports import FakePorts


async def first_events(record: OperationRecord, count: int) -> list[OperationChange]:
    """Return the events that a follower is sent at once."""
    async with aclosing(record.feed.follow()) as events:  # type: ignore[type-var]  # a generator
        return [await anext(events) for _ in range(count)]


def changed(phase: Phase, state: PhaseState, text: str, ms: float) -> PhaseEvent:
    return PhaseEvent(phase=phase, state=state, text=text, ms=ms, rolling_back=False)


async def test_who_joins_late_is_told_how_long_the_phase_has_lasted() -> None:
    """A second operator sees 12 s of loading, with what is loaded, not a load that begins now."""
    fakes = FakePorts({})
    operation = Operation(
        id=1,
        kind=Kind.SWITCH,
        target=("genesis",),
        goal=Goal(start=("genesis",)),
        boot_id="boot-1",
        requested_by="test",
        began_unix_s=0.0,
    )
    record = OperationRecord(operation, store=fakes.store, clock=fakes.clock)
    record.enter(Phase.START, "starting the engine")
    fakes.systemd.now_s += 0.5
    record.enter(Phase.LOAD, "loading")
    fakes.systemd.now_s += 12.0
    record.tell("loading, 9 GiB resident")
    started = changed(Phase.START, PhaseState.STARTED, "starting the engine", 0.0)
    done = changed(Phase.START, PhaseState.DONE, "starting the engine", 500.0)
    present = changed(Phase.LOAD, PhaseState.STARTED, "loading, 9 GiB resident", 12_000.0)
    assert await first_events(record, 3) == [started, done, present]
    fakes.systemd.now_s += 1.0
    record.end_phase()
    over = changed(Phase.LOAD, PhaseState.DONE, "loading, 9 GiB resident", 13_000.0)
    begun = changed(Phase.LOAD, PhaseState.STARTED, "loading", 0.0)
    assert await first_events(record, 4) == [started, done, begun, over]
