"""The supervisor and the gateway, over a real gateway.sock."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.gateway.meter import Meter
from appliance.gateway.routing_table import RoutingTable
from appliance.gateway.supervisor_commands import GatewayServer, SupervisorCommands
from appliance.model.gateway import Standing, State
from appliance.system.socket_gateway import SocketGateway
from appliance.wire.gateway import (
    GatewayAnswer,
    GatewayCommand,
    ReloadCommand,
    encode_state,
    verb_of,
)
from tests.fakes.gateway_states import AEON, BOX, GENESIS, idle_requests
from tests.waiting import PATIENCE_S, settle, until

Answer = dict[str, object]


class Traffic:
    """Requests under way, that end when told to."""

    def __init__(self) -> None:
        self.drains: list[tuple[tuple[str, ...], float]] = []
        self.end = asyncio.Event()
        self.cancelled = asyncio.Event()

    def in_flight(self, names: Iterable[str]) -> int:
        return len(tuple(names))

    async def drain(self, names: Iterable[str], timeout_s: float) -> tuple[int, int]:
        self.drains.append((tuple(names), timeout_s))
        try:
            async with asyncio.timeout(timeout_s):
                await self.end.wait()
        except TimeoutError:
            return 2, 1
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return 3, 0


class Gateway:
    """A gateway's control end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.table = RoutingTable(BOX)
        self.traffic = Traffic()
        self.meter = Meter()
        self.reloads = 0
        self.may_reload = asyncio.Event()
        """Event that a reload waits for before profiles are read."""
        self.may_reload.set()
        self.fault: Exception | None = None
        self.verbs: list[str] = []
        self._commands = SupervisorCommands(
            self.table, self.traffic, self.meter, idle_requests(self.table), reload=self.reload
        )
        self.control = GatewayServer(self.do)

    async def do(self, command: GatewayCommand) -> GatewayAnswer:
        self.verbs.append(verb_of(command))
        if isinstance(command, ReloadCommand):
            await self.may_reload.wait()
        return await self._commands.do(command)

    def reload(self) -> None:
        self.reloads += 1
        if self.fault is not None:
            raise self.fault

    async def ask(self, *lines: object) -> list[Answer]:
        """Requests on one connection, and their answers."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        answers = []
        for line in lines:
            raw = line if isinstance(line, bytes) else json.dumps(line).encode()
            writer.write(raw + b"\n")
            answers.append(json.loads(await reader.readline()))
        writer.close()
        await writer.wait_closed()
        return answers


@asynccontextmanager
async def controlled(path: Path) -> AsyncIterator[Gateway]:
    gateway = Gateway(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        serving = asyncio.create_task(gateway.control.serve(listener))
        try:
            yield gateway
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            await gateway.control.close()
            path.unlink()  # noqa: ASYNC240


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with controlled(tmp_path / "gateway.sock") as gateway:
        yield gateway


@asynccontextmanager
async def telling(gateway: SocketGateway) -> AsyncIterator[None]:
    """The supervisor's end, at work."""
    running = asyncio.create_task(gateway.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until_taken(table: RoutingTable, state: State) -> None:
    async with asyncio.timeout(5):
        while table.state != state:
            await table.changed()


# --- the wire ------------------------------------------------------------------------


async def test_one_connection_serves_many_requests(gateway: Gateway) -> None:
    """Each line has its answer, and a line that makes no sense costs no connection."""
    gateway.meter.begin("aeon", None)
    answers = await gateway.ask(
        {"verb": "route", "state": encode_state(AEON)},
        {"verb": "hold", "names": ["aeon"]},
        {"verb": "stats"},
        b"{",
        [],
        {"verb": "fly"},
        {"verb": "hold", "names": "aeon"},
        {"verb": "route", "state": 3},
        b"[" * 100_000,
        {"verb": "release", "state": encode_state(GENESIS)},
    )
    assert [answer["ok"] for answer in answers] == [True] * 3 + [False] * 6 + [True]
    assert (answers[1]["waiting"], answers[-1]["released"]) == (1, 1)
    assert gateway.table.state == GENESIS


@pytest.mark.parametrize("timeout_s", [None, "1", True, -1, 1e9, float("nan")])
async def test_a_drain_has_an_end(gateway: Gateway, timeout_s: object) -> None:
    """No number, or one that is no time, is refused."""
    (answer,) = await gateway.ask({"verb": "drain", "names": [], "timeout_s": timeout_s})
    assert answer["ok"] is False
    assert gateway.traffic.drains == []


async def test_a_line_that_does_not_end_ends_the_connection(gateway: Gateway) -> None:
    """A line without an end cannot fill the supervisor's memory."""
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b"x" * (2 << 20))
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_who_has_handed_over_answers_no_more(gateway: Gateway) -> None:
    """A process that has handed over takes no state, which would get lost; drains go on."""
    drain = {"verb": "drain", "names": ["aeon"], "timeout_s": 5}
    draining = asyncio.create_task(gateway.ask(drain))
    await until(lambda: gateway.traffic.drains)
    reader, writer = await asyncio.open_unix_connection(gateway.path)
    writer.write(b'{"verb": "stats"}\n')
    assert await reader.readline()
    gateway.control.retire()
    writer.write(b'{"verb": "hold", "names": ["aeon"]}\n')
    async with asyncio.timeout(5):
        assert await reader.read() == b""
        gateway.traffic.end.set()
        assert (await draining)[0]["ok"] is True
    writer.close()
    await writer.wait_closed()
    assert gateway.table.state.held == frozenset()


async def test_the_socket_stays_when_its_server_ends(tmp_path: Path) -> None:
    """The socket is systemd's, and the next process of the gateway answers on it."""
    path = tmp_path / "gateway.sock"
    async with controlled(path):
        pass  # it unlinks the file itself, which must still be there


# --- the supervisor's end ------------------------------------------------------------


async def test_the_gateway_learns_what_serves(gateway: Gateway) -> None:
    """Told once it goes by it; told again it is told again."""
    ours = SocketGateway(gateway.path)
    async with telling(ours):
        ours.route(AEON)
        await until_taken(gateway.table, AEON)
        ours.route(GENESIS)
        await until_taken(gateway.table, GENESIS)


async def test_a_gateway_that_comes_late_is_told(tmp_path: Path) -> None:
    """The first look after it is there is soon enough; nothing waits for it."""
    path = tmp_path / "gateway.sock"
    ours = SocketGateway(path, repeat_s=0.0)
    async with telling(ours):
        ours.route(AEON)
        await settle()
        async with controlled(path) as gateway:
            ours.route(AEON)
            await until_taken(gateway.table, AEON)
        async with controlled(path) as gateway:
            ours.route(AEON)
            await until_taken(gateway.table, AEON)


async def test_a_state_is_sent_once_however_often_the_box_is_looked_at(gateway: Gateway) -> None:
    """A changed state is sent at once; one that was sent, held or released is not repeated for a while."""
    ours = SocketGateway(gateway.path, repeat_s=60.0)
    held = replace(AEON, held=frozenset({"aeon"}))
    stopped = replace(held, standings={"aeon": Standing.DOWN})
    async with telling(ours):
        for state in (AEON, held, GENESIS, AEON):
            if state == held:
                await ours.hold(["aeon"])
            elif state == GENESIS:
                await ours.release(GENESIS)
            for _ in range(4):
                ours.route(state)
                await until_taken(gateway.table, state)
                if state == held:
                    ours.route(stopped)  # requests of a held profile wait whatever its unit does
                await ours.stats()  # time for a repetition to arrive
    changes = [verb for verb in gateway.verbs if verb != "stats"]
    assert changes == ["route", "hold", "release", "route"]


async def test_a_hold_of_an_unacknowledged_state_is_followed_by_that_state(
    gateway: Gateway,
) -> None:
    """The gateway's state after a hold is known only if its state before was known."""
    ours = SocketGateway(gateway.path, repeat_s=60.0)
    ours.route(AEON)
    await ours.hold(["aeon"])
    async with telling(ours):
        await until_taken(gateway.table, replace(AEON, held=frozenset({"aeon"})))


async def test_an_operation_holds_drains_and_releases(gateway: Gateway) -> None:
    """Each step says what became of requests."""
    ours = SocketGateway(gateway.path)
    ours.route(AEON)
    gateway.table.take(AEON)
    for _ in range(3):
        gateway.meter.begin("aeon", None)
    assert await ours.hold(["aeon", "genesis"]) == "3 requests wait"
    assert gateway.table.readiness("aeon", None) is False
    gateway.traffic.end.set()
    assert await ours.drain(["aeon"], 30.0) == "3 finished"
    assert await ours.release(GENESIS) == "3 requests go on"
    assert gateway.table.readiness("genesis", None) is True
    assert gateway.traffic.drains == [(("aeon",), 30.0)]


async def test_a_drain_tells_what_it_cut(gateway: Gateway) -> None:
    """After its deadline the rest is cut."""
    assert await SocketGateway(gateway.path).drain(["aeon"], 0.05) == (
        "2 finished, 1 cut after 0.05 s"
    )


async def test_a_drain_that_is_cancelled_cuts_nobody(gateway: Gateway) -> None:
    """A cancelled drain cuts no request of the profile that goes on serving."""
    drain = asyncio.create_task(SocketGateway(gateway.path).drain(["aeon"], 30.0))
    await until(lambda: gateway.traffic.drains)
    drain.cancel()
    async with asyncio.timeout(5):
        await gateway.traffic.cancelled.wait()


async def test_news_on_their_way_do_not_undo_a_hold(gateway: Gateway) -> None:
    """A look from before the hold may be told after it."""
    ours = SocketGateway(gateway.path)
    ours.route(AEON)
    await ours.hold(["aeon"])
    async with telling(ours):
        await until(lambda: gateway.verbs == ["hold", "route"])
        assert gateway.table.state.held == {"aeon"}
        assert gateway.table.state.standing("aeon") is Standing.SERVING


async def test_figures_come_back(gateway: Gateway) -> None:
    """Figures come back, with the time since when they count."""
    gateway.meter.begin("aeon", None)
    stats = await SocketGateway(gateway.path, figures_s=PATIENCE_S).stats()
    assert stats is not None
    assert stats.keys() == {"profiles", "keys", "uptime_s", "bounds_s"}


async def test_profiles_are_read_again(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    """Also by a gateway that could not at first; what it cannot read stays as it was."""
    ours = SocketGateway(gateway.path)
    gateway.fault = OSError("damaged")
    async with telling(ours):
        ours.reload()
        await until(lambda: gateway.reloads)
        gateway.fault = None
        ours.route(AEON)
        await until(lambda: gateway.reloads >= 2)
    assert "keys and profiles stay as they were" in caplog.text
    assert "reload: not read: damaged" in caplog.text


async def test_no_state_is_sent_before_the_first_look(gateway: Gateway) -> None:
    """A supervisor that has just begun has the profiles read again; clients keep being served meanwhile."""
    gateway.table.take(AEON)
    ours = SocketGateway(gateway.path)
    async with telling(ours):
        ours.reload()
        await until(lambda: gateway.reloads)
        await ours.stats()  # after whatever the reload was followed by
        assert set(gateway.verbs) == {"reload", "stats"}
        assert gateway.table.state == AEON
        ours.route(GENESIS)
        await until_taken(gateway.table, GENESIS)


async def test_an_apply_during_a_reload_is_read_too(gateway: Gateway) -> None:
    """A reload that is asked for while the gateway reads an older manifest is not taken for done."""
    ours = SocketGateway(gateway.path)
    gateway.may_reload.clear()
    async with telling(ours):
        ours.reload()
        await until(lambda: "reload" in gateway.verbs)
        ours.reload()
        gateway.may_reload.set()
        await until(lambda: gateway.reloads >= 2)


async def test_who_is_hung_up_on_asks_the_next_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The one that has just handed over closes what it had accepted; no step is skipped for it."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        if len(asked) > 1:
            writer.write(b'{"ok": true, "waiting": 2}\n')
        writer.close()

    server = await asyncio.start_unix_server(answer, tmp_path / "gateway.sock")
    try:
        ours = SocketGateway(tmp_path / "gateway.sock")
        assert await ours.hold(["aeon"]) == "2 requests wait"
    finally:
        server.close()
    assert asked[0] == asked[1]
    assert "no gateway" not in caplog.text


@pytest.mark.parametrize("how", ["absent", "mute", "hangs up", "babbles", "refuses"])
async def test_nothing_fails_without_a_gateway(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every step is skipped within moments, and the journal says so once."""
    path = tmp_path / "gateway.sock"
    words = {"hangs up": b"", "babbles": b"hello\n", "refuses": b'{"ok": false, "error": "no"}\n'}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        if how == "mute":
            await reader.read()
        writer.write(words.get(how, b""))
        writer.close()

    server = None if how == "absent" else await asyncio.start_unix_server(answer, path)
    ours = SocketGateway(path, patience_s=0.05)
    try:
        async with asyncio.timeout(5):
            assert await ours.hold(["aeon"]) is None
            assert await ours.drain(["aeon"], 0.0) is None
            assert await ours.release(AEON) is None
            assert await ours.stats() is None
    finally:
        if server is not None:
            server.close()
    assert caplog.text.count("the gateway does not answer (") == 1


async def test_a_gateway_that_is_back_is_said_to_be(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    """One line when it goes, one when it comes."""
    caplog.set_level("INFO")
    there = gateway.path.rename(gateway.path.with_name("elsewhere"))
    ours = SocketGateway(gateway.path, figures_s=PATIENCE_S)
    assert await ours.stats() is None
    there.rename(gateway.path)
    assert await ours.stats() is not None
    assert await ours.stats() is not None
    assert caplog.text.count("the gateway answers") == 1
