"""Requests for profiles that are down: switches on request, and their ends."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.gateway.routing_table import RoutingTable
from appliance.gateway.switch_requester import (
    Answer,
    Away,
    Began,
    Busy,
    Done,
    Failed,
    SwitchRequester,
    ask_for_switch,
)
from appliance.model.gateway import Key, Refusal, Standing, State
from appliance.routing.switch_scheduler import SwitchPolicy
from tests.fakes.gateway_states import AEON, ANA, BOX, GENESIS, routed
from tests.fakes.virtual_time import advance
from tests.waiting import until

WILLING = {name: routed(name, on_request=True) for name in BOX}
NOW = SwitchPolicy(residency_s=0.0, patience_s=0.0)


class Box:
    """Routing table, and a supervisor with scripted answers."""

    def __init__(self, policy: SwitchPolicy = NOW) -> None:
        self.table = RoutingTable(WILLING)
        self.table.take(AEON)
        self.waits = {"aeon": 1, "genesis": 1}
        self.flying = 0
        self.asked: list[tuple[str, str]] = []
        self.cancelled: list[int] = []
        self.answer: Answer = Done()
        self.answers = asyncio.Event()
        self.answers.set()
        self.tells = True
        self.switch_requester = SwitchRequester(
            self.table,
            self.ask,
            self.cancel,
            waiting=self.waiting,
            in_flight=self.in_flight,
            policy=policy,
            clock=asyncio.get_running_loop().time,
        )

    def waiting(self, names: Sequence[str]) -> int:
        return sum(self.waits[name] for name in names)

    def in_flight(self, _names: Sequence[str]) -> int:
        return self.flying

    async def cancel(self, operation: int) -> None:
        self.cancelled.append(operation)
        self.answer = Failed("cancelled")
        self.answers.set()

    async def ask(self, name: str, on_behalf: str, began: Began) -> Answer:
        self.asked.append((name, on_behalf))
        began(len(self.asked))
        await self.answers.wait()
        if self.tells and isinstance(self.answer, Done):
            self.table.take(State(standings={name: Standing.SERVING}, committed=(name,)))
        return self.answer

    def knock(self, name: str, key: Key | None = None) -> bool | Refusal:
        return self.table.readiness(name, key)


@asynccontextmanager
async def at_work(box: Box) -> AsyncIterator[Box]:
    running = asyncio.create_task(box.switch_requester.run())
    try:
        yield box
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.virtual_time
async def test_a_request_for_what_is_down_switches_to_it() -> None:
    """The request waits, the supervisor is asked on behalf of its key, and the request is sent."""
    async with at_work(Box()) as box:
        assert box.knock("genesis", ANA) is False
        await until(lambda: box.knock("genesis", ANA) is True)
    assert box.asked == [("genesis", "key ana")]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("waits", "ends"),
    [
        ({"genesis": 0, "aeon": 1}, True),
        ({"genesis": 0, "aeon": 0}, False),  # nobody wants anything else
        ({"genesis": 1, "aeon": 1}, False),  # fair turns, and one of several waiters leaves
    ],
)
async def test_a_load_that_nobody_waits_for_is_cancelled(
    waits: dict[str, int], *, ends: bool
) -> None:
    """An operation ends once for those who wait for another model; it is no failure of its profile."""
    async with at_work(Box()) as box:
        box.answers.clear()
        box.knock("genesis")
        await until(lambda: box.asked)
        await advance(10.0)
        assert box.cancelled == []
        box.waits = waits
        await advance(1.0)
        assert box.cancelled == [1] * ends
        box.waits = {"genesis": 1, "aeon": 0}
        box.answer = Done()
        box.answers.set()
        if ends:
            box.table.take(AEON)
        assert not isinstance(box.knock("genesis"), Refusal)
        await until(lambda: box.knock("genesis") is True)


@pytest.mark.virtual_time
@pytest.mark.parametrize("used", [False, True])
async def test_residency_does_not_protect_what_was_abandoned(*, used: bool) -> None:
    """A model that nobody waited for at its commit makes way at once, unless a request uses it."""
    async with at_work(Box(SwitchPolicy(residency_s=60.0, patience_s=0.0))) as box:
        box.answers.clear()
        await advance(60.0)
        box.knock("genesis")
        await until(lambda: box.asked)
        box.waits = {"genesis": 0, "aeon": 0}
        await advance(1.0)
        box.answers.set()
        await until(lambda: box.table.state.standing("genesis") is Standing.SERVING)
        if used:
            box.flying = 1
            await advance(1.0)
            box.flying = 0
        box.waits["aeon"] = 1
        box.knock("aeon")
        await advance(2.0)
        assert (len(box.asked) == 2) != used
        await advance(60.0)
        assert len(box.asked) == 2


@pytest.mark.virtual_time
async def test_each_gets_its_turn() -> None:
    """A profile that was switched away is switched back when its turn comes."""
    async with at_work(Box()) as box:
        box.knock("genesis")
        await until(lambda: box.table.state.standing("genesis") is Standing.SERVING)
        box.knock("aeon")
        await until(lambda: box.knock("aeon") is True)
    assert box.asked == [("genesis", "a client without a key"), ("aeon", "a client without a key")]


@pytest.mark.virtual_time
async def test_who_hangs_up_moves_nothing() -> None:
    """Without a waiting request there is no switch."""
    async with at_work(Box(SwitchPolicy(residency_s=60.0))) as box:
        box.knock("genesis")
        box.waits["genesis"] = 0
        await advance(120.0)
    assert box.asked == []


@pytest.mark.virtual_time
async def test_what_serves_stays_for_a_while() -> None:
    """Two clients that want different profiles cannot make the box thrash."""
    async with at_work(Box(SwitchPolicy(residency_s=60.0, patience_s=0.0))) as box:
        box.knock("genesis")
        await advance(59.0)
        assert box.asked == []
        await advance(2.0)
        assert box.asked == [("genesis", "a client without a key")]


@pytest.mark.virtual_time
async def test_requests_in_flight_are_waited_for() -> None:
    """A switch begins after the last request in flight has ended."""
    async with at_work(Box(SwitchPolicy(residency_s=0.0, patience_s=60.0))) as box:
        box.flying = 1
        box.knock("genesis")
        await advance(59.0)
        assert box.asked == []
        box.flying = 0
        await advance(1.0)
        assert box.asked == [("genesis", "a client without a key")]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "busy", [State(standings=AEON.standings, held=frozenset({"aeon"})), GENESIS]
)
async def test_nothing_is_asked_for_during_an_operation(busy: State) -> None:
    """No switch is asked for during an operation, nor when the profile then serves."""
    box = Box()
    box.knock("genesis")
    box.table.take(busy)
    async with at_work(box):
        await advance(600.0)
    assert box.asked == []


@pytest.mark.virtual_time
async def test_a_failure_is_told_to_who_waits() -> None:
    """Waiting requests are refused with the reason, and no request tries again at once."""
    async with at_work(Box()) as box:
        box.answer = Failed("genesis did not start: the gate refused it")
        changed = box.table.changed()
        box.knock("genesis")
        await asyncio.wait_for(changed, 5)
        told = box.knock("genesis")
        assert isinstance(told, Refusal)
        assert (told.status, told.code, told.retry_after_s) == (503, "switch_failed", 60)
        assert (
            "does not serve: genesis did not start: the gate refused it; appliance logs"
            in told.message
        )
        box.answer = Done()
        await advance(59.0)
        assert len(box.asked) == 1
        await advance(2.0)
        assert box.knock("genesis") is True


@pytest.mark.virtual_time
async def test_the_pause_grows_until_the_profile_serves_or_is_applied_anew() -> None:
    """A profile that cannot start costs the others a roll-back ever less often."""
    async with at_work(Box()) as box:
        box.answer = Failed("out of memory")
        for failures, pause_s in ((1, 60), (2, 120), (3, 300)):
            box.knock("genesis")
            await until(lambda: isinstance(box.knock("genesis"), Refusal))
            assert len(box.asked) == failures
            told = box.knock("genesis")
            assert isinstance(told, Refusal)
            assert told.retry_after_s == pause_s
            await advance(pause_s - 5.0)
            assert len(box.asked) == failures
            await advance(6.0)
        box.table.adopt({**WILLING, "genesis": replace(WILLING["genesis"], engine_name="other")})
        await advance(1.0)
        told = box.knock("genesis")
        assert isinstance(told, Refusal)
        assert told.retry_after_s == 60


@pytest.mark.virtual_time
async def test_a_switch_is_not_asked_for_twice_while_its_end_is_told() -> None:
    """The answer of the supervisor may come before its new state."""
    async with at_work(Box()) as box:
        box.tells = False
        box.knock("genesis")
        await until(lambda: bool(box.asked))
        await advance(4.0)
        assert len(box.asked) == 1
        box.table.take(GENESIS)
        await advance(60.0)
    assert len(box.asked) == 1


@pytest.mark.virtual_time
async def test_a_supervisor_that_is_away_is_no_fault_of_the_profile() -> None:
    """A supervisor that did not answer is asked again soon."""
    async with at_work(Box()) as box:
        box.answer = Away()
        box.knock("genesis")
        await until(lambda: isinstance(box.knock("genesis"), Refusal))
        told = box.knock("genesis")
        assert isinstance(told, Refusal)
        assert (told.retry_after_s, "the supervisor does not answer" in told.message) == (5, True)
        box.answer = Done()
        await advance(4.0)
        assert len(box.asked) == 1
        await advance(2.0)
        assert box.knock("genesis") is True


@pytest.mark.virtual_time
async def test_a_busy_supervisor_is_asked_again() -> None:
    """A busy supervisor is asked again, and no request is refused."""
    async with at_work(Box()) as box:
        box.answer = Busy()
        box.knock("genesis")
        await advance(0.5)
        assert len(box.asked) == 1
        box.answer = Done()
        await advance(1.0)
        assert box.knock("genesis") is True


# --- asking the supervisor -----------------------------------------------------------

Story = list[object]
ACCEPTED = {"event": "accepted", "operation": 1, "kind": "switch"}
ENDED = {
    "event": "result",
    "operation": 1,
    "kind": "switch",
    "target": ["a"],
    "cause": None,
    "exit": 0,
    "message": "",
}
PHASE = {"event": "phase", "phase": "load", "state": "started"}
HELLO = {"event": "hello"}


@asynccontextmanager
async def supervisor(path: Path, story: Story) -> AsyncIterator[list[dict[str, object]]]:
    """Stand-in for a supervisor: sends lines and closes the connection."""
    asked: list[dict[str, object]] = []

    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(json.loads(await reader.readline()))
        for event in story:
            raw = event if isinstance(event, bytes) else json.dumps(event).encode()
            writer.write(raw + b"\n")
        writer.close()

    async with await asyncio.start_unix_server(tell, path):
        yield asked


@pytest.mark.parametrize(
    ("story", "answer"),
    [
        ([HELLO, ACCEPTED, PHASE, ENDED | {"outcome": "done"}], Done()),
        (
            [HELLO, ACCEPTED, ENDED | {"outcome": "rolled-back", "message": "no memory"}],
            Failed("no memory"),
        ),
        ([HELLO, {"event": "error", "exit": 75, "message": "switch x is running"}], Busy()),
        ([HELLO, {"event": "error", "error": "busy", "message": "likewise"}], Busy()),
        ([HELLO, {"event": "error", "exit": 4}], Failed("no reason given")),
        ([HELLO, ACCEPTED], Done()),  # it died, and goes on with it when it is back
        ([HELLO, ACCEPTED, b"["], Done()),
        ([HELLO], Away()),
        ([b"[]"], Away()),
        ([], Away()),
    ],
)
async def test_the_end_of_a_switch_is_what_counts(
    tmp_path: Path, story: Story, answer: Answer
) -> None:
    """The requester learns whether the profile serves, whatever the supervisor sends."""
    path = tmp_path / "control.sock"
    async with supervisor(path, story) as asked:
        assert await ask_for_switch(path, "genesis", "key ana") == answer
    assert asked[0]["verb"] == "switch"
    assert asked[0]["args"] == {"name": "genesis", "on_behalf": "key ana"}


async def test_no_supervisor_is_away(tmp_path: Path) -> None:
    """Without a socket the supervisor is away."""
    answers: Awaitable[Answer] = ask_for_switch(tmp_path / "control.sock", "genesis", "gateway")
    assert await answers == Away()
