"""The socket of processes that look at the box: its status, the GPUs, and nothing else."""

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from appliance.model.errors import BusyError, PermissionDeniedError, UnreachableError
from appliance.model.gateway import EngineMetrics
from appliance.model.operations import Kind, Phase
from appliance.model.operators import OperatorToken
from appliance.model.status import RecordedOperation, StatusDocument
from appliance.supervisor.access_policy import read_from_watcher
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.ownership import OperationRequest, Supervisor
from appliance.supervisor.status_feed import StatusFeed
from appliance.supervisor.status_verbs import EnginePageReader, LogReader, StatusVerbs
from appliance.supervisor.token_check import MOST_WRONG, TokenCheck
from appliance.supervisor.traffic_figures import counters_document
from appliance.supervisor.unit_memory import StatusReader
from appliance.system.credential_files import FileKeys, FileTokens
from appliance.system.daemon_clients import TokenOwners
from appliance.wire.async_client import open_conversation
from appliance.wire.control_events import OperationsRequest, StatusEvent
from appliance.wire.control_requests import CONTROL, GpuStateRequest, WatchStatusRequest
from appliance.wire.conversation import ErrorEvent, ResultEvent
from appliance.wire.json_values import object_in, objects_in
from appliance.wire.server import Peer
from appliance.wire.status_socket import (
    MOST_LOG_BYTES,
    MOST_LOG_CHARACTERS,
    MOST_LOG_LINES,
    STATUS,
    ClientRequestsRequest,
    CountersRequest,
    DocumentRequest,
    EngineMetricsRequest,
    EnginePageEvent,
    FollowRequest,
    GpuEvidenceRequest,
    LogTailRequest,
    OperationEvent,
    RecordedOperationRequest,
    StatusSocketEvent,
    StatusSocketRequest,
    WatchRequest,
)
from tests.fakes.operator_accounts import BO, FakeAccounts, token_desk
from tests.fakes.ports import FakeHost
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.waiting import settle

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))
ANA, DYNAMIC = Peer(pid=1, uid=1000, gid=1000), Peer(pid=1, uid=61200, gid=61200)


class LookedAtSupervisor(Supervisor):
    """A supervisor whose looks wake the feeds, as the process does it."""

    feeds: tuple[StatusFeed, ...] = ()

    def _look_at(self, observed: Any) -> None:
        super()._look_at(observed)
        for feed in self.feeds:
            feed.notice()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A supervised box, aeon serving, with its status socket and its control socket."""

    supervisor: Supervisor
    fakes: FakePorts
    readers: Sequence[StatusReader]
    """Readers for whom a document was built that they asked for."""
    path: Path
    control: Path

    async def ask(self, request: StatusSocketRequest) -> list[StatusSocketEvent]:
        """Every event of a request that is answered at once."""
        async with asyncio.timeout(20), open_conversation(STATUS, self.path, request) as events:
            return [event async for event in events]


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Watched]:
    """The status socket and the control socket of a supervisor, served."""
    fakes = FakePorts(BOX, "aeon")
    fakes.units.patience = sys.maxsize
    fakes.units.is_quiet = True
    fakes.serve("aeon")
    supervisor = fakes.supervisor_as(LookedAtSupervisor, FakeProfiles(BOX))
    traffic = fakes.traffic(supervisor)
    sampler = fakes.memory_sampler(supervisor.last_look)
    status = fakes.status(supervisor, sampler, traffic)

    readers: list[StatusReader] = []

    async def document(reader: StatusReader) -> StatusDocument:
        readers.append(reader)
        return await status.document(reader)

    async def known() -> StatusDocument:
        return await status.document(StatusReader.WATCHER)

    async def gpus() -> Mapping[str, Any]:
        return {"gpus": [], "taken_s": 3.5}

    feed = StatusFeed(known, supervisor.signature)
    check = TokenCheck(
        FileTokens(directory),
        FakeAccounts(BO).of_uid,
        now_unix_s=fakes.clock.unix_s,
        monotonic_s=fakes.clock.monotonic_s,
    )
    verbs = StatusVerbs(
        feed,
        status=document,
        gpus=gpus,
        operations=status,
        events=supervisor.events,
        log=LogReader(fakes.host, fakes.clock, lambda: BOX),
        tokens=check,
        requests=ClientRequests(fakes.gateway),
        counters=partial(counters_document, traffic, supervisor.tally),
        pages=EnginePageReader(supervisor.last_look, fakes.backend),
        resumed=supervisor.resumed,
    )
    control = ControlVerbs(
        supervisor,
        status=status.document,
        keys=FileKeys(directory),
        tokens=token_desk(directory),
        requests=ClientRequests(fakes.gateway),
        now_unix_s=fakes.clock.unix_s,
        gpus=gpus,
    )
    supervisor.feeds = (feed, control.feed)
    paths = {directory / "status": verbs.serve, directory / "control": control.serve}
    with contextlib.ExitStack() as opened:
        # Without samples each status would wait for one, in real time.
        tasks = [asyncio.create_task(supervisor.run()), asyncio.create_task(sampler.run())]
        for path, serve in paths.items():
            listener = opened.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()
            listener.settimeout(0)
            tasks.append(asyncio.create_task(serve(listener)))
        try:
            yield Watched(
                supervisor=supervisor,
                fakes=fakes,
                readers=readers,
                path=directory / "status",
                control=directory / "control",
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def test_the_owner_of_a_token_is_told(tmp_path: Path) -> None:
    """A daemon that is asked to act by a token learns whose it is, or that nobody may act by it."""
    async with watched(tmp_path) as box:
        assert not await TokenOwners(box.path).is_any_usable()
        token = OperatorToken(name="phone", uid=BO.uid, user=BO.user)
        text, _ = FileTokens(tmp_path).add(token, "ana", 0.0)
        owners = TokenOwners(box.path)
        assert await owners.is_any_usable()
        assert str(await owners.operator_of(text)) == "bo (token phone)"
        for wrong in (text[:-1], "apt_", "x" * 1000, "\udcff"):
            with pytest.raises(PermissionDeniedError, match="not known, or was removed"):
                await owners.operator_of(wrong)
        for _ in range(MOST_WRONG):
            with contextlib.suppress(PermissionDeniedError, BusyError):
                await owners.operator_of(f"{text}0")
        with pytest.raises(BusyError):
            await owners.operator_of(f"{text}0")
        assert str(await owners.operator_of(text)) == "bo (token phone)"


async def test_nobody_acts_without_the_supervisor(tmp_path: Path) -> None:
    """The error is that of a daemon that does not answer, and says nothing of the token."""
    with pytest.raises(UnreachableError):
        await TokenOwners(tmp_path / "none").operator_of("apt_a_b")
    with pytest.raises(UnreachableError):
        await TokenOwners(tmp_path / "none").is_any_usable()


async def test_a_watch_tells_a_switch_while_it_runs(tmp_path: Path) -> None:
    """The document comes at once; an operation, and what serves after it, come by themselves."""
    async with (
        watched(tmp_path) as box,
        asyncio.timeout(30),
        open_conversation(STATUS, box.path, WatchRequest()) as events,
    ):
        seen: list[tuple[str, ...]] = []
        async for event in events:
            assert isinstance(event, StatusEvent)
            rows = event.status.profiles
            seen.append(tuple(row.name for row in rows if row.state == "serving"))
            operation = event.status.operation
            if len(seen) == 1:
                await box.supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
            elif seen[-1] == ("genesis",) and operation is None:
                break
        assert seen[0] == ("aeon",)


async def test_a_watch_asks_nobody(tmp_path: Path) -> None:
    """A client that watches all day causes no question to the gateway, engines and GPUs."""
    async with watched(tmp_path) as box:
        async with asyncio.timeout(30), open_conversation(STATUS, box.path, WatchRequest()) as told:
            document = await anext(told)
        assert isinstance(document, StatusEvent)
        assert box.fakes.gateway.questions == 0
        assert box.fakes.host.gpu_readings == 0
        assert document.status.gateway is None


async def test_an_operators_watch_has_the_figures_of_a_status(tmp_path: Path) -> None:
    """The gateway's figures come with each document, a switch as it happens; the GPUs can be asked for."""
    async with (
        watched(tmp_path) as box,
        asyncio.timeout(30),
        open_conversation(CONTROL, box.control, WatchStatusRequest()) as events,
    ):
        phases: list[str] = []
        committed: object = None
        async for event in events:
            assert isinstance(event, StatusEvent)
            committed = event.status.committed
            gateway = event.status.gateway
            assert gateway is not None
            assert gateway.state == "up"
            operation = event.status.operation
            if not phases:
                phases.append("none")
                await box.supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=("genesis",)))
            elif operation is not None:
                phases.append(operation.phase)
            elif len(phases) > 1 or committed == ["genesis"]:
                break
        assert committed == ["genesis"]
        async with open_conversation(CONTROL, box.control, GpuStateRequest()) as answer:
            assert await anext(answer) == ResultEvent(details={"gpus": [], "taken_s": 3.5})


async def test_a_phase_is_measured_by_how_long_it_took_before(tmp_path: Path) -> None:
    """The first switch to a profile has nothing to go by; the next one to it has."""
    async with watched(tmp_path) as box:
        told: list[set[bool]] = []
        for name in ("genesis", "aeon", "genesis"):
            running = await box.supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=(name,)))
            usual = set[bool]()
            async for _ in running.transaction.feed.follow():
                answer = (await box.ask(DocumentRequest()))[0]
                assert isinstance(answer, ResultEvent)
                if operation := object_in(object_in(answer.details, "status"), "operation"):
                    usual.add(operation["usual_s"] is not None)
            told.append(usual)
        assert [True in one for one in told] == [False, False, True]


async def test_requests_of_clients_are_told_as_the_gateway_lists_them(tmp_path: Path) -> None:
    """Without an answer of the gateway the request is refused, not answered with none."""
    async with watched(tmp_path) as box:
        row = {"id": "ab-1", "profile": "aeon"}
        box.fakes.gateway.listed["ab-1"] = dict(row)
        assert await box.ask(ClientRequestsRequest()) == [
            ResultEvent(details={"requests": [row], "left_off": 0})
        ]
        box.fakes.gateway.away = True
        (refused,) = await box.ask(ClientRequestsRequest())
        assert isinstance(refused, ErrorEvent)
        assert "the gateway does not answer" in refused.message


async def test_only_a_person_is_expected_to_look_again(tmp_path: Path) -> None:
    """A question says whether a person looks; of one that does not, as of a collector, nothing follows."""
    async with watched(tmp_path) as box:
        await box.ask(DocumentRequest())
        await box.ask(DocumentRequest(for_person=True))
        assert box.readers == [StatusReader.SCRAPER, StatusReader.PERSON]


async def test_a_single_question_is_answered_in_full(tmp_path: Path) -> None:
    """One status is that of `appliance status`, with the gateway's figures; the GPUs are apart."""
    async with watched(tmp_path) as box:
        (answer,) = await box.ask(DocumentRequest())
        assert isinstance(answer, ResultEvent)
        status = answer.details["status"]
        assert isinstance(status, dict)
        assert status["committed"] == ["aeon"]
        assert status["gateway"]["state"] == "up"
        assert await box.ask(GpuEvidenceRequest()) == [
            ResultEvent(details={"gpus": [], "taken_s": 3.5})
        ]


async def test_a_follower_is_told_each_operation_whole_and_in_order(tmp_path: Path) -> None:
    """Every phase of one operation is told, then the next operation, over one connection."""
    genesis = OperationRequest(kind=Kind.SWITCH, names=("genesis",))
    aeon = OperationRequest(kind=Kind.SWITCH, names=("aeon",))

    async def told(box: Watched) -> list[tuple[int, str, str]]:
        seen: list[tuple[int, str, str]] = []
        async with open_conversation(STATUS, box.path, FollowRequest()) as events:
            await box.supervisor.submit(genesis)
            async for event in events:
                assert isinstance(event, OperationEvent)
                change = event.change
                seen.append((event.operation, str(change["event"]), str(change.get("phase", ""))))
                if change["event"] == "result" and event.operation == 1:
                    await box.supervisor.submit(aeon)
                elif change["event"] == "result":
                    return seen
        return seen

    async with watched(tmp_path) as box, asyncio.timeout(30):
        seen = await told(box)
    assert seen[0] == (1, "accepted", "")
    phases = [phase for number, _, phase in seen if number == 1 and phase]
    order = [phase.value for phase in Phase]
    assert sorted(phases, key=order.index) == phases
    assert {"preflight", "drain", "stop", "start", "load", "warm-up", "commit"} <= {*phases}
    assert [number for number, _, _ in seen] == sorted(number for number, _, _ in seen)
    assert seen[-1] == (2, "result", "")


async def test_operations_on_record_are_told_newest_first(tmp_path: Path) -> None:
    """With who asked and the time in each phase; one that is not on record is null."""
    async with watched(tmp_path) as box, asyncio.timeout(30):
        for name in ("genesis", "aeon"):
            running = await box.supervisor.submit(OperationRequest(kind=Kind.SWITCH, names=(name,)))
            async for _ in running.transaction.feed.follow():
                pass
            await asyncio.sleep(0)
        (answer,) = await box.ask(OperationsRequest(1))
        assert isinstance(answer, ResultEvent)
        (row,) = objects_in(answer.details, "operations")
        assert (row["id"], row["target"], row["outcome"]) == (2, ["aeon"], "done")
        assert "preflight" in object_in(row, "phases_ms")
        for number, expected in ((2, row["message"]), (9, None)):
            (one,) = await box.ask(RecordedOperationRequest(number))
            assert isinstance(one, ResultEvent)
            assert object_in(one.details, "operation").get("message") == expected


async def test_the_operation_that_runs_has_the_fields_of_one_that_is_over(tmp_path: Path) -> None:
    """As soon as it is accepted, alone and in the list; those that only the end gives are null."""
    async with watched(tmp_path) as box, asyncio.timeout(30):
        request = OperationRequest(kind=Kind.SWITCH, names=("genesis",))
        running = await box.supervisor.submit(request)
        began = await asked_operation(box, 1)
        assert (began["state"], began["phase"]) == ("running", "preflight")
        assert (began["outcome"], began["age_s"]) == (None, None)
        (answer,) = await box.ask(OperationsRequest())
        assert isinstance(answer, ResultEvent)
        assert object_in(answer.details, "running")["id"] == 1
        assert answer.details["operations"] == []
        async for _ in running.transaction.feed.follow():
            pass
        await asyncio.sleep(0)
        over = await asked_operation(box, 1)
        assert (over["state"], over["phase"], over["outcome"]) == ("over", None, "done")
        assert began.keys() == over.keys() == get_type_hints(RecordedOperation).keys()
        (answer,) = await box.ask(OperationsRequest())
        assert isinstance(answer, ResultEvent)
        assert answer.details["running"] is None
        assert [row["id"] for row in objects_in(answer.details, "operations")] == [1]


async def asked_operation(box: Watched, number: int) -> Mapping[str, Any]:
    """Return one operation as the socket tells it."""
    (answer,) = await box.ask(RecordedOperationRequest(number))
    assert isinstance(answer, ResultEvent)
    return object_in(answer.details, "operation")


async def test_counters_are_those_of_gateway_and_operations(tmp_path: Path) -> None:
    """Each operation is counted once, with its phases; the gateway's figures pass as they are."""
    async with watched(tmp_path) as box:
        box.fakes.gateway.figures["aeon"] = {"requests": 7, "histograms": {"x": {"counts": [1]}}}
        running = await box.supervisor.submit(
            OperationRequest(kind=Kind.SWITCH, names=("genesis",))
        )
        async for _event in running.transaction.feed.follow():
            pass
        await settle()
        (answer,) = await box.ask(CountersRequest())
        assert isinstance(answer, ResultEvent)
        gateway, operations = (answer.details[name] for name in ("gateway", "operations"))
        assert gateway == {"uptime_s": 1.0, "profiles": box.fakes.gateway.figures, "keys": {}}
        assert isinstance(operations, dict)
        outcomes = operations["outcomes"]
        assert {k: n for k, n in outcomes["switch"].items() if n} == {"done": 1}
        assert set(outcomes) == set(Kind)
        assert set(outcomes["repair"].values()) == {0}
        phases = operations["switch_phases"]
        assert {"preflight", "stop", "load", "commit"} <= set(phases)
        bounds = operations["bounds_s"]
        assert all(
            (len(p["counts"]), sum(p["counts"])) == (len(bounds) + 1, 1) for p in phases.values()
        )
        box.fakes.gateway.away = True
        box.fakes.systemd.now_s += 5.0
        (answer,) = await box.ask(CountersRequest())
        assert isinstance(answer, ResultEvent)
        assert answer.details["gateway"] is None


async def test_pages_of_engines_come_in_parts(tmp_path: Path) -> None:
    """A page of any length, of any characters, arrives as it is; the result tells which are whole."""
    text = "".join(f'x{{a="\U0001f600\\x00"}} {number}\n' for number in range(20_000))
    async with watched(tmp_path) as box:
        box.fakes.backend.pages["aeon"] = EngineMetrics(text=text, truncated=True)
        *parts, result = await box.ask(EngineMetricsRequest())
        assert len(parts) > 4
        assert all(isinstance(part, EnginePageEvent) and part.profile == "aeon" for part in parts)
        assert "".join(p.text for p in parts if isinstance(p, EnginePageEvent)) == text
        assert result == ResultEvent(details={"profiles": {"aeon": "truncated"}})
        box.fakes.backend.pages["aeon"] = EngineMetrics(text="up 1\n")
        *parts, result = await box.ask(EngineMetricsRequest())
        assert parts == [EnginePageEvent(profile="aeon", text="up 1\n")]
        assert result == ResultEvent(details={"profiles": {"aeon": "complete"}})
        box.fakes.backend.pages.clear()
        assert await box.ask(EngineMetricsRequest()) == [
            ResultEvent(details={"profiles": {"aeon": "absent"}})
        ]


@pytest.mark.parametrize("verb", [verb for verb in CONTROL.verbs if verb not in STATUS.verbs])
async def test_no_verb_changes_anything(tmp_path: Path, verb: str) -> None:
    """Every verb of operators is unknown here, whatever its arguments."""
    async with watched(tmp_path) as box:
        reader, writer = await asyncio.open_unix_connection(box.path)
        line = CONTROL.encode_request(CONTROL.decode_request("status", {}))
        writer.write(line.replace(b'"status"', b'"%s"' % verb.encode()))
        closing = STATUS.decode_event((await reader.read()).splitlines()[-1])
        writer.close()
        assert isinstance(closing, ErrorEvent)
        assert closing.kind == "bad-request"
        assert not box.fakes.store.rows


def test_engines_are_refused_and_others_read() -> None:
    """A process of an engine gets no status, also as a member of the group."""
    assert read_from_watcher("watch", {}, ANA) == WatchRequest()
    with pytest.raises(PermissionDeniedError, match="is an engine"):
        read_from_watcher("watch", {}, DYNAMIC)


def test_the_signature_changes_with_the_box() -> None:
    """Units, committed names, holds and applied profiles change it; time and signals do not."""
    fakes = FakePorts(BOX, "aeon")
    fakes.units.is_quiet = True
    profiles = FakeProfiles(BOX)
    supervisor = fakes.supervisor(profiles)
    seen = [supervisor.signature()]
    supervisor._look_at(fakes.systemd.observed(BOX))
    seen.append(supervisor.signature())
    fakes.systemd.now_s += 100.0
    fakes.units.version += 1
    supervisor._look_at(fakes.systemd.observed(BOX))
    assert supervisor.signature() == seen[-1]
    fakes.serve("aeon")
    supervisor._look_at(fakes.systemd.observed(BOX))
    seen.append(supervisor.signature())
    fakes.commitment.names = ("genesis",)
    seen.append(supervisor.signature())
    fakes.commitment.until = "forever"
    seen.append(supervisor.signature())
    profiles.applied = catalogue(applied("aeon", "gpu-all"))
    supervisor.reload()
    seen.append(supervisor.signature())
    assert all(a != b for a, b in pairwise(seen))


async def test_the_log_of_a_profile_is_told(tmp_path: Path) -> None:
    """A profile's last lines come; of a name that is not applied, and too many, none do."""
    async with watched(tmp_path) as box:
        [result] = (await box.ask(LogTailRequest("aeon", 5)))[-1:]
        assert isinstance(result, ResultEvent)
        assert result.details == {"lines": ["last words of aeon"]}
        for request in (
            LogTailRequest("../aeon"),
            LogTailRequest("aeon", 201),
            LogTailRequest("aeon", 0),
        ):
            [refusal] = (await box.ask(request))[-1:]
            assert isinstance(refusal, ErrorEvent)


LOGGED_BOX = catalogue(applied("aeon", "gpu-all"))


class ChattyHost(FakeHost):
    """Host whose engines log long lines; counts how many are read at once."""

    def __init__(self, line: str) -> None:
        super().__init__(FakePorts(LOGGED_BOX).processes)
        self.line = line
        self.at_once = 0
        self.most_at_once = 0

    async def log_tail(self, name: str, lines: int, *, since_unix_s: float) -> Sequence[str]:
        assert name == "aeon"
        assert since_unix_s >= 0
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return [f"{number} {self.line}" for number in range(lines)]


def reader(host: ChattyHost) -> LogReader:
    return LogReader(host, FakePorts(LOGGED_BOX).clock, lambda: LOGGED_BOX)


async def test_long_lines_are_cut_and_the_newest_are_told() -> None:
    """Lines of 100,000 characters of three bytes make no answer above the limit of a line."""
    lines = await reader(ChattyHost("\u20ac" * 100_000)).lines("aeon", MOST_LOG_LINES)
    assert max(map(len, lines)) == MOST_LOG_CHARACTERS
    assert sum(len(line.encode()) for line in lines) <= MOST_LOG_BYTES
    assert lines[-1].startswith(f"{MOST_LOG_LINES - 1} ")
    assert len(lines) == MOST_LOG_BYTES // len(lines[-1].encode())


async def test_lone_surrogates_of_a_log_are_no_fault() -> None:
    """An engine may log bytes that are no text."""
    assert await reader(ChattyHost("\udcff")).lines("aeon", 1) == ["0 ?"]


async def test_one_journalctl_runs_at_a_time() -> None:
    """Many readers at once wait for one another."""
    host = ChattyHost("x")
    read = reader(host)
    await asyncio.gather(*(read.lines("aeon", 3) for _ in range(20)))
    assert host.most_at_once == 1
