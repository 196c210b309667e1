"""Verb `bench`, with an engine behind the gateway's port, a supervisor and a health agent."""

import asyncio
import io
import itertools
import json
import re
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from appliance.cli.argument_parser import build_parser
from appliance.cli.arguments import Arguments
from appliance.cli.bench.bench_screen import BenchProgress
from appliance.cli.failures import CliError
from appliance.cli.output_reference import OUTPUTS
from appliance.cli.terminal import Streams, Terminal
from appliance.cli.verbs import bench
from appliance.model.errors import BackendError, UnreachableError
from appliance.model.gateway import Configuration
from appliance.model.profile import WarmUp
from appliance.speed.bench_plan import Workload, stages
from appliance.system.applied.manifest import GATEWAY_FILE, encode_configuration
from appliance.wire.control import Exit
from appliance.wire.conversation import RequestRefusedError
from tests.fakes.bench_engine import BenchEngine
from tests.fakes.cli_box import CliBox
from tests.fakes.control_server import FakeSupervisor, Hang, Story, WaitFor
from tests.fakes.engine_server import EngineServer, Talk
from tests.fakes.profiles import applied
from tests.fakes.schema_validator import closed, violations

SCHEMA = closed(next(one for one in OUTPUTS if one.name == "bench").schema())
TOKEN = "t0ken"  # noqa: S105 - no secret
LEASED: Story = [{"event": "leased", "token": TOKEN}, Hang()]
KEPT: Story = [{"event": "result", "exit": 0, "outcome": "done", "message": "kept"}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """End of a command."""

    status: int
    out: str
    err: str
    engine: EngineServer
    bodies: list[Mapping[str, Any]]
    asked: list[Mapping[str, Any]]
    """Requests to the health agent."""
    supervisor: list[Mapping[str, Any]]

    @property
    def document(self) -> Any:
        """Document that was printed, which has the keys that the schema describes and no others."""
        found = json.loads(self.out)
        assert violations(found, SCHEMA) == []
        return found


def status(*serving: str) -> Story:
    profiles = [
        {"name": name, "state": "serving" if name in serving else "stopped"} for name in "ab"
    ]
    document = {"profiles": profiles, "committed": list(serving)}
    event = {"event": "result", "exit": 0, "outcome": "done", "message": "", "status": document}
    return [event]


class World:
    """Box, gateway's port and sockets of one test."""

    def __init__(self, root: Path) -> None:
        self.box = CliBox(root)
        self.box.install(
            applied("a"), applied("b", port=9001), applied("e", warm_up=WarmUp.EMBEDDING)
        )
        self.engine = BenchEngine()
        self.health: Mapping[str, Story] | None = {
            "lease": LEASED,
            "store-bench": KEPT,
            "accept": KEPT,
        }
        """Answers of the health agent; None: none runs."""
        self.supervisor: dict[str, Story] = {"status": status("a", "b")}
        self.gateway: dict[str, Any] = {}

    async def run(self, *words: str) -> Ran:
        """Run a command line to its end, in a thread."""
        async with EngineServer(self.engine) as server:
            return await self._run(server, *words)

    async def _run(self, server: EngineServer, *words: str) -> Ran:
        configuration = replace(Configuration(port=server.port), **self.gateway)
        (self.box.root / "applied" / GATEWAY_FILE).write_text(
            encode_configuration(configuration, "0.1.0")
        )
        out, err = io.StringIO(), io.StringIO()
        streams = Streams(out=Terminal(stream=out), err=Terminal(stream=err))
        arguments = build_parser().parse_args(["bench", *words], Arguments())
        with ExitStack() as stack:
            supervisor = stack.enter_context(FakeSupervisor(self.box.socket, self.supervisor))
            agent = None
            if self.health is not None:
                path = self.box.socket.with_name("health.sock")
                agent = stack.enter_context(FakeSupervisor(path, self.health))
            code = await asyncio.to_thread(bench.run, arguments, streams)
            return Ran(
                status=code,
                out=out.getvalue(),
                err=err.getvalue(),
                engine=server,
                bodies=self.engine.bodies,
                asked=list(agent.requests) if agent else [],
                supervisor=list(supervisor.requests),
            )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    for name, value in made.box.environment.items():
        if name.startswith("APPLIANCE_"):
            monkeypatch.setenv(name, value)
    return made


async def test_published_method(world: World) -> None:
    """Five tasks are asked twice, the first time to warm up; the table has each and the mean."""
    ran = await world.run("a")
    assert ran.status == 0
    assert len(ran.bodies) == 10
    assert {body["max_tokens"] for body in ran.bodies} == {4096}
    assert {body["temperature"] for body in ran.bodies} == {0.7}
    assert len({body["prompt"] for body in ran.bodies}) == 10
    lines = ran.out.splitlines()
    assert lines[0] == "a  command"
    assert lines[1].split()[-6:] == [
        "lru-cache", "merge-sort", "cron-parser", "web-route", "rate-limiter", "mean",
    ]  # fmt: skip
    assert lines[2].split()[0] == "tok/s"
    assert len(lines[2].split()) == 7
    assert "a: warm-up, one at a time  5/5" in ran.err
    assert "left" in ran.err


class Interrupted:
    """Bench in a process of its own, whose engine answers seven requests and then no more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._count = itertools.count(1)
        self._asked = asyncio.Event()

    async def _talk(self, talk: Talk) -> None:
        if next(self._count) <= 7:
            await self._world.engine(talk)
        else:
            self._asked.set()
            await talk.reader.read()

    async def run(self, *words: str, reader_ends: bool = False) -> tuple[int | None, str, str]:
        """Send SIGINT while the eighth request waits; return status, stdout and stderr."""
        box, world = self._world.box, self._world
        async with EngineServer(self._talk) as server:
            configuration = replace(Configuration(port=server.port), **world.gateway)
            (box.root / "applied" / GATEWAY_FILE).write_text(
                encode_configuration(configuration, "0.1.0")
            )
            path = box.socket.with_name("health.sock")
            with (
                FakeSupervisor(box.socket, world.supervisor),
                FakeSupervisor(path, world.health or {}),
            ):
                process = await asyncio.create_subprocess_exec(
                    *box.command("bench", *words), env=box.environment, stdout=PIPE, stderr=PIPE
                )
                await self._asked.wait()
                if reader_ends:
                    process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
                process.send_signal(signal.SIGINT)
                out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("reader_ends", [False, True])
async def test_ctrl_c_tells_what_was_measured_until_then(
    world: World, *, reader_ends: bool
) -> None:
    """The figures so far are printed with status 130, on stderr where the same Ctrl-C has ended ``| cat``."""
    status_, out, err = await Interrupted(world).run("a", reader_ends=reader_ends)
    assert status_ == 130
    assert "Traceback" not in err
    assert "invalid: interrupted after 7 of 10 requests" in err
    figures = err if reader_ends else out
    assert "INVALID: interrupted" in figures
    assert "lru-cache" in figures


async def test_an_interrupted_bench_prints_its_document(world: World) -> None:
    """Raw rows of the seven requests are in the JSON, which says that the figures do not count."""
    status_, out, _ = await Interrupted(world).run("a", "--json")
    document = json.loads(out)
    assert violations(document, SCHEMA) == []
    assert (status_, document["appliance"]["valid"]) == (130, False)
    assert document["appliance"]["invalid"] == "interrupted after 7 of 10 requests"


async def test_a_bench_without_a_terminal_is_never_silent_for_long(world: World) -> None:
    """A stage is told when it begins and when it ends, and a long wait in between each half minute."""
    clock, err = itertools.count(), io.StringIO()
    order = [("a", stage) for stage in stages(Workload(runs=1), first_run=1)]
    progress = BenchProgress(Terminal(stream=err), order, clock=lambda: float(next(clock)))
    progress.show(order[0][1], [])
    assert err.getvalue() == "a: warm-up, one at a time  0/5\n"
    for _ in range(100):
        progress.tick()
    told = err.getvalue().splitlines()[1:]
    assert len(told) > 3
    assert all("0/5  waiting for " in line for line in told)
    ran = await world.run("a")
    assert ran.err.splitlines()[0] == "a: warm-up, one at a time  0/5"


async def test_lease_is_held_and_figures_are_kept(world: World) -> None:
    """The bench's requests carry the lease's token, and the health agent keeps a summary."""
    ran = await world.run("a", "--exclusive")
    lease, store = ran.asked
    assert lease["args"] == {"names": ["a"], "exclusive": True, "text": "appliance bench"}
    assert {tuple(heard.header(b"x-appliance-lease")) for heard in ran.engine.heard} == {
        (TOKEN.encode(),)
    }
    assert store["verb"] == "store-bench"
    kept: Any = store["args"]
    assert kept["name"] == "a"
    assert "rows" not in kept["document"]["appliance"]
    assert TOKEN not in ran.out + ran.err


async def test_effective_rate_follows_from_the_raw_rows(world: World) -> None:
    """Sums of the raw times in the JSON give every rate in it; the concurrency was reached."""
    ran = await world.run("a", "--swarm", "1-2", "--json")
    document = ran.document
    ours = document["appliance"]
    assert ours["valid"]
    assert document["max_concurrent_requests"] == 2
    rows = [r for r in ours["rows"] if r["part"] == "swarm" and r["run"]]
    for level in ours["profiles"][0]["levels"]:
        these = [r for r in rows if r["concurrency"] == level["concurrency"]]
        wall_s = max(r["ended_s"] for r in these) - min(r["sent_s"] for r in these)
        tokens = sum(r["output_tokens"] for r in these)
        assert level["effective_tok_s"] == pytest.approx(tokens / wall_s)
        assert level["requests"] == len(these) == 4
        assert level["reached"]["most"] == level["concurrency"]
    highest = [r for r in rows if r["concurrency"] == 2]
    assert document["start_times"] == [r["sent_s"] for r in highest]
    assert document["ttfts"] == pytest.approx([r["arrivals_s"][0] - r["sent_s"] for r in highest])
    assert document["itls"][0] == pytest.approx(
        [
            b - a
            for a, b in zip(highest[0]["arrivals_s"], highest[0]["arrivals_s"][1:], strict=False)
        ]
    )
    assert not ran.err


async def test_real_traffic_makes_the_run_invalid(world: World, tmp_path: Path) -> None:
    """The bench ends at the first real request, says so, marks its JSON and keeps nothing."""
    world.engine = BenchEngine(tokens=1)
    asked_once = tmp_path / "asked"
    traffic: Story = [LEASED[0], WaitFor(asked_once), {"event": "traffic", "requests": 3}, Hang()]
    assert world.health is not None
    world.health = {**world.health, "lease": traffic}
    answer = world.engine.__call__

    async def script(talk: Any) -> None:
        if len(world.engine.bodies) == 2:
            asked_once.touch()
            await talk.reader.read()
        await answer(talk)

    async with EngineServer(script) as server:
        ran = await world._run(server, "a", "--json")
    assert ran.status == Exit.FAILED
    ours = ran.document["appliance"]
    assert (ours["valid"], ours["invalid"]) == (False, "3 real requests came meanwhile")
    assert [request["verb"] for request in ran.asked] == ["lease"]


async def test_traffic_is_no_fault_of_an_exclusive_run(world: World) -> None:
    """Requests of others wait, so that their number spoils nothing."""
    assert world.health is not None
    traffic: Story = [LEASED[0], {"event": "traffic", "requests": 3}, Hang()]
    world.health = {**world.health, "lease": traffic}
    assert (await world.run("a", "--exclusive")).status == 0


async def test_lost_lease_makes_the_run_invalid(world: World, tmp_path: Path) -> None:
    """Requests after the end of the lease were watched by nobody."""
    asked_once = tmp_path / "asked"
    lost: Story = [LEASED[0], WaitFor(asked_once), {"event": "lease-lost", "message": "a switch"}]
    assert world.health is not None
    world.health = {**world.health, "lease": lost}
    answer = world.engine.__call__

    async def script(talk: Any) -> None:
        asked_once.touch()
        if len(world.engine.bodies) == 2:
            await talk.reader.read()
        await answer(talk)

    async with EngineServer(script) as server:
        ran = await world._run(server, "a")
    assert ran.status == Exit.FAILED
    assert "INVALID: the lease ended: a switch; the figures below do not count" in ran.out
    assert "invalid: the lease ended: a switch" in ran.err


async def test_bench_without_a_health_agent_warns(world: World) -> None:
    """The figures count, nothing keeps them, and the warning names the next command."""
    world.health = None
    ran = await world.run("a")
    assert ran.status == 0
    assert (
        "go unnoticed: health agent not running: sudo systemctl start appliance-health" in ran.err
    )
    assert not ran.engine.heard[0].header(b"x-appliance-lease")


async def test_exclusive_bench_needs_the_health_agent(world: World) -> None:
    """Without it nothing can make real requests wait."""
    world.health = None
    with pytest.raises(UnreachableError, match="health agent not running"):
        await world.run("a", "--exclusive")


async def test_lease_of_another_bench_refuses(world: World) -> None:
    """The health agent's refusal is the command's."""
    refusal = {"event": "error", "exit": 75, "error": "busy", "message": "another bench runs"}
    world.health = {"lease": [refusal]}
    with pytest.raises(RequestRefusedError, match="another bench runs"):
        await world.run("a")


async def test_bench_whose_requests_all_fail_fails(world: World) -> None:
    """The reason is told by status and code."""
    world.engine = BenchEngine(refusal=(b"503 Busy", "model_not_active"))
    ran = await world.run("a")
    assert ran.status == Exit.FAILED
    assert "invalid: every request failed: 503 model_not_active" in ran.err
    assert "INVALID: every request failed" in ran.out
    assert "5 of 5 requests failed" in ran.out


async def test_engine_with_a_short_context_is_asked_for_less(world: World) -> None:
    """A refused length is halved until the engine takes it, and then stays."""
    world.engine = BenchEngine(most_tokens=1100)
    ran = await world.run("a", "--json")
    wanted = [body["max_tokens"] for body in ran.bodies]
    assert wanted[:3] == [4096, 2048, 1024]
    assert set(wanted[3:]) == {1024}
    assert ran.document["failed"] == 0


async def test_exact_length_is_the_engines_business(world: World) -> None:
    """A length that was given is asked for, and not halved."""
    ran = await world.run("a", "--tokens", "4", "--csv")
    assert {body["max_tokens"] for body in ran.bodies} == {4}
    assert all(body["ignore_eos"] for body in ran.bodies)
    head, *rows = ran.out.splitlines()
    assert head.startswith("profile,part,run,concurrency,prompt,depth,sent_s")
    assert len(rows) == 10
    assert rows[0].startswith("a,single,0,1,lru-cache,0,")


async def test_depth_is_counted_by_the_engine(world: World) -> None:
    """A first prompt tells how long the text must be; each depth has a row of llama-bench."""
    ran = await world.run("a", "--depth", "1000,2k", "--json")
    depth = ran.document["appliance"]["profiles"][0]["depth"]
    aimed = [row["n_prompt"] for row in depth if row["n_prompt"]]
    assert aimed == pytest.approx([1000 - 128, 2000 - 128], rel=0.08)
    assert all(row["avg_ts"] > 0 for row in depth)


async def test_profiles_that_serve_together_are_compared_in_turns(world: World) -> None:
    """Blocks come in the order ABBA BAAB without a switch; equal answers are told."""
    ran = await world.run("a", "b", "--tokens", "4", "--json")
    ours = ran.document["appliance"]
    assert ours["order"] == ["a", "b", "b", "a", "b", "a", "a", "b"]
    (compared,) = ours["comparisons"]
    assert compared["pairs"] == 4
    assert (compared["answers_same"], compared["answers_repeated"]) == (1.0, 1.0)
    assert {request["verb"] for request in ran.supervisor} == {"status"}
    assert "right 0" not in ran.out


async def test_wrong_answers_win_nothing(world: World) -> None:
    """A profile whose greedy answers differ is no winner, however fast it is."""
    world.engine = BenchEngine(broken=frozenset({"b"}))
    ran = await world.run("a", "b", "--runs", "1")
    assert "0% of the greedy answers are the same; each repeats 100% of its own" in ran.out
    assert "no winner:" in ran.out


async def test_profiles_that_cannot_serve_together_are_switched(world: World) -> None:
    """Each block is preceded by a switch where its profile does not serve."""
    world.supervisor["status"] = status("a")
    world.supervisor["switch"] = [
        {"event": "result", "exit": 1, "outcome": "failed", "message": "b did not start"}
    ]
    with pytest.raises(CliError, match="no switch to b: b did not start"):
        await world.run("a", "b")


class OneAtATime(dict[str, Story]):
    """Supervisor of which a serves, and after each switch the other one."""

    def __init__(self) -> None:
        super().__init__()
        self._names = itertools.cycle("ba")
        self._serving = "a"

    def __getitem__(self, verb: str) -> Story:
        """Return the answer to a verb."""
        if verb == "status":
            return status(self._serving)
        self._serving = next(self._names)
        return KEPT


async def test_each_turn_is_served_and_the_committed_one_comes_back(world: World) -> None:
    """Switches are made where a turn's profile does not serve, and one more in the end."""
    world.supervisor = OneAtATime()
    ran = await world.run("a", "b", "--tokens", "4")
    assert ran.status == 0
    switches = [request for request in ran.supervisor if request["verb"] == "switch"]
    assert [request["args"]["name"] for request in switches] == ["b", "a", "b", "a", "b", "a"]
    assert "switching to b\n" in ran.err
    assert "switching back to a\n" in ran.err
    assert [request["args"]["names"] for request in ran.asked if request["verb"] == "lease"] == [
        [name] for name in "abbabaab"
    ]


async def test_single_profile_must_serve(world: World) -> None:
    """A bench of one profile switches nothing, and names the command that does."""
    world.supervisor["status"] = status("b")
    with pytest.raises(CliError, match="a is stopped: appliance switch a"):
        await world.run("a")


async def test_baseline_is_accepted_after_a_valid_run(world: World) -> None:
    """The health agent is asked to accept, and its answer is shown."""
    ran = await world.run("a", "--save-baseline")
    assert [request["verb"] for request in ran.asked] == ["lease", "store-bench", "accept"]
    assert "kept" in ran.err


async def test_figures_that_nobody_keeps_are_shown(world: World) -> None:
    """A health agent whose store is full spoils no bench."""
    full = {"event": "error", "exit": 1, "error": "failed", "message": "the disk is full"}
    world.health = {"lease": LEASED, "store-bench": [full]}
    ran = await world.run("a")
    assert ran.status == 0
    assert "warning: the figures are not kept: the disk is full" in ran.err


@pytest.mark.parametrize(
    ("words", "title"),
    [
        (["a", "b", "--runs", "1"], "coding task"),
        (["a", "--swarm", "2"], "requests at a time"),
        (["a", "--depth", "1k"], "prompt tokens"),
    ],
)
async def test_plot_is_an_svg_that_loads_nothing(
    world: World, tmp_path: Path, words: list[str], title: str
) -> None:
    """The picture asks no server for anything, and says what its axis is."""
    path = tmp_path / "bench.svg"
    ran = await world.run(*words, "--plot", str(path))
    assert ran.status == 0
    text = path.read_text()
    assert "<svg" in text
    assert title in text
    assert re.findall(r"""(?:src|href)=["']([^"'#]*)""", text) == []


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["a", "a"],
        ["a", "b", "--save-baseline"],
        ["a", "--plot", "/nonexistent/place/x.svg"],
    ],
)
async def test_wrong_usage(world: World, words: list[str]) -> None:
    """The command line is refused before anything is measured."""
    with pytest.raises(CliError) as caught:
        await world.run(*words)
    assert caught.value.status == Exit.USAGE
    assert not world.engine.bodies


async def test_profile_without_text_is_refused(world: World) -> None:
    """An engine that embeds has no tokens to count."""
    with pytest.raises(BackendError, match="e generates no text"):
        await world.run("e")


async def test_gateway_beyond_this_machine_is_refused(world: World) -> None:
    """A bench through the network would measure the network."""
    world.gateway["addresses"] = ("192.0.2.1",)
    with pytest.raises(CliError, match="no address that only this machine"):
        await world.run("a")


async def test_key_of_the_variable_is_sent(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that wants keys from everybody gets one, which is shown nowhere."""
    monkeypatch.setenv(bench.KEY_VARIABLE, "sk-secret")
    ran = await world.run("a", "--json")
    assert ran.engine.heard[0].header(b"authorization") == [b"Bearer sk-secret"]
    assert "sk-secret" not in ran.out + ran.err
