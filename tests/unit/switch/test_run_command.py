"""A command in place of models: planned, preflighted, lived through, in virtual time."""

import asyncio
from dataclasses import replace

import pytest

from appliance.model.claims import Claim, claim_on, gpu_indexes
from appliance.model.memory import GpuState, Holder
from appliance.model.observed import ActiveState, Observed, ObservedUnit, RunReport
from appliance.model.operations import (
    FOREVER,
    Cause,
    Goal,
    Kind,
    Operation,
    Outcome,
    Phase,
    PhaseState,
    RunCaller,
)
from appliance.status.summary import summary
from appliance.supervisor.operation_runner import Transaction
from appliance.switch.actions import (
    Action,
    BeginRestore,
    BeginRollback,
    Finish,
    HoldRequests,
    RunPreflight,
    StartRun,
    Steps,
    Stop,
    StopRun,
    Wait,
)
from appliance.switch.goals import goal_of
from appliance.switch.next_action import CANCELLED, next_action
from appliance.switch.preflight import command_findings
from appliance.switch.preflight_facts import BoxFacts, Level
from appliance.switch.repair import to_repair
from appliance.wire.control_events import EndedEvent, PhaseEvent
from tests.fakes.gpu_readings import by_index, card
from tests.fakes.profiles import applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.waiting import until

BOX = catalogue(
    applied("aeon", "gpu-all", port=8023),
    applied("genesis", "gpu-all", port=8022),
    applied("left", "gpu-0", port=8030),
    applied("right", "gpu-1", port=8031),
    applied("small", "cpu", port=8050),
    applied("embedder", port=8040),
)
UP = ObservedUnit(active=ActiveState.ACTIVE, main_pid=7)
WAITS = ObservedUnit(active=ActiveState.ACTIVATING, has_job=True, status_text="sh: waiting")
RUNS = ObservedUnit(active=ActiveState.ACTIVE, main_pid=9, status_text="sh of user ana")
ENDS = replace(RUNS, active=ActiveState.DEACTIVATING)
IDLE = ObservedUnit()
KILLED = ObservedUnit(active=ActiveState.FAILED, result="signal", exit_status=9)
LEFT_OVER = ObservedUnit(active=ActiveState.FAILED, result="timeout")
DONE = RunReport(ran=True, text="with status 0 after 12 min")
REFUSED = RunReport(ran=False, text="gpu-all is held by python3")
OVER = "the command ended with status 0 after 12 min"


def observed(run: ObservedUnit = IDLE, *up: str) -> Observed:
    return Observed(units={name: UP if name in up else IDLE for name in BOX}, run=run)


def operation(
    *, claim: Claim | None = None, stop: tuple[str, ...] = ("genesis",), **changed: object
) -> Operation:
    devices = tuple(sorted((claim or claim_on("all")).devices))
    plain = Operation(
        id=1,
        kind=Kind.RUN,
        target=("sh",),
        goal=Goal(stop=stop, restore=stop, claim=devices),
        boot_id="boot-1",
        requested_by="test",
        began_unix_s=0.0,
    )
    return replace(plain, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gpus", "evicted"),
    [
        ("all", ("left", "right")),
        ((0,), ("left",)),
        ((), ("small",)),
    ],
)
def test_exactly_what_is_in_the_way_makes_room(gpus: object, evicted: tuple[str, ...]) -> None:
    """A command stops what its claim meets, and the same comes back; shared ones stay."""
    claim = claim_on(gpus)  # type: ignore[arg-type]
    goal = goal_of(
        Kind.RUN,
        (),
        catalogue=BOX,
        observed=observed(IDLE, "left", "right", "small", "embedder"),
        committed=("left",),
        claim=claim,
    )
    assert goal == Goal(stop=evicted, restore=evicted, claim=tuple(sorted(claim.devices)))


@pytest.mark.parametrize(("gpus", "indexes"), [("all", None), ((1, 0), {0, 1}), ((), set())])
def test_indexes_of_a_claim(gpus: object, indexes: set[int] | None) -> None:
    """A claim on GPUs has their indexes; a claim on all of them needs no number."""
    assert gpu_indexes(claim_on(gpus)) == indexes  # type: ignore[arg-type]


FORWARD = Steps(checked=True, held=True, drained=True, stopped=frozenset({"genesis"}))
BEGUN = replace(FORWARD, run_started=True)
BACK = Steps(held=True, drained=True)


@pytest.mark.parametrize(
    ("phase", "steps", "seen", "report", "action"),
    [
        (Phase.PREFLIGHT, Steps(), observed(), None, RunPreflight()),
        (Phase.PREFLIGHT, Steps(checked=True), observed(IDLE, "genesis"), None, HoldRequests()),
        (Phase.DRAIN, replace(FORWARD, stopped=frozenset()), observed(IDLE, "genesis"), None, Stop("genesis")),
        (Phase.STOP, FORWARD, observed(), None, StartRun()),
        # Killed after it was to be started, and before it was: begun again.
        (Phase.RELEASE, FORWARD, observed(), None, StartRun()),
        (Phase.RELEASE, BEGUN, observed(WAITS), None, Wait(Phase.RELEASE, "sh: waiting")),
        (Phase.RELEASE, BEGUN, observed(replace(WAITS, status_text="")), None, Wait(Phase.RELEASE, "sh: waiting for the claim")),
        (Phase.RELEASE, BEGUN, observed(RUNS), None, Wait(Phase.RUN, "sh of user ana")),
        (Phase.RELEASE, BEGUN, observed(replace(RUNS, status_text="")), None, Wait(Phase.RUN, "sh")),
        (Phase.RUN, BEGUN, observed(ENDS), None, Wait(Phase.RUN, "sh of user ana")),
        # Who is started by hand now meets the leases; nothing of ours stops it.
        (Phase.RUN, BEGUN, observed(RUNS, "genesis", "aeon"), None, Wait(Phase.RUN, "sh of user ana")),
        (Phase.RUN, FORWARD, observed(), DONE, BeginRestore(OVER)),
        (Phase.RELEASE, BEGUN, observed(), DONE, BeginRestore(OVER)),
        (Phase.RUN, BEGUN, observed(LEFT_OVER), DONE, BeginRestore(OVER)),
        (Phase.RELEASE, BEGUN, observed(), REFUSED, BeginRollback(REFUSED.text)),
        (Phase.RUN, BEGUN, observed(KILLED), DONE, BeginRollback("the launcher of the command was killed by signal 9")),
        (Phase.RUN, BEGUN, observed(), None, BeginRollback("the launcher of the command left no report of how it ended")),
        (Phase.RUN, BEGUN, observed(), replace(DONE, operation=1), BeginRestore(OVER)),
        # What another operation's command did is no news of this one.
        (Phase.RUN, BEGUN, observed(), replace(DONE, operation=2), BeginRollback("the launcher of the command left no report of how it ended")),
        (Phase.RUN, replace(BEGUN, cancelled=True), observed(RUNS), None, BeginRollback(CANCELLED, Cause.CANCELLED)),
        (Phase.STOP, FORWARD, observed(IDLE, "aeon"), None, Finish(Outcome.SUPERSEDED, "aeon was started by hand meanwhile and stays")),
        (Phase.PREFLIGHT, Steps(checked=True, failure="no GPU"), observed(), None, Finish(Outcome.REFUSED, "no GPU", Cause.FAILURE)),
    ],
)  # fmt: skip
def test_the_next_step(
    phase: Phase, steps: Steps, seen: Observed, report: RunReport | None, action: Action
) -> None:
    """The state of the command's unit decides the next step, up to the command and through it."""
    assert next_action(operation(phase=phase), steps, seen, BOX, {}, report=report) == action


@pytest.mark.parametrize(
    ("cause", "steps", "seen", "action"),
    [
        (Cause.CANCELLED, BACK, observed(RUNS), StopRun()),
        (Cause.CANCELLED, replace(BACK, run_stopped=True), observed(ENDS), Wait(Phase.STOP, "the command is ending")),
        (Cause.COMMAND_ENDED, replace(BACK, committed=True), observed(), Finish(Outcome.DONE, f"{OVER}; genesis is serving again on :8022")),
        (Cause.CANCELLED, replace(BACK, committed=True), observed(), Finish(Outcome.ROLLED_BACK, "cancelled", Cause.CANCELLED)),
        (Cause.COMMAND_ENDED, replace(BACK, failure="no answer"), observed(), Finish(Outcome.FAILED, f"{OVER}; going back failed: no answer", Cause.FAILURE)),
        (Cause.CANCELLED, replace(BACK, failure="no answer"), observed(), Finish(Outcome.FAILED, "cancelled; roll-back failed: no answer", Cause.FAILURE)),
        (Cause.COMMAND_ENDED, BACK, observed(IDLE, "aeon"), Finish(Outcome.SUPERSEDED, f"{OVER}; aeon was started by hand meanwhile and stays")),
    ],
)  # fmt: skip
def test_the_way_back(cause: Cause, steps: Steps, seen: Observed, action: Action) -> None:
    """No profile comes back before the command is gone; the command's end is no failure."""
    reason = OVER if cause is Cause.COMMAND_ENDED else CANCELLED
    going_back = operation(phase=Phase.STOP, cause=cause, reason=reason)
    assert next_action(going_back, steps, seen, BOX, {}) == action


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"stop": ()}, OVER), ({"rollback": False}, OVER)],
)
def test_nothing_comes_back(changed: dict[str, object], message: str) -> None:
    """Where nothing served before, or nothing shall come back, the end is told alone."""
    ended = operation(phase=Phase.STOP, cause=Cause.COMMAND_ENDED, reason=OVER, **changed)  # type: ignore[arg-type]
    action = next_action(ended, replace(BACK, committed=True), observed(), BOX, {})
    assert action == Finish(Outcome.DONE, message)


def holder(unit: str, held: int | None, comm: str = "python3") -> Holder:
    return Holder(pid=4121, held_bytes=held, comm=comm, user="ana", unit=unit)


CARDS = BoxFacts(ram_total_bytes=1, devices=by_index(card(0), card(1)))
BUSY = replace(
    CARDS,
    devices=by_index(
        card(0, [holder("session-1.scope", 2 << 30), holder("appliance-backend-left.service", 1)]),
        card(1, [holder("", None, "")]),
    ),
)


@pytest.mark.parametrize(
    ("gpus", "run", "box", "expected"),
    [
        ("all", IDLE, CARDS, []),
        ((0, 1), IDLE, CARDS, []),
        ((), IDLE, BoxFacts(ram_total_bytes=1), []),
        ("all", IDLE, BUSY, [
            (Level.WARN, "2.0 GiB of GPU 0 stays with python3 (pid 4121, session-1.scope, user ana)"),
            (Level.WARN, "memory of GPU 1 stays with a process (pid 4121, user ana)"),
        ]),
        ((2,), IDLE, CARDS, [(Level.REFUSE, "there is no GPU 2: the box has 2")]),
        ((2,), IDLE, BoxFacts(ram_total_bytes=1), [
            (Level.REFUSE, "there is no GPU 2: the box has none"),
        ]),
        ("all", IDLE, BoxFacts(ram_total_bytes=1), [
            (Level.REFUSE, "the box has no GPU: --gpus none takes the CPU alone"),
        ]),
        ("all", IDLE, BoxFacts(ram_total_bytes=1, gpu_error="no driver"), [
            (Level.REFUSE, "no GPU can be read: no driver (--gpus none takes the CPU alone)"),
        ]),
        ("all", IDLE, BoxFacts(ram_total_bytes=1, gpu_state=GpuState.READER, gpu_error="it died"), [
            (
                Level.REFUSE,
                "it died; a new reading may succeed: try again (--gpus none takes the CPU alone)",
            ),
        ]),
        ((), replace(IDLE, loaded=False), CARDS, [
            (Level.REFUSE, "appliance-run.service is not installed: run install.sh again"),
        ]),
        ((), RUNS, CARDS, [
            (Level.REFUSE, "a command runs already: sudo systemctl stop appliance-run.service ends it"),
        ]),
    ],
)  # fmt: skip
def test_preflight(
    gpus: object, run: ObservedUnit, box: BoxFacts, expected: list[tuple[Level, str]]
) -> None:
    """A missing unit or GPU refuses; memory of others warns, since the caller may accept it."""
    goal = operation(claim=claim_on(gpus)).goal  # type: ignore[arg-type]
    found = command_findings(Kind.RUN, goal, observed(run), box)
    assert [(f.level, f.text) for f in found] == expected


def test_preflight_of_anything_else() -> None:
    """A switch has findings of its own."""
    assert command_findings(Kind.SWITCH, Goal(), observed(RUNS), CARDS) == ()


def test_nothing_is_repaired_while_a_command_runs() -> None:
    """A committed profile that crashed waits for the command's end."""
    seen = observed(RUNS)
    crashed = replace(IDLE, active=ActiveState.FAILED, result="start-limit-hit")
    seen = replace(seen, units={**seen.units, "genesis": crashed})
    arguments = {"catalogue": BOX, "refusals": {}, "attempts": {}, "now_unix_s": 0.0}
    assert to_repair(committed=["genesis"], observed=seen, **arguments) == ()  # type: ignore[arg-type]
    idle = replace(seen, run=IDLE)
    assert to_repair(committed=["genesis"], observed=idle, **arguments) == ("genesis",)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("running", "line"),
    [
        (None, "serving nothing; a command runs; after a boot genesis"),
        (operation(phase=Phase.RUN), "serving nothing; run sh: run; after a boot genesis"),
    ],
)
def test_one_line_about_it(running: Operation | None, line: str) -> None:
    """The supervisor's line for systemd tells of a command, also of one without an operation."""
    assert summary(observed(RUNS), ["genesis"], running) == line


# --- lived through ---------------------------------------------------------------------------


ANA = RunCaller(uid=1000, token="told to ana")  # noqa: S106 - of nothing


def transaction(fakes: FakePorts, *, gpus: object = "all") -> Transaction:
    seen = fakes.systemd.observed(BOX)
    claim = claim_on(gpus)  # type: ignore[arg-type]
    fakes.processes.command.claim = claim
    goal = goal_of(Kind.RUN, (), catalogue=BOX, observed=seen, committed=(), claim=claim)
    row = operation(began_unix_s=fakes.systemd.now_s, goal=goal)
    fakes.store.rows[1] = row
    return fakes.transaction(row, BOX, caller=ANA)


async def live(running: Transaction) -> tuple[EndedEvent, list[PhaseEvent]]:
    await running.run()
    events = [event async for event in running.feed.follow()]
    ended = events[-1]
    assert isinstance(ended, EndedEvent)
    return ended, [e for e in events if isinstance(e, PhaseEvent)]


async def test_models_make_room_and_come_back() -> None:
    """Both models of two GPUs go, the command runs to its end, both serve again."""
    fakes = FakePorts(BOX, "left", "right")
    fakes.serve("left", "right", "embedder")
    ended, phases = await live(transaction(fakes))
    assert (ended.outcome, ended.exit) == (Outcome.DONE, 0)
    assert ended.message == (
        "the command ended with status 0 after 20 s;"
        " left (:8030) and right (:8031) are serving again"
    )
    assert ended.serving == ("embedder", "left", "right")
    assert ended.restored == ("left", "right")
    done = [e for e in phases if e.state is PhaseState.DONE]
    forward = [e.phase for e in done if not e.rolling_back]
    assert forward == [*list(Phase)[: list(Phase).index(Phase.RUN) + 1]]
    assert not [e for e in phases if e.state is PhaseState.FAILED]
    assert ended.phases_ms["run"] >= 20_000


async def test_a_refused_command_costs_a_pause() -> None:
    """A launcher that may not begin tells why, and what served serves again."""
    fakes = FakePorts(BOX)
    fakes.serve("genesis")
    fakes.processes.command.problem = "gpu-all is held by python3"
    ended, phases = await live(transaction(fakes))
    assert (ended.outcome, ended.exit) == (Outcome.ROLLED_BACK, 10)
    assert ended.message == "gpu-all is held by python3"
    assert ended.serving == ("genesis",)
    assert [e.phase for e in phases if e.state is PhaseState.FAILED] == [Phase.RELEASE]


async def test_who_asked_is_admitted_before_the_unit_starts() -> None:
    """The launcher knows operation, user, token and claim from then until the operation's end."""
    fakes = FakePorts(BOX)
    fakes.serve("genesis")
    running = transaction(fakes, gpus=[0])
    task = asyncio.create_task(running.run())
    await until(lambda: not fakes.systemd.observed().run.idle)
    assert fakes.tickets.issued == (1, ANA, claim_on([0]))
    await task
    assert fakes.tickets.issued is None


async def test_a_ticket_that_cannot_be_written_stops_nothing() -> None:
    """Without it nobody's command could run: the models stay."""
    fakes = FakePorts(BOX)
    fakes.serve("genesis")
    fakes.tickets.full = True
    ended, _ = await live(transaction(fakes))
    assert (ended.outcome, ended.exit) == (Outcome.REFUSED, 1)
    assert ended.serving == ("genesis",)


@pytest.mark.parametrize(("serving", "exit_"), [(("genesis",), 11), ((), 1)])
async def test_what_does_not_come_back(serving: tuple[str, ...], exit_: int) -> None:
    """A failure that leaves less than before has a status of its own."""
    fakes = FakePorts(BOX)
    fakes.serve(*serving)
    fakes.processes.behaviour["genesis"].start_result = "exit-code"
    fakes.processes.command.fails_to_start = True
    ended, _ = await live(transaction(fakes))
    assert (ended.outcome, ended.exit) == (Outcome.FAILED, exit_)
    assert "the launcher of the command exited with status 203" in ended.message


async def test_cancel_ends_the_command() -> None:
    """A cancelled command is stopped, with everything in it, before anything comes back."""
    fakes = FakePorts(BOX)
    fakes.serve("genesis")
    running = transaction(fakes)
    task = asyncio.create_task(running.run())
    await until(lambda: running.operation.phase is Phase.RUN)
    assert running.cancel(by="ana")
    finished = await task
    assert (finished.outcome, finished.message) == (Outcome.ROLLED_BACK, f"{CANCELLED} by ana")
    assert fakes.systemd.observed().run.idle
    assert fakes.systemd.observed(BOX).serving() == ("genesis",)


async def test_a_killed_launcher_brings_the_model_back() -> None:
    """The old model serves again, whatever ends the launcher."""
    fakes = FakePorts(BOX)
    fakes.serve("genesis")
    running = transaction(fakes)
    task = asyncio.create_task(running.run())
    await until(lambda: running.operation.phase is Phase.RUN)
    fakes.processes.kill_command()
    fakes.units.version += 1
    finished = await task
    assert finished.outcome is Outcome.ROLLED_BACK
    assert finished.message == "the launcher of the command was killed by signal 9"
    assert fakes.systemd.observed(BOX).serving() == ("genesis",)


async def test_a_new_supervisor_goes_on_waiting() -> None:
    """A supervisor that finds a command running waits for it, and does not start another."""
    fakes = FakePorts(BOX)
    fakes.serve("genesis")
    first = transaction(fakes)
    task = asyncio.create_task(first.run())
    await until(lambda: first.operation.phase is Phase.RUN)
    task.cancel()
    second = fakes.transaction(fakes.store.rows[1], BOX)
    ended, phases = await live(second)
    assert ended.outcome is Outcome.DONE
    assert phases[0].phase is Phase.RUN
    assert ended.serving == ("genesis",)


async def test_a_hold_lasts_over_a_command() -> None:
    """A command may run during a hold, and the hold is there afterwards."""
    fakes = FakePorts(BOX, "genesis")
    fakes.systemd.start_hold()
    fakes.commitment.until = FOREVER
    ended, _ = await live(transaction(fakes, gpus=()))
    assert ended.message == "the command ended with status 0 after 20 s"
    assert fakes.systemd.hold_active
    assert fakes.commitment.until == FOREVER
