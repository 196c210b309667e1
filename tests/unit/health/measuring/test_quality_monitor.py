"""The monitor of a profile's answers, against an engine of the tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from appliance.health.box_view import ProfileView
from appliance.health.measuring.quality_monitor import STATE_KEY, QualityMonitor
from appliance.model.errors import LaneBusyError
from appliance.model.measurements import EventKind
from appliance.model.profile import Abilities, WarmUp
from appliance.speed.canaries import CanaryFile, parse_canaries
from appliance.speed.canary_schedule import CanaryCadence
from appliance.speed.canary_verdict import MOST_ANSWER_BYTES
from appliance.speed.probe_schedule import ProbeConditions
from appliance.wire.lane import LaneOutcome
from tests.fakes.canary_store import FakeCanaryStore
from tests.fakes.chat_engine import ChatEngine, chat_answer
from tests.fakes.health_clock import VirtualHealthClock
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer, LaneRequest
from tests.fakes.profiles import applied
from tests.fakes.virtual_time import advance

pytestmark = pytest.mark.virtual_time

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
GENESIS = replace(applied("genesis"), tools=True)
SERVING = ProbeConditions(serving=True)
VIEW = ProfileView(
    name="genesis",
    applied=GENESIS,
    serving=True,
    started_unix_s=1.0,
    main_pid=7,
    mark=None,
    held=False,
)


class FakeCanaryFiles:
    """Canary file of one profile, as a test writes it."""

    def __init__(self) -> None:
        self.file = CanaryFile()

    async def read(self, profile: str) -> CanaryFile:
        assert profile == "genesis"
        return self.file


class Box:
    """A box with one profile and its monitor, which runs."""

    def __init__(
        self, answer: Callable[[LaneRequest], LaneAnswer], *, state: str | None = None
    ) -> None:
        self.clock = VirtualHealthClock()
        self.lane = FakeProbeLane(answer)
        self.store = FakeCanaryStore()
        self.files = FakeCanaryFiles()
        self.monitor = QualityMonitor(
            "genesis",
            lane=self.lane,
            store=self.store,
            clock=self.clock,
            canaries=self.files,
            cadence=CanaryCadence(),
            state=state,
        )

    @property
    def events(self) -> list[EventKind]:
        return [event.kind for event in self.store.events]


@asynccontextmanager
async def serving(
    answer: Callable[[LaneRequest], LaneAnswer],
    *,
    view: ProfileView = VIEW,
    state: str | None = None,
) -> AsyncIterator[Box]:
    """Run a box whose profile serves."""
    box = Box(answer, state=state)
    box.monitor.observe(view, SERVING)
    task = asyncio.create_task(box.monitor.run())
    try:
        yield box
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def own(**expect: object) -> CanaryFile:
    """Return a file with one canary."""
    request = {"messages": [{"role": "user", "content": "the secret of the house"}]}
    return parse_canaries(json.dumps({"name": "capital", "request": request, "expect": expect}))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_broken_tool_calls(seed: int) -> None:
    """An engine that breaks 38 % of its tool calls is told within a day, and its repair too."""
    engine = ChatEngine(0.38, seed=seed)
    async with serving(engine.answer) as box:
        await advance(DAY_S)
        assert box.events == [EventKind.QUALITY_LOST]
        assert box.monitor.is_lost
        text = box.store.events[0].text
        assert text.endswith("; do: appliance logs genesis")
        assert " tool calls failed (the arguments of a tool call are no JSON)" in text
        tools = next(group for group in box.monitor.report().groups if group.group == "tools")
        assert tools.lost_unix_s is not None
        engine.broken_share = 0.0
        await advance(DAY_S)
        assert box.events == [EventKind.QUALITY_LOST, EventKind.QUALITY_RECOVERED]
        assert not box.monitor.is_lost


async def test_healthy() -> None:
    """An engine that breaks nothing is asked six canaries each hour, and never reported."""
    async with serving(ChatEngine().answer) as box:
        await advance(3 * DAY_S)
        assert box.events == []
        assert 6 * 71 <= len(box.store.runs) <= 6 * 73
        assert {run.canary for run in box.store.runs} == {
            *("schema", "schema-streamed"),
            *("tool-auto", "tool-auto-streamed", "tool-required", "tool-required-streamed"),
        }
        assert all(run.passed for run in box.store.runs)
        assert box.monitor.pass_rate == 1.0
        assert box.monitor.trouble == ""
        first = box.lane.requests[0]
        assert (first.profile, first.path) == ("genesis", "/v1/chat/completions")


async def test_no_tools() -> None:
    """A profile that promises no tools is not asked for them, one that embeds for nothing."""
    async with serving(
        ChatEngine().answer, view=replace(VIEW, applied=replace(GENESIS, tools=False))
    ) as box:
        await advance(DAY_S)
        assert {run.canary for run in box.store.runs} == {"schema", "schema-streamed"}
    embedder = replace(GENESIS, warm_up=WarmUp.EMBEDDING)
    async with serving(ChatEngine().answer, view=replace(VIEW, applied=embedder)) as box:
        await advance(DAY_S)
        assert box.lane.requests == []


async def test_conditions() -> None:
    """No canary is asked until two minutes after a start, nor during an operation."""
    async with serving(ChatEngine().answer) as box:
        await advance(119.0)
        assert box.lane.requests == []
        box.monitor.observe(VIEW, ProbeConditions(serving=True, operation=True))
        await advance(DAY_S)
        assert box.lane.requests == []
        box.monitor.observe(VIEW, SERVING)
        await advance(10.0)
        assert len(box.lane.requests) == 6
        box.monitor.observe(replace(VIEW, main_pid=8), SERVING)
        await advance(119.0)
        assert len(box.lane.requests) == 6
        await advance(20.0)
        assert len(box.lane.requests) == 12


async def test_restart_in_a_round() -> None:
    """A restart in the middle of a round begins a new one."""
    async with serving(ChatEngine().answer) as box:
        await advance(121.5)
        assert len(box.lane.requests) == 2
        box.monitor.observe(replace(VIEW, started_unix_s=2.0), SERVING)
        await advance(100.0)
        assert len(box.lane.requests) == 2
        await advance(60.0)
        assert [run.canary for run in box.store.runs[:2]] == ["schema", "schema"]


async def test_yield() -> None:
    """A canary that gives way to a request is no verdict, and is asked again."""
    async with serving(ChatEngine().answer) as box:
        await advance(121.5)
        box.lane.request_arrives()
        await advance(20.0)
        assert [run.canary for run in box.store.runs] == ["schema"]
        await advance(40.0)
        assert [run.canary for run in box.store.runs[:2]] == ["schema", "schema-streamed"]
        assert len(box.store.runs) == 6
        assert box.monitor.pass_rate == 1.0


async def test_busy() -> None:
    """A box that is busy all day is no fault, and is told in the trouble."""

    def refuse(_request: LaneRequest) -> LaneAnswer:
        raise LaneBusyError("requests are in flight")

    async with serving(refuse) as box:
        await advance(DAY_S)
        assert box.store.runs == []
        assert box.monitor.pass_rate is None
        assert box.monitor.trouble == "canaries get no answer: requests are in flight"


async def test_broken_connection() -> None:
    """A connection that breaks counts the second time in a row, once the canary has passed."""
    healthy = ChatEngine().answer

    def answer(request: LaneRequest) -> LaneAnswer:
        if len(box.lane.requests) in {6, 12, 13}:
            return LaneAnswer(outcome=LaneOutcome.FAILED, detail="reset")
        return healthy(request)

    async with serving(answer) as box:
        await advance(3 * HOUR_S)
        faults = [run.detail for run in box.store.runs if not run.passed]
        assert faults == ["the engine breaks the connection"]


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (LaneAnswer(outcome=LaneOutcome.TOO_LONG), "the answer does not end within its bounds"),
        (LaneAnswer(status=400), "the engine refuses the request: status 400"),
        (
            LaneAnswer(pieces=[(1.0, b"x" * (MOST_ANSWER_BYTES // 2))] * 4),
            "the response is longer than 1024 KiB",
        ),
        (LaneAnswer(pieces=[(1.0, b"\xff\x00")]), "the response is no JSON"),
    ],
)
async def test_bad_answers(answer: LaneAnswer, fault: str) -> None:
    """An answer without end, a refusal and garbage are faults in words once canaries have passed."""
    healthy = ChatEngine().answer

    def later(request: LaneRequest) -> LaneAnswer:
        is_whole = request.body is not None and not request.body["stream"]
        return answer if len(box.lane.requests) >= 6 and is_whole else healthy(request)

    async with serving(later) as box:
        await advance(2 * HOUR_S)
        assert fault in {run.detail for run in box.store.runs}


async def test_never_passed() -> None:
    """Canaries that never passed are told in the trouble, and are no loss."""
    async with serving(lambda _: LaneAnswer(status=400)) as box:
        await advance(10 * DAY_S)
        assert box.events == []
        assert box.store.runs == []
        trouble = box.monitor.trouble
        assert (
            "canary schema has never passed: the engine refuses the request: status 400" in trouble
        )
        assert trouble.endswith("3 more have never passed")


@pytest.mark.parametrize(
    ("reasoning", "command", "names_trap"),
    [
        (False, ("vllm", "--reasoning-parser", "qwen3"), True),
        (True, ("vllm", "--reasoning-parser", "qwen3"), False),
        (False, ("vllm",), False),
    ],
)
async def test_free_text_of_a_parser_without_thinking(
    reasoning: bool,  # noqa: FBT001
    command: tuple[str, ...],
    names_trap: bool,  # noqa: FBT001
) -> None:
    """Free text for a schema or a required tool names the trap of the profile that it comes from."""
    served = replace(GENESIS, command=command, abilities=Abilities(reasoning=reasoning))
    async with serving(
        lambda request: chat_answer(
            {"content": "Lyon is a city."},
            streamed=request.body is not None and bool(request.body["stream"]),
        ),
        view=replace(VIEW, applied=served),
    ) as box:
        await advance(3 * HOUR_S)
        trap = " (trap parser-without-thinking)" * names_trap
        assert {run.detail for run in box.store.runs if run.canary == "schema"} == {
            f"the answer is no JSON{trap}"
        }
        trouble = box.monitor.trouble
        assert f"canary tool-required has never passed: no tool was called{trap}" in trouble
        assert (
            f"canary tool-auto has never passed: no tool was called{trap}" not in trouble
            or not trap
        )


async def test_overloaded_engine() -> None:
    """An engine that is not ready gives no verdict."""
    async with serving(lambda _: LaneAnswer(status=503)) as box:
        await advance(DAY_S)
        assert box.store.runs == []
        assert box.monitor.trouble == "canaries get no answer: the engine is not ready: status 503"


async def test_own_canary() -> None:
    """A canary of the operator's is asked too, and a loss of it told without its texts."""
    engine = ChatEngine()
    view = replace(VIEW, applied=replace(GENESIS, tools=False))
    async with serving(engine.answer, view=view) as box:
        engine.text = '{"city": "Lyon", "continent": "Europe", "coastal": false, "neighbours": 8}'
        box.files.file = own(contains="Lyon")
        await advance(3 * HOUR_S)
        assert [run.canary for run in box.store.runs[:3]] == [
            "schema",
            "schema-streamed",
            "own:capital",
        ]
        box.files.file = own(contains="Paris")
        await advance(DAY_S)
        assert box.events == [EventKind.QUALITY_LOST]
        text = box.store.events[0].text
        assert "answers to canary capital failed" in text
        assert "secret" not in text + "".join(box.store.states.values())
        box.files.file = CanaryFile()
        await advance(2 * HOUR_S)
        assert "own:capital" not in box.store.states["genesis", STATE_KEY]


async def test_bad_file() -> None:
    """A bad canary file is told once with its line, stays in the trouble, and asks nothing."""
    async with serving(ChatEngine().answer) as box:
        box.files.file = parse_canaries("# mine\n{")
        await advance(DAY_S)
        assert box.events == [EventKind.CANARIES_REFUSED]
        text = "/etc/appliance/canaries/genesis.jsonl: line 2: no JSON object"
        assert box.store.events[0].text == text
        assert box.monitor.trouble == "canary file: line 2: no JSON object"
        box.files.file = CanaryFile()
        await advance(2 * HOUR_S)
        assert box.monitor.trouble == ""
        assert len(box.events) == 1


async def test_kill() -> None:
    """A kill changes nothing in the list of events: the stored record goes on."""
    engine = ChatEngine(0.38)
    async with serving(engine.answer) as box:
        await advance(HOUR_S)
        assert box.events == []
        state, runs = box.store.states["genesis", STATE_KEY], box.store.runs
    async with serving(engine.answer, state=state) as box:
        await advance(DAY_S)
        assert box.events == [EventKind.QUALITY_LOST]
        state = box.store.states["genesis", STATE_KEY]
    assert runs
    async with serving(engine.answer, state=state) as box:
        await advance(DAY_S)
        assert box.events == []


async def test_damaged_record() -> None:
    """A record that cannot be read begins anew."""
    async with serving(ChatEngine().answer, state="{") as box:
        await advance(HOUR_S)
        assert box.monitor.pass_rate == 1.0


async def test_accept_and_reset() -> None:
    """An accepted level is no loss any more; a reset begins with the promise again."""
    async with serving(ChatEngine(0.38).answer) as box:
        await advance(DAY_S)
        await box.monitor.accept("ann")
        assert box.events == [EventKind.QUALITY_LOST, EventKind.ACCEPTED]
        assert "accepted by ann" in box.store.events[1].text
        await advance(5 * DAY_S)
        assert len(box.events) == 2
        await box.monitor.reset()
        assert box.monitor.pass_rate is None
        await advance(DAY_S)
        assert box.events[2:] == [EventKind.QUALITY_LOST]


async def test_slow_engine() -> None:
    """Canaries of a slow engine take a quarter of a per cent of the time."""
    answer = chat_answer({"content": "{}"}, streamed=False)
    slow = replace(answer, pieces=[(30.0, answer.pieces[0][1])])
    async with serving(lambda _: slow) as box:
        await advance(10 * DAY_S)
        seconds = 30.0 * len(box.lane.requests)
        assert seconds <= 0.0025 * 10 * DAY_S + 120.0
        assert seconds >= 0.0015 * 10 * DAY_S
