"""One operation from preflight to its end, on a box in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from appliance.model.memory import GpuMemory, GroupMemory, Holder
from appliance.model.observed import ActiveState, Observed, ObservedUnit
from appliance.model.operations import (
    FOREVER,
    Cause,
    Finished,
    Goal,
    HoldUntil,
    Kind,
    Operation,
    Outcome,
    Phase,
    PhaseState,
)
from appliance.model.profile import Catalogue, Need
from appliance.model.words import Mark
from appliance.supervisor.operation_runner import Transaction
from appliance.switch.actions import BeginRollback, Finish, Start, Steps, Stop, Wait
from appliance.switch.goals import Writes, goal_of
from appliance.switch.next_action import CANCELLED, next_action, reverse_operation
from appliance.switch.preflight import findings, refusal
from appliance.switch.preflight_facts import BoxFacts, Presence, ProfileFacts
from appliance.wire.control_events import EndedEvent, PhaseEvent
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.profiles import applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.waiting import settle, until

BOX = catalogue(
    applied("aeon", "gpu-all", port=8023),
    applied("genesis", "gpu-all", port=8022),
    applied("left", "gpu-0", port=8030),
    applied("right", "gpu-1", port=8031),
    applied("embedder", port=8040),
)

CRASHED = ObservedUnit(
    active=ActiveState.ACTIVATING, sub="auto-restart", result="exit-code", exit_status=1
)
STARTING = ObservedUnit(active=ActiveState.ACTIVATING, sub="start", main_pid=7, has_job=True)
STOPPING = ObservedUnit(active=ActiveState.DEACTIVATING, sub="stop-sigterm", has_job=True)


def transaction(
    fakes: FakePorts,
    kind: Kind,
    *names: str,
    rollback: bool = True,
    drain_s: float | None = None,
    hold_until: float | str | None = None,
    box: Catalogue = BOX,
) -> Transaction:
    goal = goal_of(
        kind,
        names,
        catalogue=box,
        observed=fakes.systemd.observed(box),
        committed=fakes.commitment.names,
        hold_until=hold_until,
    )
    operation = Operation(
        id=1,
        kind=kind,
        target=names,
        goal=goal,
        boot_id="boot-1",
        requested_by="test",
        began_unix_s=fakes.systemd.now_s,
        rollback=rollback,
        drain_s=drain_s,
    )
    fakes.store.rows[1] = operation
    return fakes.transaction(operation, box)


async def run(running: Transaction) -> tuple[Outcome, EndedEvent, list[PhaseEvent]]:
    finished = await running.run()
    events = [event async for event in running.feed.follow()]
    ended = events[-1]
    assert isinstance(ended, EndedEvent)
    return finished.outcome, ended, [e for e in events if isinstance(e, PhaseEvent)]


def serving(fakes: FakePorts) -> tuple[str, ...]:
    return fakes.systemd.observed(BOX).serving()


async def test_switch_ends_with_the_target_serving_and_committed() -> None:
    """A switch stops what is in the way, starts the target and commits it."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    outcome, ended, phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert (outcome, ended.exit) == (Outcome.DONE, 0)
    assert serving(fakes) == ("genesis",)
    assert fakes.commitment.names == ("genesis",)
    done = [e.phase for e in phases if e.state is PhaseState.DONE]
    assert done == [phase for phase in Phase if phase is not Phase.RUN]
    assert fakes.gateway.calls == ["hold aeon genesis", "drain aeon 30", "release genesis"]


@pytest.mark.parametrize("is_cold", [False, True])
async def test_an_engine_is_asked_once_for_its_warm_up(is_cold: bool) -> None:  # noqa: FBT001
    """A request that an engine did not answer may be what ended it: it is not sent again."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.backend.cold = {"genesis"} if is_cold else set()
    outcome, _ended, _phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is (Outcome.ROLLED_BACK if is_cold else Outcome.DONE)
    assert fakes.backend.asked == (["genesis", "aeon"] if is_cold else ["genesis"])


async def test_a_switch_looks_no_more_than_jobs_and_changes_need() -> None:
    """Each look is a question to systemd while it starts the model, each row a write."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    _outcome, _ended, phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    begun = [e for e in phases if e.state is PhaseState.STARTED]
    assert fakes.store.updates == len(begun) - 1, "the row begins in its first phase"
    jobs, changes = 2, 4  # the engine ends; the next gate admits, its engine loads, and serves
    assert fakes.units.looks == 1 + jobs + changes


async def told(running: Transaction) -> dict[str, tuple[str, str]]:
    """Return the end of each phase."""
    _outcome, _ended, phases = await run(running)
    return {e.phase: (e.state, e.text) for e in phases if e.state is not PhaseState.STARTED}


async def test_phases_tell_what_becomes_of_requests() -> None:
    """Phases tell how many requests wait, finished, and go on."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    phases = await told(transaction(fakes, Kind.SWITCH, "genesis"))
    assert phases[Phase.HOLD] == (PhaseState.DONE, "3 requests wait")
    assert phases[Phase.DRAIN] == (PhaseState.DONE, "2 finished")
    assert phases[Phase.COMMIT] == (PhaseState.DONE, "3 requests go on")


async def test_a_switch_needs_no_gateway() -> None:
    """Without one the two phases are skipped, and say why."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.gateway.away = True
    phases = await told(transaction(fakes, Kind.SWITCH, "genesis"))
    skipped = (PhaseState.SKIPPED, "no gateway")
    assert (phases[Phase.HOLD], phases[Phase.DRAIN]) == (skipped, skipped)
    assert phases[Phase.COMMIT] == (PhaseState.DONE, "")
    assert serving(fakes) == ("genesis",)


async def test_requests_are_released_to_what_serves_after_a_roll_back() -> None:
    """Requests that were held for the new model are answered by the old one."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.backend.cold.add("genesis")
    await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert fakes.gateway.calls == ["hold aeon genesis", "drain aeon 30", "release aeon"]
    assert fakes.gateway.state.held == frozenset()


async def test_a_cancel_ends_the_drain() -> None:
    """A cancel ends the drain without a cut request, and the old model goes on serving."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.gateway.drains.clear()
    running = transaction(fakes, Kind.SWITCH, "genesis")
    living = asyncio.create_task(run(running))
    await until(lambda: running.operation.phase is Phase.DRAIN)
    assert running.cancel(by="ana")
    outcome, _ended, _phases = await living
    assert outcome is Outcome.ROLLED_BACK
    assert fakes.gateway.calls[-1] == "release aeon"
    assert fakes.units.starts == []


async def draining(fakes: FakePorts) -> tuple[Transaction, asyncio.Task[Finished]]:
    """A switch from aeon to genesis whose drain waits for ``fakes.gateway.drains``."""
    fakes.serve("aeon")
    fakes.gateway.drains.clear()
    running = transaction(fakes, Kind.SWITCH, "genesis")
    living = asyncio.create_task(running.run())
    await until(lambda: running.operation.phase is Phase.DRAIN)
    return running, living


async def test_one_look_serves_until_the_first_stop() -> None:
    """Checks and requests change no unit: nothing is looked at again because of them."""
    fakes = FakePorts(BOX, "aeon")
    _running, living = await draining(fakes)
    assert fakes.units.looks == 1
    fakes.gateway.drains.set()
    assert (await living).outcome is Outcome.DONE


@pytest.mark.parametrize("signalled", [True, False])
async def test_a_rival_that_comes_during_a_drain_is_seen(signalled: bool) -> None:  # noqa: FBT001
    """A change makes the last look worthless, and so does a second without a signal: no stop is asked for."""
    fakes = FakePorts(BOX, "aeon")
    _running, living = await draining(fakes)
    fakes.systemd.start("left")
    if signalled:
        fakes.units.version += 1
    else:
        fakes.systemd.now_s += 1.0
    fakes.gateway.drains.set()
    finished = await living
    assert finished.outcome is Outcome.SUPERSEDED
    assert finished.operation.phase is Phase.DRAIN


async def test_the_release_tells_what_it_waited_for() -> None:
    """The gate's text on this start, and on no other, ends the phase."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.host.admitted |= {"genesis": "12.1 → 0.4 GiB in 2.3 s", "aeon": "of another day"}
    _outcome, _ended, phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    told = [e.text for e in phases if (e.phase, e.state) == (Phase.RELEASE, PhaseState.DONE)]
    assert told == ["12.1 → 0.4 GiB in 2.3 s"]


async def test_switch_evicts_exactly_those_in_the_way() -> None:
    """A switch to one GPU leaves the other GPU's profile and the shared one alone."""
    fakes = FakePorts(BOX, "left", "right", "embedder")
    fakes.serve("right", "embedder", "genesis")
    fakes.serve("right", "embedder", "left")
    await run(transaction(fakes, Kind.SWITCH, "left"))
    assert serving(fakes) == ("embedder", "left", "right")
    outcome, _ended, _phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.DONE
    assert serving(fakes) == ("embedder", "genesis")
    assert fakes.commitment.names == ("embedder", "genesis")


async def test_failed_switch_restores_the_whole_evicted_set() -> None:
    """When a switch fails, both profiles that it stopped serve again and stay committed."""
    fakes = FakePorts(BOX, "left", "right")
    fakes.serve("left", "right")
    fakes.processes.behaviour["genesis"].start_result = "exit-code"
    outcome, ended, phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert (outcome, ended.exit) == (Outcome.ROLLED_BACK, 10)
    assert ended.message == (
        "genesis did not start: the engine exited with status 1 (loading: 1 s)"
    )
    assert ended.restored == ("left", "right")
    assert ended.log == ("last words of genesis",)
    assert serving(fakes) == ("left", "right")
    assert fakes.commitment.names == ("left", "right")
    assert [e.phase for e in phases if e.state is PhaseState.FAILED] == [Phase.LOAD]


@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        ("refusal", "9.8 GiB held by python3 (pid 4121, user ana)"),
        ("cold", "no answer within 120 s"),
        ("full", "cannot write /var/lib/appliance/active: No space left on device"),
    ],
)
async def test_every_late_failure_brings_the_previous_one_back(bend: str, reason: str) -> None:
    """A refusing gate, a mute engine and a full disk all end with the old model serving."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    match bend:
        case "refusal":
            fakes.processes.behaviour["genesis"].refusal = reason
        case "cold":
            fakes.backend.cold.add("genesis")
        case _:
            fakes.commitment.failing = True
    outcome, ended, _phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.ROLLED_BACK
    assert reason in ended.message
    assert serving(fakes) == ("aeon",)
    assert fakes.commitment.names == ("aeon",)


NO_ROOM = "cannot write /var/lib/appliance/active: No space left on device"


@pytest.mark.parametrize("kind", [Kind.SWITCH, Kind.HOLD])
async def test_a_full_disk_refuses_before_anything_is_stopped(kind: Kind) -> None:
    """Room for the commit is reserved by the preflight."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.commitment.full = True
    names, until = (("genesis",), None) if kind is Kind.SWITCH else ((), FOREVER)
    outcome, ended, _phases = await run(transaction(fakes, kind, *names, hold_until=until))
    assert (outcome, ended.exit, ended.message) == (Outcome.REFUSED, 1, NO_ROOM)
    assert (serving(fakes), fakes.units.starts) == (("aeon",), [])
    assert (fakes.commitment.names, fakes.commitment.until) == (("aeon",), None)


async def test_a_refused_operation_keeps_no_room() -> None:
    """Room is taken while the checks run, and given back when they refuse."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.host.profile_facts["genesis"] = ProfileFacts(model=Presence.MISSING)
    outcome, _ended, _phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.REFUSED
    assert fakes.commitment.reserved == Writes()


async def test_a_full_disk_is_no_matter_for_what_writes_nothing() -> None:
    """A switch back to what a boot serves needs no room."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("genesis")
    fakes.commitment.full = True
    outcome, _ended, _phases = await run(transaction(fakes, Kind.SWITCH, "aeon"))
    assert (outcome, serving(fakes)) == (Outcome.DONE, ("aeon",))


async def test_a_disk_that_fills_up_during_a_switch_does_not_matter() -> None:
    """The reserved room is there at the commit, and is given back after every operation."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    running = transaction(fakes, Kind.SWITCH, "genesis")
    living = asyncio.create_task(run(running))
    await until(lambda: running.operation.phase is Phase.LOAD)
    fakes.commitment.full = True
    outcome, _ended, _phases = await living
    assert (outcome, fakes.commitment.names) == (Outcome.DONE, ("genesis",))
    assert fakes.commitment.reserved == Writes()


@pytest.mark.parametrize("rollback", [True, False])
async def test_a_failed_commit_stops_nothing_that_served_before(rollback: bool) -> None:  # noqa: FBT001
    """A switch to what serves uncommitted leaves it serving, and is not asked again."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("genesis")
    fakes.commitment.failing = True
    switch = transaction(fakes, Kind.SWITCH, "genesis", rollback=rollback)
    outcome, ended, _phases = await run(switch)
    assert outcome is (Outcome.ROLLED_BACK if rollback else Outcome.FAILED)
    assert ended.exit == (10 if rollback else 1)
    assert (ended.message, ended.restored) == (NO_ROOM, ())
    assert (serving(fakes), fakes.units.starts) == (("genesis",), [])
    assert (fakes.backend.asked, fakes.commitment.names) == (["genesis"], ("aeon",))


async def test_a_failed_hold_brings_back_what_it_stopped() -> None:
    """A hold that cannot be written ends with everything serving that served."""
    fakes = FakePorts(BOX, "left", "right")
    fakes.serve("left", "right", "embedder")
    fakes.commitment.failing = True
    outcome, ended, _phases = await run(transaction(fakes, Kind.HOLD, hold_until=FOREVER))
    assert (outcome, ended.exit) == (Outcome.ROLLED_BACK, 10)
    assert ended.restored == serving(fakes) == ("embedder", "left", "right")
    assert not fakes.systemd.hold_active


async def test_a_failed_start_stops_only_what_it_started() -> None:
    """Of two profiles one served already: it goes on serving when the other one fails."""
    fakes = FakePorts(BOX)
    fakes.serve("left")
    fakes.processes.behaviour["right"].start_result = "exit-code"
    outcome, ended, _phases = await run(transaction(fakes, Kind.START, "left", "right"))
    assert (outcome, ended.restored) == (Outcome.ROLLED_BACK, ())
    assert serving(fakes) == ("left",)
    assert fakes.systemd.observed(BOX).unit("right").idle


def test_a_roll_back_waits_for_a_rival_that_still_stops() -> None:
    """Of two that followed one another when it began, the second starts when the first is gone."""
    operation = replace(
        transaction(FakePorts(BOX), Kind.SWITCH, "genesis").operation,
        goal=Goal(stop=("aeon", "left"), restore=("left",)),
        phase=Phase.STOP,
        cause=Cause.CANCELLED,
        reason=CANCELLED,
    )
    stopping = ObservedUnit(active=ActiveState.DEACTIVATING, sub="stop-sigterm", main_pid=7)
    steps = Steps(held=True, drained=True)

    def action(steps: Steps, aeon: ObservedUnit) -> object:
        seen = Observed(units={"aeon": aeon, "left": ObservedUnit()})
        return next_action(operation, steps, seen, BOX, {})

    assert action(steps, stopping) == Stop("aeon")
    stopped = replace(steps, stopped=frozenset({"aeon"}))
    assert action(stopped, stopping) == Wait(Phase.STOP, "aeon is stopping")
    assert action(stopped, ObservedUnit()) == Start("left")


def test_a_roll_back_does_not_evict_what_came_up_before_the_operation() -> None:
    """A switch to what somebody has just started goes back to what that evicts only once it is gone."""
    operation = replace(
        transaction(FakePorts(BOX), Kind.SWITCH, "left").operation,
        goal=Goal(stop=("aeon",), start=("left",), restore=("aeon",), kept=("left",)),
        phase=Phase.STOP,
        cause=Cause.CANCELLED,
        reason=CANCELLED,
    )
    steps = Steps(held=True, drained=True)
    loading = ObservedUnit(active=ActiveState.ACTIVATING, sub="start", main_pid=7, has_job=True)

    def action(left: ObservedUnit) -> object:
        seen = Observed(units={"aeon": ObservedUnit(), "left": left})
        return next_action(operation, steps, seen, BOX, {})

    stays = "left was started by hand meanwhile and stays"
    assert action(loading) == Finish(Outcome.SUPERSEDED, stays)
    assert action(ObservedUnit()) == Start("aeon")


async def test_a_failed_commit_is_undone_as_a_whole() -> None:
    """Names that were written before the hold could not be removed are written back."""
    fakes = FakePorts(BOX, "aeon")
    fakes.commitment.until = FOREVER
    fakes.systemd.hold_active = True
    fakes.commitment.failing_hold = True
    outcome, _ended, _phases = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.FAILED
    assert (fakes.commitment.names, fakes.commitment.until) == (("aeon",), FOREVER)
    assert fakes.systemd.hold_active


def test_what_the_operation_started_again_it_may_stop() -> None:
    """A profile that ran, ended by itself and was started anew is no longer kept."""
    fakes = FakePorts(BOX)
    fakes.serve("left")
    operation = transaction(fakes, Kind.START, "left").operation
    for started, kept in ((frozenset({"left"}), ()), (frozenset[str](), ("left",))):
        turned = reverse_operation(operation, Steps(started=started), Cause.FAILURE, "why")
        assert (turned.goal.kept, turned.rolling_back, turned.reason) == (kept, True, "why")


@pytest.mark.parametrize(
    ("unit", "phase", "told"),
    [
        (CRASHED, Phase.RELEASE, Phase.START),
        (replace(CRASHED, sub="failed", active=ActiveState.FAILED), Phase.RELEASE, Phase.START),
        (CRASHED, Phase.LOAD, None),
        (replace(CRASHED, exit_status=0), Phase.RELEASE, None),
        (replace(CRASHED, result="success", exit_status=0), Phase.RELEASE, Phase.START),
        (replace(CRASHED, result="protocol", exit_status=0), Phase.RELEASE, Phase.START),
        (ObservedUnit(result="exec-condition", exit_status=1), Phase.RELEASE, None),
        (ObservedUnit(exit_status=15), Phase.RELEASE, None),
    ],
)
def test_an_engine_that_ran_did_not_fail_in_the_gate(
    unit: ObservedUnit, phase: Phase, told: Phase | None
) -> None:
    """An engine that came and went between two looks failed in its start, not while waiting."""
    operation = replace(transaction(FakePorts(BOX), Kind.SWITCH, "genesis").operation, phase=phase)
    steps = Steps(checked=True, started=frozenset({"genesis"}))
    action = next_action(operation, steps, Observed(units={"genesis": unit}), BOX, {})
    assert isinstance(action, BeginRollback)
    assert action.phase is told


@pytest.mark.parametrize(
    ("unit", "present", "told"),
    [
        # The poller has ended with its engine, and its text with it.
        (STARTING, Phase.LOAD, Phase.LOAD),
        (STOPPING, Phase.LOAD, Phase.LOAD),
        (STOPPING, Phase.START, Phase.START),
        # A rival's stop, before the gate: no phase of this start has begun.
        (STOPPING, Phase.STOP, Phase.RELEASE),
        (STARTING, Phase.RELEASE, Phase.START),
        (replace(STARTING, loading=True), Phase.START, Phase.LOAD),
        # The start of a second profile, after the first one has loaded.
        (ObservedUnit(has_job=True), Phase.LOAD, Phase.RELEASE),
    ],
)
def test_a_start_that_ends_stays_in_its_phase(
    unit: ObservedUnit, present: Phase, told: Phase
) -> None:
    """A model whose load fails has not loaded: the phase is failed, and never done before."""
    operation = transaction(FakePorts(BOX), Kind.SWITCH, "genesis").operation
    steps = Steps(checked=True, held=True, drained=True, started=frozenset({"genesis"}))
    seen = Observed(units={"genesis": unit})
    action = next_action(replace(operation, phase=present), steps, seen, BOX, {})
    assert isinstance(action, Wait)
    assert action.phase is told


def test_a_cancel_before_anything_was_touched_refuses() -> None:
    """A switch that is cancelled during its preflight has nothing to bring back."""
    operation = transaction(FakePorts(BOX, "aeon"), Kind.SWITCH, "genesis").operation
    steps = Steps(checked=True, cancelled=True)
    action = next_action(operation, steps, Observed(units={}), BOX, {})
    assert action == Finish(Outcome.REFUSED, CANCELLED, Cause.CANCELLED)


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_repair_goes_back_only_when_cancelled(cancelled: bool) -> None:  # noqa: FBT001
    """A person who cancels a repair does not want the profile up; a failure alone stops nothing."""
    repair = transaction(FakePorts(BOX, "aeon"), Kind.REPAIR, "aeon").operation
    steps = Steps(checked=True, started=frozenset({"aeon"}), cancelled=cancelled)
    observed = Observed(units={"aeon": CRASHED})
    action = next_action(replace(repair, phase=Phase.LOAD), steps, observed, BOX, {})
    failed = "aeon did not start: the engine exited with status 1"
    expected = (
        BeginRollback(CANCELLED, Cause.CANCELLED)
        if cancelled
        else Finish(Outcome.FAILED, failed, Cause.FAILURE)
    )
    assert action == expected


@pytest.mark.parametrize(
    ("kind", "goal", "message"),
    [
        (Kind.STOP, Goal(stop=("aeon", "left")), "aeon, left stopped"),
        (Kind.STOP, Goal(), "nothing was running"),
        (
            Kind.HOLD,
            Goal(stop=("aeon",), hold_until=FOREVER),
            "holding: nothing is started until a switch or a start",
        ),
    ],
)
def test_the_end_says_what_is_down(kind: Kind, goal: Goal, message: str) -> None:
    """A stop names what it stopped, a hold how it ends."""
    operation = replace(transaction(FakePorts(BOX), kind).operation, goal=goal)
    action = next_action(operation, Steps(committed=True), Observed(units={}), BOX, {})
    assert action == Finish(Outcome.DONE, message)


HOLDING = "a hold was started by hand meanwhile and stays"
IDLE, QUEUED = ObservedUnit(), ObservedUnit(has_job=True)


@pytest.mark.parametrize(
    ("kind", "started", "rolling_back", "unit", "stays"),
    [
        (Kind.SWITCH, False, False, IDLE, False),  # a switch ends a hold that was there before
        (Kind.SWITCH, True, False, QUEUED, False),  # and its unit takes a moment to go
        (Kind.SWITCH, True, False, IDLE, True),
        (Kind.SWITCH, False, True, IDLE, True),
        (Kind.REPAIR, False, False, IDLE, True),
        (Kind.STOP, False, False, IDLE, False),
    ],
)
def test_a_hold_by_hand_is_not_ended(
    kind: Kind,
    started: bool,  # noqa: FBT001
    rolling_back: bool,  # noqa: FBT001
    unit: ObservedUnit,
    stays: bool,  # noqa: FBT001
) -> None:
    """A hold that somebody starts while an operation runs stays, and the operation ends."""
    operation = replace(
        transaction(FakePorts(BOX), kind, "genesis").operation,
        goal=Goal(start=() if kind is Kind.STOP else ("genesis",), restore=("aeon",)),
        phase=Phase.RELEASE,
        cause=Cause.FAILURE if rolling_back else None,
    )
    steps = Steps(checked=True, started=frozenset({"genesis"} if started else ()))
    observed = Observed(units={"genesis": unit, "aeon": IDLE}, hold_active=True)
    action = next_action(operation, steps, observed, BOX, {})
    assert (action == Finish(Outcome.SUPERSEDED, HOLDING)) == stays


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("genesis",), "genesis is serving on :8022"),
        (("left", "right"), "left (:8030) and right (:8031) are serving"),
    ],
)
async def test_the_end_says_where(names: tuple[str, ...], message: str) -> None:
    """The closing sentence names the port that clients want to know."""
    fakes = FakePorts(BOX)
    _outcome, ended, _ = await run(transaction(fakes, Kind.START, *names))
    assert ended.message == message


@pytest.mark.parametrize(
    ("beside", "sentence"),
    [
        ((), "aeon needs ≈9.0 GiB of RAM, the box has 8.0"),
        (("embedder",), "aeon and embedder need ≈10.0 GiB of RAM together, the box has 8.0"),
    ],
)
def test_want_of_memory_is_told_for_who_needs_it(beside: tuple[str, ...], sentence: str) -> None:
    """One profile that is too large is not blamed on several."""
    box = catalogue(
        replace(BOX["aeon"], need=Need(ram_bytes=9 << 30)),
        replace(BOX["embedder"], need=Need(ram_bytes=1 << 30)),
    )
    up = ObservedUnit(active=ActiveState.ACTIVE, main_pid=1)
    found = findings(
        Kind.SWITCH,
        Goal(start=("aeon",)),
        catalogue=box,
        observed=Observed(units={"aeon": ObservedUnit(), **dict.fromkeys(beside, up)}),
        marks={},
        facts={},
        box=BoxFacts(ram_total_bytes=8 << 30, devices=by_index(card(0))),
    )
    assert refusal(found) == sentence


async def test_no_rollback_leaves_nothing() -> None:
    """With rollback switched off a failed target is stopped and nothing is restored."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["genesis"].start_result = "exit-code"
    outcome, ended, _ = await run(transaction(fakes, Kind.SWITCH, "genesis", rollback=False))
    assert (outcome, ended.exit) == (Outcome.FAILED, 11)
    assert fakes.systemd.observed(BOX).busy() == ()


async def test_failed_rollback_says_both_reasons() -> None:
    """When the old model does not come back either, both failures are named."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.backend.cold.update({"genesis", "aeon"})
    outcome, ended, _ = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.FAILED
    assert ended.message.count("no answer") == 2
    assert "roll-back failed" in ended.message


@pytest.mark.parametrize(
    ("facts", "mark", "text"),
    [
        (ProfileFacts(model=Presence.MISSING), Mark.LIVE, "model file missing"),
        (ProfileFacts(engine=Presence.MISSING), Mark.LIVE, "engine not found"),
        (ProfileFacts(draft=Presence.MISSING), Mark.LIVE, "draft model missing"),
        (
            ProfileFacts(port_holder="ollama (pid 7, user ollama)"),
            Mark.LIVE,
            "port 8022 is in use by ollama (pid 7, user ollama)",
        ),
        (ProfileFacts(), Mark.RETIRED, "genesis is retired: appliance mark genesis standby"),
    ],
)
async def test_preflight_refuses_before_anything_is_stopped(
    facts: ProfileFacts, mark: Mark, text: str
) -> None:
    """A reason that is known beforehand stops a switch before it touches the old model."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.host.profile_facts["genesis"] = facts
    fakes.store.mark_of["genesis"] = mark
    outcome, ended, _ = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert (outcome, ended.exit) == (Outcome.REFUSED, 1)
    assert text in ended.message
    assert serving(fakes) == ("aeon",)
    assert fakes.units.starts == []


async def test_unknown_presence_does_not_refuse() -> None:
    """A model that this process may not look at is no reason to refuse."""
    fakes = FakePorts(BOX)
    fakes.host.profile_facts["genesis"] = ProfileFacts(model=Presence.UNKNOWN)
    outcome, _, _ = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.DONE


async def test_switch_to_what_serves_verifies_and_commits() -> None:
    """A switch to the serving profile asks it one question and commits it."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("genesis")
    outcome, _, _ = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.DONE
    assert fakes.backend.asked == ["genesis"]
    assert fakes.units.starts == []
    assert fakes.commitment.names == ("genesis",)


async def test_start_never_evicts() -> None:
    """`start` is refused while a rival runs, and names the command that would evict it."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    outcome, ended, _ = await run(transaction(fakes, Kind.START, "genesis"))
    assert outcome is Outcome.REFUSED
    assert ended.message == "aeon runs on gpu-all; start never evicts: appliance switch genesis"
    assert serving(fakes) == ("aeon",)


async def test_start_without_names_starts_the_committed_ones() -> None:
    """`start` brings the committed set up and ends a hold."""
    fakes = FakePorts(BOX, "left", "right")
    fakes.systemd.hold_active = True
    fakes.commitment.until = FOREVER
    outcome, _, _ = await run(transaction(fakes, Kind.START))
    assert outcome is Outcome.DONE
    assert serving(fakes) == ("left", "right")
    kept: tuple[object, bool] = (fakes.commitment.hold_until(), fakes.systemd.hold_active)
    assert kept == (None, False)


async def test_restart_comes_back_with_another_process() -> None:
    """`restart` stops a profile and starts the same one."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    before = fakes.systemd.units["aeon"].main_pid
    outcome, _, _ = await run(transaction(fakes, Kind.RESTART, "aeon"))
    assert outcome is Outcome.DONE
    assert fakes.systemd.units["aeon"].main_pid != before
    assert serving(fakes) == ("aeon",)


@pytest.mark.parametrize("kind", [Kind.SWITCH, Kind.START, Kind.RESTART])
async def test_a_crashed_profile_is_started_without_its_pause(kind: Kind) -> None:
    """A unit that systemd would restart later is started at once, not taken as failed."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.crash("aeon")
    began_s = fakes.systemd.now_s
    outcome, _, _ = await run(transaction(fakes, kind, "aeon"))
    assert outcome is Outcome.DONE
    assert serving(fakes) == ("aeon",)
    assert fakes.systemd.now_s - began_s <= fakes.processes.behaviour["aeon"].load_s


async def test_hold_stops_everything_and_is_kept() -> None:
    """`hold` leaves nothing running and says so on disk; the boot choice stays."""
    fakes = FakePorts(BOX, "left", "right")
    fakes.serve("left", "right", "embedder")
    outcome, _, _ = await run(transaction(fakes, Kind.HOLD, hold_until=5000.0))
    assert outcome is Outcome.DONE
    assert fakes.systemd.observed(BOX).busy() == ()
    assert fakes.systemd.hold_active
    assert fakes.commitment.until == 5000.0
    assert fakes.commitment.names == ("left", "right")


@pytest.mark.parametrize(
    ("until", "holds"), [(FOREVER, True), (99_000.0, True), (900.0, False), (None, False)]
)
async def test_failed_switch_during_a_hold_holds_again(
    until: HoldUntil,
    holds: bool,  # noqa: FBT001
) -> None:
    """A hold that a switch ended comes back when the switch fails, unless its time is over."""
    fakes = FakePorts(BOX, "aeon")
    fakes.systemd.hold_active = True
    fakes.commitment.until = until
    fakes.backend.cold.add("genesis")
    outcome, _, _ = await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert outcome is Outcome.FAILED
    assert fakes.systemd.hold_active is holds
    assert fakes.commitment.until == until


async def test_cancel_turns_a_switch_round() -> None:
    """A cancelled switch brings the previous model back."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    running = transaction(fakes, Kind.SWITCH, "genesis")
    task = asyncio.create_task(running.run())
    await until(lambda: running.operation.phase is Phase.LOAD)
    assert running.cancel(by="ana")
    finished = await task
    assert (finished.outcome, finished.message) == (Outcome.ROLLED_BACK, "cancelled by ana")
    assert serving(fakes) == ("aeon",)
    assert not running.cancel(by="ana")


async def test_rival_started_by_hand_is_adopted() -> None:
    """A model started by hand in mid-switch stays; the boot choice stays."""
    fakes = FakePorts(BOX, "left")
    fakes.serve("left")
    running = transaction(fakes, Kind.SWITCH, "genesis")
    task = asyncio.create_task(running.run())
    await until(lambda: running.operation.phase is Phase.LOAD)
    fakes.systemd.start("aeon")
    finished = await task
    assert finished.outcome is Outcome.SUPERSEDED
    while fakes.systemd.advance(fakes.systemd.now_s + 60):
        pass
    assert serving(fakes) == ("aeon",)
    assert fakes.commitment.names == ("left",)


@pytest.mark.parametrize("phase", list(Phase))
async def test_a_new_process_finishes_what_it_finds(phase: Phase) -> None:
    """An operation found in any phase is finished by a process that knows only its row."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    operation = transaction(fakes, Kind.SWITCH, "genesis").operation
    if phase not in {Phase.PREFLIGHT, Phase.HOLD, Phase.DRAIN}:
        fakes.systemd.stop("aeon")
    if phase in {Phase.LOAD, Phase.WARM_UP, Phase.COMMIT}:
        fakes.systemd.advance(2000.0)
        fakes.systemd.start("genesis")
    resumed = fakes.transaction(replace(operation, phase=phase), BOX)
    finished = await resumed.run()
    assert finished.outcome is Outcome.DONE
    assert serving(fakes) == ("genesis",)
    assert fakes.commitment.names == ("genesis",)


async def test_a_new_process_finishes_a_rollback() -> None:
    """A roll-back cut by the death of the supervisor ends with the old model serving."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("genesis")
    operation = replace(
        transaction(fakes, Kind.SWITCH, "genesis").operation,
        goal=Goal(stop=("aeon",), start=("genesis",), restore=("aeon",), commit=("genesis",)),
        cause=Cause.CANCELLED,
        reason="cancelled",
        phase=Phase.STOP,
    )
    finished = await fakes.transaction(operation, BOX).run()
    assert finished.outcome is Outcome.ROLLED_BACK
    assert serving(fakes) == ("aeon",)
    assert fakes.commitment.names == ("aeon",)


async def test_nothing_is_undone_during_a_shutdown() -> None:
    """Jobs cancelled by a shutdown start no roll-back: the row waits for the next boot."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    running = transaction(fakes, Kind.SWITCH, "genesis")
    task = asyncio.create_task(running.run())
    await until(lambda: running.operation.phase is Phase.LOAD)
    fakes.systemd.going_down = True
    fakes.systemd.stop("genesis")
    fakes.units.patience = fakes.units.idle_waits + 50
    await settle(500)
    assert not task.done()
    assert not running.operation.rolling_back
    assert fakes.systemd.observed(BOX).busy() == ()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_planner_never_starts_beside_a_rival() -> None:
    """No start of ours was ever asked for while a rival was not idle."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["aeon"].stop_s = 7.0
    await run(transaction(fakes, Kind.SWITCH, "left"))
    await run(transaction(fakes, Kind.SWITCH, "right"))
    await run(transaction(fakes, Kind.SWITCH, "genesis"))
    assert fakes.units.starts == ["left", "right", "genesis"]
    assert fakes.units.rivals_at_start == []


def holder(unit: str, held_bytes: int | None = 10 << 30, *, pid: int = 4121) -> Holder:
    return Holder(pid=pid, held_bytes=held_bytes, comm="python3", user="ana", unit=unit)


@pytest.mark.parametrize(
    ("need", "outcome"), [(8 << 30, Outcome.DONE), (30 << 30, Outcome.REFUSED)]
)
async def test_foreign_holder_refuses_only_what_does_not_fit_beside_it(
    need: int, outcome: Outcome
) -> None:
    """Memory that no switch will free is seen before the old model is stopped."""
    box = catalogue(
        applied("aeon", "gpu-all"), applied("genesis", "gpu-all", need=Need(vram_bytes=need))
    )
    fakes = FakePorts(box, "aeon")
    fakes.serve("aeon")
    fakes.host.gpu_memory = GpuMemory(
        devices=(
            card(
                0,
                [holder("session-3.scope"), holder("appliance-backend-aeon.service", pid=4122)],
                total_bytes=24 << 30,
            ),
            card(1, total_bytes=24 << 30),
        )
    )
    finished = await transaction(fakes, Kind.SWITCH, "genesis", box=box).run()
    assert finished.outcome is outcome
    if outcome is Outcome.REFUSED:
        text = "10.0 GiB held by python3 (pid 4121, session-3.scope, user ana): stop it or wait"
        assert finished.message == text
        assert fakes.systemd.observed(box).serving() == ("aeon",)


@pytest.mark.parametrize(
    ("holders", "problem"),
    [
        ({0: ["appliance-backend-left.service"], 1: []}, ""),
        ({0: [], 1: []}, "runs on the CPU, on no GPU"),
        (
            {0: [], 1: ["appliance-backend-left.service"]},
            "on GPU 1, which its profile does not list",
        ),
        ({0: []}, ""),
        ({}, ""),
    ],
)
async def test_model_must_sit_where_its_profile_says(
    holders: dict[int, list[str]], problem: str
) -> None:
    """A model that answers from the CPU or from another GPU is not committed."""
    fakes = FakePorts(BOX, "right")
    fakes.host.gpus_after_start = GpuMemory(
        devices=tuple(
            card(i, [holder(u, 1 << 20) for u in holders[i]] if i in holders else None)
            for i in (0, 1)
        )
    )
    finished = await transaction(fakes, Kind.SWITCH, "left").run()
    assert (finished.outcome is Outcome.DONE) == (not problem)
    assert problem in finished.message


@pytest.mark.parametrize(("locked", "outcome"), [(9, Outcome.DONE), (0, Outcome.FAILED)])
async def test_model_must_be_locked_where_its_profile_says(locked: int, outcome: Outcome) -> None:
    """A model that answers although its mlock was refused is not committed, also without GPUs."""
    mini = replace(applied("mini", "cpu"), locks_memory=True)
    box = catalogue(mini)
    fakes = FakePorts(box)
    fakes.host.profile_facts["mini"] = ProfileFacts(model_bytes=9 << 30)
    fakes.host.groups["mini"] = GroupMemory(
        resident_bytes=10 << 30, locked_bytes=locked << 30, pinned_bytes=0, pids=(1,)
    )
    finished = await transaction(fakes, Kind.SWITCH, "mini", box=box).run()
    assert finished.outcome is outcome
    assert ("is not locked (0.0 of 9.0 GiB)" in finished.message) == (not locked)
