"""The supervisor's requests and tending, on a box in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from appliance.model.claims import claim_on
from appliance.model.errors import BusyError, PreconditionError, UnknownProfileError
from appliance.model.gateway import Standing
from appliance.model.memory_parts import MemoryParts
from appliance.model.operations import FOREVER, Kind, Operation, Outcome, Phase, PhaseState
from appliance.model.profile import Applied, Estimate
from appliance.model.words import Mark
from appliance.settings.tables import Settings, WatchSettings
from appliance.supervisor.access_policy import Requester
from appliance.supervisor.ownership import OperationRequest, Supervisor
from appliance.switch.goals import Writes, goal_of
from appliance.switch.preflight import refusal
from appliance.switch.preflight_facts import Presence, ProfileFacts
from appliance.wire.control_events import PhaseEvent
from tests.fakes.ports import FakeBackend
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.fakes.systemd import RUN
from tests.waiting import settle, until

BOX = catalogue(
    applied("aeon", "gpu-all"), applied("genesis", "gpu-all"), applied("embedder", port=9001)
)


@asynccontextmanager
async def supervising(
    fakes: FakePorts,
    profiles: FakeProfiles | None = None,
    *,
    settings: Settings | None = None,
) -> AsyncIterator[Supervisor]:
    """A running supervisor; ends with the block."""
    supervisor = fakes.supervisor(
        profiles or FakeProfiles(BOX), settings=settings or Settings(look_every_s=10.0)
    )
    task = asyncio.create_task(supervisor.run())
    await asyncio.sleep(0)
    try:
        yield supervisor
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            await task


async def test_nothing_begins_while_the_supervisor_ends() -> None:
    """An operation that an error cuts stays the running one: its row is the next process's to close."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    supervisor = fakes.supervisor(FakeProfiles(BOX))
    task = asyncio.create_task(supervisor.run())
    running = await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
    fakes.units.lost = True
    await asyncio.wait({task})
    assert task.exception() is not None
    current = supervisor.current()
    assert current is not None
    assert current.transaction is running.transaction


async def until_served(fakes: FakePorts, *names: str) -> None:
    """Wait until exactly these serve."""
    await until(lambda: fakes.systemd.observed(BOX).serving() == names)


async def test_same_target_joins_and_another_is_busy() -> None:
    """Two operators: the same switch is one operation, another one is told what runs."""
    fakes = FakePorts(BOX, "aeon")
    async with supervising(fakes) as supervisor:
        first = await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        second = await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        assert second.accepted.joined
        assert second.transaction is first.transaction
        with pytest.raises(
            BusyError, match=r"switch genesis by supervisor is running \(preflight, 0 s\)"
        ):
            await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("aeon",)))
        await until_served(fakes, "genesis")


async def test_clients_are_told_that_a_start_has_failed() -> None:
    """A roll-back stops what failed; it has failed for clients all the same, until it is started again."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.backend.cold.add("genesis")
    async with supervising(fakes) as supervisor:
        await switch_to_the_end(supervisor, "genesis")
        assert fakes.gateway.state.failed == {"genesis"}
        assert fakes.systemd.observed(BOX).serving() == ("aeon",)
        fakes.backend.cold.clear()
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        await until_served(fakes, "genesis")
        await until(lambda: not fakes.gateway.states[-1].failed)


async def test_requests_that_waited_for_a_failed_start_are_told_so() -> None:
    """No state from the roll-back on forgets the failed start, an earlier one or a retired profile."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.backend.cold |= {"genesis", "embedder"}
    async with supervising(fakes) as supervisor:
        for failed in ({"embedder"}, {"embedder", "genesis"}):
            await switch_to_the_end(supervisor, max(failed))
            assert fakes.gateway.state.failed == failed
            await supervisor.mark("embedder", Mark.RETIRED, by="ana")
            await settle()
    states = fakes.gateway.states
    first = next(n for n, state in enumerate(states) if "genesis" in state.failed)
    assert any(state.held for state in states[first:])
    assert all(state.failed == {"embedder", "genesis"} for state in states[first:])
    assert all(state.retired == {"embedder"} for state in states[first:])


async def switch_to_the_end(supervisor: Supervisor, name: str) -> None:
    """Switch, and wait until the operation has told its end."""
    running = await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=(name,)))
    async with aclosing(running.transaction.feed.follow()) as events:  # type: ignore[type-var]
        async for _ in events:
            pass


HALVES = catalogue(
    applied("left", "gpu-0"),
    applied("right", "gpu-1", port=9001),
    applied("wide", "gpu-all", port=9002),
)


@pytest.mark.parametrize("refusal", ["", "held by ana"])
async def test_a_switch_to_a_set_is_one_transaction(refusal: str) -> None:
    """Both serve and are committed together; where one cannot, what served before comes back."""
    fakes = FakePorts(HALVES, "wide")
    fakes.serve("wide")
    if refusal:
        fakes.processes.behaviour["right"].refusal = refusal
    async with supervising(fakes, FakeProfiles(HALVES)) as supervisor:
        asked = OperationRequest(kind=Kind.SWITCH, names=("left", "right"))
        running = await supervisor.submit(asked)
        reversed_ = replace(asked, names=("right", "left"))
        assert (await supervisor.submit(reversed_)).transaction is running.transaction
        await until(lambda: fakes.store.ended)
        (ended,) = fakes.store.ended
        assert ended.operation.target == ("left", "right")
        assert ended.outcome is (Outcome.ROLLED_BACK if refusal else Outcome.DONE)
        expected = ("wide",) if refusal else ("left", "right")
        assert fakes.systemd.observed(HALVES).serving() == expected
        assert (await supervisor.state()).committed == expected


async def test_profiles_that_conflict_are_no_set() -> None:
    """A switch to two profiles that can never run together stops none."""
    fakes = FakePorts(HALVES, "right")
    fakes.serve("right")
    async with supervising(fakes, FakeProfiles(HALVES)) as supervisor:
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("left", "wide")))
        await until(lambda: fakes.store.ended)
        assert "left and wide can never run together" in fakes.store.ended[0].message
        assert fakes.systemd.observed(HALVES).serving() == ("right",)


async def test_a_slow_start_tells_the_engines_last_log_line() -> None:
    """The line comes with the progress of a phase that takes long, and with no quick one."""
    fakes = FakePorts(BOX)
    fakes.processes.behaviour["genesis"].load_s = 20.0
    async with supervising(fakes) as supervisor:
        running = await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        async with aclosing(running.transaction.feed.follow()) as events:  # type: ignore[type-var]
            phases = [event async for event in events if isinstance(event, PhaseEvent)]
        await until_served(fakes, "genesis")
    told = {(event.phase, event.state, event.log) for event in phases if event.log}
    assert told == {(Phase.LOAD, PhaseState.PROGRESS, "last words of genesis")}
    first = next(event for event in phases if event.log)
    assert 3_000 <= first.ms < 6_000


async def test_unknown_profile_is_an_error() -> None:
    """A name that is not applied is refused before anything is stored."""
    fakes = FakePorts(BOX)
    async with supervising(fakes) as supervisor:
        with pytest.raises(UnknownProfileError, match='no profile "genisis"'):
            await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genisis",)))
    assert fakes.store.rows == {}


async def test_profile_applied_a_moment_ago_is_known() -> None:
    """A switch right after an apply does not need the signal that announces it."""
    fakes = FakePorts(BOX)
    profiles = FakeProfiles({})
    async with supervising(fakes, profiles) as supervisor:
        profiles.applied = BOX
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        await until_served(fakes, "genesis")


async def test_the_state_is_that_of_what_was_applied_a_moment_ago() -> None:
    """Nor does a look at the box."""
    profiles = FakeProfiles({})
    async with supervising(FakePorts(BOX), profiles) as supervisor:
        assert (await supervisor.state()).catalogue == {}
        profiles.applied = BOX
        assert (await supervisor.state()).catalogue == BOX


async def test_nothing_is_read_for_a_repair_while_everything_committed_serves() -> None:
    """A look while all committed profiles serve reads nothing: it occurs every 2 s for months."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes):
        looks = fakes.units.looks
        await until(lambda: fakes.units.looks > looks + 3)
    assert fakes.store.questions == 0


async def test_crashed_committed_profile_is_repaired() -> None:
    """A profile that systemd gave up on is started again, and each repair waits longer."""
    fakes = FakePorts(BOX, "aeon")
    async with supervising(fakes):
        fakes.systemd.start_limit_hit("aeon")
        fakes.units.version += 1
        await until_served(fakes, "aeon")
        began = fakes.systemd.now_s
        fakes.systemd.start_limit_hit("aeon")
        fakes.units.version += 1
        await until_served(fakes, "aeon")
        assert fakes.systemd.now_s - began >= 5.0


@pytest.mark.parametrize("stops_badly", [False, True])
async def test_stop_by_hand_is_left_alone(stops_badly: bool) -> None:  # noqa: FBT001
    """A clean or an unclean stop by hand acts like a hold: nothing of ours starts it again."""
    fakes = FakePorts(BOX, "aeon")
    fakes.processes.behaviour["aeon"].stops_badly = stops_badly
    fakes.serve("aeon")
    async with supervising(fakes):
        fakes.systemd.stop("aeon")
        await settle(500)
        assert fakes.systemd.observed(BOX).serving() == ()
    assert fakes.store.rows == {}


async def test_rival_started_by_hand_is_not_evicted() -> None:
    """A model started by hand stays, although another one is committed."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes):
        fakes.systemd.start("genesis")
        await until_served(fakes, "genesis")
        await settle(500)
        assert fakes.systemd.observed(BOX).serving() == ("genesis",)
    assert fakes.commitment.names == ("aeon",)


@pytest.mark.parametrize("lost", ["gives up", "refused"])
async def test_evicted_profile_is_repaired_when_its_rival_is_lost(lost: str) -> None:
    """A person who starts a rival by hand and loses it gets the committed profile back."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["genesis"].refusal = "held by ana" if lost == "refused" else ""
    async with supervising(fakes):
        fakes.systemd.start("genesis")
        if lost == "gives up":
            await until_served(fakes, "genesis")
            fakes.systemd.start_limit_hit("genesis")
            fakes.units.version += 1
        await until_served(fakes)
        await until_served(fakes, "aeon")
    assert [row.kind for row in fakes.store.rows.values()] == [Kind.REPAIR]


async def test_evicted_profile_stays_down_when_its_rival_is_stopped() -> None:
    """The last deliberate act was a stop."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes):
        fakes.systemd.start("genesis")
        await until_served(fakes, "genesis")
        fakes.systemd.stop("genesis")
        await settle(500)
        assert fakes.systemd.observed(BOX).serving() == ()
    assert fakes.store.rows == {}


async def test_a_switch_without_roll_back_is_not_undone_by_a_repair() -> None:
    """A repair restores nothing, also when the target was refused and profiles evicted in vain."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["genesis"].refusal = "held by ana"
    async with supervising(fakes) as supervisor:
        await supervisor.submit(
            OperationRequest(kind=Kind.SWITCH, names=("genesis",), rollback=False)
        )
        await until_served(fakes)
        await settle(500)
        assert fakes.systemd.observed(BOX).serving() == ()


async def test_timed_hold_ends_by_itself() -> None:
    """After its time a hold is over and the committed profiles serve again."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes) as supervisor:
        until_s = fakes.systemd.now_s + 7200
        await supervisor.submit(OperationRequest(kind=Kind.HOLD, hold_until=until_s))
        await until_served(fakes)
        await until_served(fakes, "aeon")
        assert fakes.systemd.now_s >= until_s
        await until(lambda: fakes.commitment.until is None)


async def test_what_a_hold_stopped_comes_back_also_at_the_second_attempt() -> None:
    """A hold that runs out is not forgotten before everything that it stopped is back."""
    fakes = FakePorts(BOX, "aeon")
    fakes.commitment.until = fakes.systemd.now_s + 60
    fakes.host.profile_facts["aeon"] = ProfileFacts(model=Presence.MISSING)
    async with supervising(fakes):
        await until(lambda: fakes.store.ended)
        assert fakes.store.ended[-1].outcome is Outcome.REFUSED
        assert fakes.commitment.until is not None
        fakes.host.profile_facts.clear()
        await until_served(fakes, "aeon")
        await settle(500)
    assert fakes.commitment.until is None


async def test_a_refused_repair_is_tried_again() -> None:
    """A repair that the preflight refuses leaves the unit as it was: it is still to be repaired."""
    fakes = FakePorts(BOX, "aeon")
    fakes.host.profile_facts["aeon"] = ProfileFacts(model=Presence.MISSING)
    async with supervising(fakes):
        fakes.systemd.start_limit_hit("aeon")
        fakes.units.version += 1
        await until(lambda: fakes.store.ended)
        assert fakes.units.starts == []
        fakes.host.profile_facts.clear()
        await until_served(fakes, "aeon")


async def test_a_failed_repair_leaves_the_restarts_to_systemd() -> None:
    """A repair that fails stops nothing: else a profile that crashes twice would stay down."""
    fakes = FakePorts(BOX, "aeon")
    fakes.processes.behaviour["aeon"].start_result = "exit-code"
    async with supervising(fakes):
        fakes.systemd.start_limit_hit("aeon")
        fakes.units.version += 1
        await until(lambda: fakes.store.ended)
        assert fakes.store.ended[-1].outcome is Outcome.FAILED
        assert fakes.systemd.observed(BOX).unit("aeon").waits_to_restart
        fakes.processes.behaviour["aeon"].start_result = "success"
        await until_served(fakes, "aeon")


async def test_hold_without_a_time_survives_a_boot() -> None:
    """A supervisor that finds a hold on disk and nothing running holds again."""
    fakes = FakePorts(BOX, "aeon")
    fakes.commitment.until = FOREVER
    async with supervising(fakes):
        await settle(500)
        assert fakes.systemd.hold_active
        assert fakes.systemd.observed(BOX).busy() == ()


async def test_start_by_hand_ends_a_hold() -> None:
    """A profile started by hand during a hold ends it, also on disk."""
    fakes = FakePorts(BOX, "aeon")
    fakes.commitment.until = FOREVER
    fakes.systemd.hold_active = True
    async with supervising(fakes):
        await settle(500)
        fakes.systemd.start("genesis")
        fakes.units.version += 1
        await until_served(fakes, "genesis")
        await settle(500)
    assert fakes.commitment.until is None


async def test_a_profile_that_serves_past_a_hold_ends_it() -> None:
    """A start with --job-mode=ignore-dependencies leaves the hold's unit active: no two truths."""
    fakes = FakePorts(BOX, "aeon")
    fakes.commitment.until = FOREVER
    fakes.serve("genesis")
    fakes.systemd.hold_active = True
    async with supervising(fakes):
        await settle(500)
        assert not fakes.systemd.hold_active
        assert fakes.systemd.observed(BOX).serving() == ("genesis",)
    assert fakes.commitment.until is None


async def test_operation_of_an_earlier_boot_is_closed() -> None:
    """An operation cut by a reboot is neither finished nor rolled back: the boot decided."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    goal = goal_of(
        Kind.SWITCH,
        ("genesis",),
        catalogue=BOX,
        observed=fakes.systemd.observed(BOX),
        committed=("aeon",),
    )
    await fakes.store.begin(
        Operation(
            id=0,
            kind=Kind.SWITCH,
            target=("genesis",),
            goal=goal,
            boot_id="boot-0",
            requested_by="test",
            began_unix_s=1.0,
        )
    )
    async with supervising(fakes):
        await settle(500)
    assert [f.outcome for f in fakes.store.ended] == [Outcome.INTERRUPTED]
    assert fakes.systemd.observed(BOX).serving() == ("aeon",)


async def test_killed_supervisor_goes_on() -> None:
    """A supervisor that dies in mid-switch is followed by one that finishes the switch."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["genesis"].load_s = 50.0
    async with supervising(fakes) as supervisor:
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        await until(lambda: fakes.systemd.observed(BOX).unit("genesis").main_pid)
    assert fakes.store.ended == []
    async with supervising(fakes):
        await until_served(fakes, "genesis")
        await settle(500)
    assert [f.outcome for f in fakes.store.ended] == [Outcome.DONE]
    assert fakes.commitment.names == ("genesis",)


class Poisoned(FakeBackend):
    """Engines whose warm-up ends the supervisor, as a response did that no parser takes."""

    poisoned = frozenset({"genesis"})

    async def warm_up(self, applied: Applied, *, timeout_s: float) -> str:
        if applied.name in self.poisoned:
            raise RecursionError
        return await super().warm_up(applied, timeout_s=timeout_s)


async def ends_itself(fakes: FakePorts) -> bool:
    """Run one process of the supervisor; whether it ended by an error of its own."""
    task = asyncio.create_task(fakes.supervisor(FakeProfiles(BOX), settings=Settings()).run())
    await settle(500)
    if task.done():
        assert isinstance(task.exception(), BaseExceptionGroup)
        return True
    task.cancel()
    await asyncio.wait({task})
    return False


@pytest.mark.parametrize("poisoned", ["genesis", "aeon genesis"])
async def test_an_operation_that_ends_the_supervisor_twice_is_rolled_back(poisoned: str) -> None:
    """A phase, of the roll-back too, has two tries: then the supervisor stays, and says why."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.backend = Poisoned()
    fakes.backend.poisoned = frozenset(poisoned.split())
    task = asyncio.create_task((supervisor := fakes.supervisor(FakeProfiles(BOX))).run())
    await asyncio.sleep(0)
    await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
    await asyncio.wait({task})
    assert isinstance(task.exception(), BaseExceptionGroup)
    lives = [await ends_itself(fakes) for _ in range(6)]
    assert sum(lives) == len(poisoned.split()) * 2 - 1
    assert lives[-1] is False
    first = fakes.store.ended[0]
    assert first.outcome is (Outcome.FAILED if "aeon" in poisoned else Outcome.ROLLED_BACK)
    assert "the supervisor has ended 2 times in phase warm-up" in first.message


async def test_a_supervisor_that_is_told_to_end_is_no_failure() -> None:
    """An upgrade in mid-switch, and one more, cost the switch nothing."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["genesis"].load_s = 50.0
    async with supervising(fakes) as supervisor:
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        await until(lambda: fakes.systemd.observed(BOX).unit("genesis").main_pid)
        supervisor.leave()
    for _ in range(3):
        async with supervising(fakes) as supervisor:
            await settle(5)
            supervisor.leave()
    async with supervising(fakes):
        await until_served(fakes, "genesis")
        await settle(500)
    assert [f.outcome for f in fakes.store.ended] == [Outcome.DONE]


async def test_nothing_begins_before_what_was_left_open_goes_on() -> None:
    """A request that comes while a new supervisor reads its store does not become a second operation."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["genesis"].load_s = 50.0
    async with supervising(fakes) as supervisor:
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
    fakes.store.readable.clear()
    async with supervising(fakes) as supervisor:
        second = asyncio.create_task(
            supervisor.submit(OperationRequest(kind=Kind.STOP, names=("aeon",)))
        )
        await settle(500)
        fakes.store.readable.set()
        with pytest.raises(BusyError, match="switch genesis by supervisor is running"):
            await second
        await until_served(fakes, "genesis")
        await settle(500)
    assert [row.kind for row in fakes.store.rows.values()] == [Kind.SWITCH]


async def test_what_serves_cannot_be_retired() -> None:
    """A profile that serves or would after a boot is not retired, any other is."""
    fakes = FakePorts(BOX, "aeon")
    async with supervising(fakes) as supervisor:
        with pytest.raises(BusyError, match="switch to another profile first"):
            await supervisor.mark("aeon", Mark.RETIRED, by="test")
        await supervisor.mark("genesis", Mark.RETIRED, by="test")
    assert fakes.store.mark_of == {"genesis": Mark.RETIRED}


async def test_a_profile_is_taken_out_of_what_a_boot_serves() -> None:
    """A model that runs goes on; an owner of devices is meant or refused; what is not applied owns none."""
    fakes = FakePorts(BOX, "aeon", "gone")
    fakes.serve("aeon")
    async with supervising(fakes) as supervisor:
        told, left = await supervisor.uncommit("gone", exclusive=False, by="ana")
        assert (told, left) == ("gone is not committed any more: a boot serves aeon", ("aeon",))
        with pytest.raises(PreconditionError, match=r"owns gpu-all.*uncommit aeon --exclusive"):
            await supervisor.uncommit("aeon", exclusive=False, by="ana")
        assert fakes.commitment.committed() == ("aeon",)
        told, left = await supervisor.uncommit("aeon", exclusive=True, by="ana")
        assert (told.partition("; ")[2], left) == ("aeon serves until it is stopped", ())
        told, _ = await supervisor.uncommit("aeon", exclusive=False, by="ana")
        assert told == "aeon is not committed: a boot serves nothing"
        with pytest.raises(UnknownProfileError, match="gone"):
            await supervisor.uncommit("gone", exclusive=False, by="ana")
        await settle(500)
    assert fakes.commitment.committed() == ()
    assert fakes.systemd.observed(BOX).serving() == ("aeon",)


async def test_nothing_is_taken_out_while_an_operation_may_commit() -> None:
    """The request is refused, and the names stay."""
    fakes = FakePorts(BOX, "aeon")
    fakes.processes.behaviour["genesis"].load_s = 50.0
    async with supervising(fakes) as supervisor:
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        with pytest.raises(BusyError, match="switch genesis by supervisor is running"):
            await supervisor.uncommit("aeon", exclusive=False, by="ana")
        assert fakes.commitment.committed() == ("aeon",)
        await until_served(fakes, "genesis")


async def test_live_profiles_are_known_by_their_mark() -> None:
    """A mark that was set counts before the profile's first one; what is not applied is not live."""
    fakes = FakePorts(BOX, "aeon")
    async with supervising(fakes) as supervisor:
        assert await supervisor.live(["aeon", "genesis", "nobody"]) == []
        await supervisor.mark("genesis", Mark.LIVE, by="test")
        assert await supervisor.live(["aeon", "genesis", "nobody"]) == ["genesis"]


async def test_a_watch_has_a_mark() -> None:
    """An entry of the settings is marked as a profile is; each mark is a change of the status."""
    fakes = FakePorts(BOX, "aeon")
    nas = WatchSettings(name="nas", unit="nas.service", mark=Mark.STANDBY)
    settings = Settings(look_every_s=10.0, watch=(nas,))
    async with supervising(fakes, settings=settings) as supervisor:
        await settle(500)
        assert (await supervisor.state()).watches == {"nas": Mark.STANDBY}
        before = supervisor.signature()
        assert supervisor.signature() == before
        await supervisor.mark("nas", Mark.RETIRED, by="test")
        assert supervisor.signature() != before
        with pytest.raises(
            UnknownProfileError, match=r'profile or watch "nass"\. Did you mean "nas"'
        ):
            await supervisor.mark("nass", Mark.LIVE, by="test")
    assert fakes.store.mark_of == {"nas": Mark.RETIRED}


async def test_a_command_is_never_joined() -> None:
    """Two equal commands are two: the second one is told what runs; so is everything else."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    request = OperationRequest(kind=Kind.RUN, command="sh", claim=claim_on("all"))
    async with supervising(fakes) as supervisor:
        first = await supervisor.submit(request)
        assert (first.accepted.target, first.accepted.evicts) == (("sh",), ("aeon",))
        assert first.accepted.usual_ms is None
        for other in (request, OperationRequest(kind=Kind.SWITCH, names=("genesis",))):
            with pytest.raises(BusyError, match=r"run sh by supervisor is running \("):
                await supervisor.submit(other)
        await until(lambda: fakes.store.ended)
        await until_served(fakes, "aeon")


async def test_a_command_without_an_operation_is_left_alone() -> None:
    """A command of a lost history still has the devices: no profile is started beside it."""
    fakes = FakePorts(BOX, "aeon")
    fakes.systemd.start(RUN)
    fakes.processes.command.run_s = 1e6
    fakes.systemd.start_limit_hit("aeon")
    async with supervising(fakes):
        await until(lambda: fakes.systemd.observed().run.serving)
        await settle(500)
        assert fakes.units.starts == []
        fakes.systemd.stop(RUN)
        fakes.units.version += 1
        await until_served(fakes, "aeon")


async def test_the_gateway_is_told_what_serves() -> None:
    """At each look: what runs, whose requests wait, and in the end what was committed."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes) as supervisor:
        await settle(500)
        assert fakes.gateway.state.standing("aeon") is Standing.SERVING
        assert fakes.gateway.state.held == frozenset()
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        await until_served(fakes, "genesis")
        await settle(500)
        supervisor.reload()
    held = [sorted(state.held) for state in fakes.gateway.states]
    assert ["aeon", "genesis"] in held
    assert held[-1] == []
    assert fakes.gateway.state.standing("genesis") is Standing.SERVING
    assert fakes.gateway.state.standing("aeon") is Standing.DOWN
    assert fakes.gateway.state.committed == ("genesis",)
    assert fakes.gateway.reloads == 1


async def test_the_gateway_is_told_who_is_retired() -> None:
    """Of the store's marks and of a profile's first one, at the start and at a change."""
    box = {**BOX, "old": replace(BOX["genesis"], name="old", first_mark=Mark.RETIRED)}
    fakes, profiles = FakePorts(box, "aeon"), FakeProfiles(box)
    async with supervising(fakes, profiles) as supervisor:
        await until(lambda: fakes.gateway.states)
        assert fakes.gateway.state.retired == {"old"}
        await supervisor.mark("genesis", Mark.RETIRED, by="ana")
        await until(lambda: "genesis" in fakes.gateway.state.retired)
    fakes.gateway.states.clear()
    async with supervising(fakes, profiles):
        await until(lambda: fakes.gateway.states)
        await until(lambda: fakes.gateway.state.retired == {"old", "genesis"})


async def test_an_apply_whose_signal_is_lost_reaches_the_gateway() -> None:
    """A supervisor that reads new profiles for a request has the gateway read them too, once."""
    profiles = FakeProfiles(BOX)
    fakes = FakePorts(BOX)
    async with supervising(fakes, profiles) as supervisor:
        await supervisor.state()
        before = fakes.gateway.reloads
        profiles.applied = {"aeon": BOX["aeon"]}
        await supervisor.state()
        await supervisor.state()
        assert fakes.gateway.reloads == before + 1


async def test_requests_never_meet_a_model_that_is_not_committed() -> None:
    """From its start to its commit whoever asks for the target waits."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes) as supervisor:
        await settle(500)
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        await until_served(fakes, "genesis")
        await settle(500)
    for state in fakes.gateway.states:
        open_for = [n for n in BOX if state.standing(n) is Standing.SERVING and n not in state.held]
        assert set(open_for) <= set(state.committed)


async def test_a_supervisor_that_takes_over_holds_and_releases_again() -> None:
    """A new supervisor's first state for the gateway holds the operation's requests."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    fakes.processes.behaviour["genesis"].load_s = 50.0
    async with supervising(fakes) as supervisor:
        await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        await until(lambda: fakes.systemd.observed(BOX).unit("genesis").main_pid)
    fakes.gateway.states.clear()
    async with supervising(fakes):
        await until_served(fakes, "genesis")
        await settle(500)
    assert fakes.gateway.states[0].held == {"aeon", "genesis"}
    assert fakes.gateway.states[-1].held == frozenset()
    assert fakes.gateway.calls[-1] == "release genesis"


async def test_a_rehearsal_tells_of_a_full_disk() -> None:
    """A rehearsal reserves and releases the room, but not while another operation has room."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes) as supervisor:
        request = OperationRequest(kind=Kind.SWITCH, names=("genesis",))
        _operation, found = await supervisor.rehearse(request)
        assert (refusal(found), fakes.commitment.reserved) == ("", Writes())
        fakes.commitment.full = True
        _operation, found = await supervisor.rehearse(request)
        assert "No space left on device" in refusal(found)
        fakes.commitment.full = False
        running = await supervisor.submit(request)
        await until(lambda: running.transaction.operation.phase is Phase.LOAD)
        reserved = fakes.commitment.reserved
        await supervisor.rehearse(OperationRequest(kind=Kind.HOLD, hold_until=FOREVER))
        assert fakes.commitment.reserved == reserved == Writes(names=("genesis",), sets_hold=True)
        await until_served(fakes, "genesis")


ANA = Requester(uid=1000, pid=4121, user="ana")
CLIENT = Requester(uid=990, pid=812, user="appliance-gateway", on_behalf="key laptop")


async def until_repaired(fakes: FakePorts, supervisor: Supervisor, phase: Phase) -> None:
    """Let aeon crash for good, and wait until a repair of it is in a phase."""
    fakes.systemd.start_limit_hit("aeon")
    fakes.units.version += 1

    def is_there() -> bool:
        running = supervisor.current()
        return running is not None and running.transaction.operation.phase is phase

    await until(is_there)


@pytest.mark.parametrize(
    ("kind", "names", "serving"),
    [
        (Kind.STOP, (), ()),
        (Kind.STOP, ("aeon",), ()),
        (Kind.HOLD, (), ()),
        (Kind.SWITCH, ("genesis",), ("genesis",)),
        (Kind.SWITCH, ("aeon",), ("aeon",)),
    ],
)
async def test_a_repair_gives_way_to_a_person(
    kind: Kind, names: tuple[str, ...], serving: tuple[str, ...]
) -> None:
    """An operator's request begins at once, ends as asked, and no repair follows it."""
    fakes = FakePorts(BOX, "aeon")
    async with supervising(fakes) as supervisor:
        await until_repaired(fakes, supervisor, Phase.START)
        until_s = FOREVER if kind is Kind.HOLD else None
        request = OperationRequest(kind=kind, names=names, by=ANA, hold_until=until_s)
        running = await supervisor.submit(request)
        assert running.accepted.kind is kind
        await until(lambda: supervisor.current() is None)
        await settle(2000)
        assert fakes.systemd.observed(BOX).serving() == serving
    repair, asked = fakes.store.ended
    assert (repair.operation.kind, repair.outcome) == (Kind.REPAIR, Outcome.SUPERSEDED)
    assert repair.message == f"gave way to {' '.join([kind, *names])} by ana"
    assert not repair.failed
    assert asked.outcome is Outcome.DONE


async def test_a_repair_does_not_give_way_to_a_client() -> None:
    """A request that would switch waits for the repair, as for every operation."""
    genesis = replace(BOX["genesis"], handling=replace(BOX["genesis"].handling, on_request=True))
    willing = {**BOX, "genesis": genesis}
    fakes = FakePorts(willing, "aeon")
    async with supervising(fakes, FakeProfiles(willing)) as supervisor:
        await until_repaired(fakes, supervisor, Phase.START)
        request = OperationRequest(kind=Kind.SWITCH, names=("genesis",), by=CLIENT)
        with pytest.raises(BusyError, match="repair aeon by supervisor is running"):
            await supervisor.submit(request)


async def test_nothing_is_taken_out_while_a_repair_brings_it_back() -> None:
    """The refusal names the stop that ends the repair; after it the profile is taken out."""
    fakes = FakePorts(BOX, "aeon")
    async with supervising(fakes) as supervisor:
        await until_repaired(fakes, supervisor, Phase.START)
        words = r"repair aeon by supervisor is running \(start, \d+ s\): appliance wait, or appliance stop aeon$"
        with pytest.raises(BusyError, match=words):
            await supervisor.uncommit("aeon", exclusive=True, by="ana")
        assert fakes.commitment.committed() == ("aeon",)
        await supervisor.submit(OperationRequest(kind=Kind.STOP, names=("aeon",), by=ANA))
        await until(lambda: supervisor.current() is None)
        _, left = await supervisor.uncommit("aeon", exclusive=True, by="ana")
        assert left == ()
        await settle(2000)
        assert fakes.systemd.observed(BOX).serving() == ()


async def test_a_stop_of_what_has_crashed_is_kept() -> None:
    """Systemd does not stop a failed unit; nevertheless no repair starts it against the operator."""
    fakes = FakePorts(BOX, "aeon")
    fakes.host.profile_facts["aeon"] = ProfileFacts(model=Presence.MISSING)
    async with supervising(fakes) as supervisor:
        fakes.systemd.start_limit_hit("aeon")
        fakes.units.version += 1
        await until(lambda: fakes.store.ended and supervisor.current() is None)
        fakes.systemd.now_s += 1.0
        await supervisor.submit(OperationRequest(kind=Kind.STOP, names=("aeon",), by=ANA))
        await until(lambda: supervisor.current() is None)
        fakes.host.profile_facts.clear()
        await settle(5000)
        assert fakes.systemd.observed(BOX).serving() == ()
        assert len(fakes.store.ended) == 2
        # What crashes after a start by hand is repaired again.
        fakes.systemd.start("aeon")
        await until_served(fakes, "aeon")
        fakes.systemd.start_limit_hit("aeon")
        fakes.units.version += 1
        await until(lambda: len(fakes.store.ended) == 3)
        assert fakes.store.ended[-1].operation.kind is Kind.REPAIR


async def test_who_asked_stands_in_every_answer() -> None:
    """Another operator is told whose operation runs, and who has cancelled it."""
    fakes = FakePorts(BOX, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes) as supervisor:
        request = OperationRequest(kind=Kind.SWITCH, names=("genesis",), by=ANA)
        first = await supervisor.submit(request)
        assert first.accepted.requested_by == "ana (uid 1000, pid 4121)"
        joined = await supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
        assert joined.accepted.requested_by == first.accepted.requested_by
        with pytest.raises(BusyError, match=r"switch genesis by ana is running \(preflight, 0 s\)"):
            await supervisor.submit(OperationRequest(kind=Kind.STOP, by=CLIENT))
        await until(lambda: first.transaction.operation.phase is Phase.START)
        assert supervisor.cancel(by="ben") is not None
        await until(lambda: supervisor.current() is None)
    assert fakes.store.ended[-1].message == "cancelled by ben"


async def test_a_rehearsal_tells_the_parts_of_the_need() -> None:
    """Of each profile that would start and has an estimate."""
    parts = MemoryParts(weights_bytes=3, cache_bytes=2)
    estimate = Estimate(vram_bytes=0, least_vram_bytes=0, ram_bytes=5, ram=parts)
    genesis = replace(applied("genesis", "cpu"), estimate=estimate)
    box = catalogue(applied("aeon", "cpu"), genesis)
    fakes = FakePorts(box, "aeon")
    fakes.serve("aeon")
    async with supervising(fakes, FakeProfiles(box)) as supervisor:
        for name, told in (("genesis", [3, 2]), ("aeon", None)):
            request = OperationRequest(kind=Kind.SWITCH, names=(name,))
            operation, _found = await supervisor.rehearse(request)
            rows = await supervisor.estimates(operation)
            row = rows.get(name)
            ram = None if row is None else row.ram
            assert told == (ram and [ram.weights_bytes, ram.cache_bytes])
