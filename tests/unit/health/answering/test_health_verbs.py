"""Verbs of health.sock, asked over the socket, with a real store behind them."""

import asyncio
import os
import pwd
import socket
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.health.agent import AWAY, HealthAgent
from appliance.health.answering.alert_verbs import AlertVerbs
from appliance.health.answering.health_verbs import HealthVerbs, read_for_health
from appliance.health.answering.lease_desk import LeaseDesk
from appliance.health.box_view import NOT_CONNECTED
from appliance.health.clock import SystemHealthClock
from appliance.model.alerts import TransitionKind
from appliance.model.errors import BadRequestError, BusyError, PermissionDeniedError
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.measurements import EventKind, MeasurementEvent
from appliance.model.operators import TokenOperator
from appliance.model.profile import WarmUp
from appliance.model.speeds import BaselineReport, SpeedReport
from appliance.model.status import StatusDocument
from appliance.model.words import Series
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.system.sqlite.state_store import StateStore
from appliance.wire.alert_requests import AckRequest, AlertsRequest
from appliance.wire.async_client import open_conversation
from appliance.wire.conversation import ActingRequest, ErrorEvent, ResultEvent, SocketTable
from appliance.wire.health_socket import (
    HEALTH,
    AcceptBaselineRequest,
    BaselineRequest,
    BenchesRequest,
    HealthEvent,
    HealthRequest,
    HistoryRequest,
    LeasedEvent,
    LeaseLostEvent,
    LeaseRequest,
    LeaseTrafficEvent,
    MeasurementEventsRequest,
    MeasurementsRequest,
    ProbedEvent,
    ProbeNowRequest,
    ProbeProgressEvent,
    ResetBaselineRequest,
    SpeedsRequest,
    StateRecordRequest,
    StoreBenchRequest,
    StoredProbeEvent,
)
from appliance.wire.server import Peer
from appliance.wire.typed_json import from_json
from appliance.wire.view_socket import BY_TOKEN, VIEW
from tests.fakes.alert_samples import transition
from tests.fakes.health_monitors import RATE, FakeQualityWatch, FakeSpeedWatch
from tests.fakes.probe_lane import FakeProbeLane, LaneAnswer
from tests.fakes.probe_rows import probe
from tests.fakes.profiles import applied
from tests.fakes.supervisor_documents import as_status
from tests.fakes.watched_alerts import watched_alerts
from tests.programs import PATIENCE_S

USER = pwd.getpwuid(os.geteuid()).pw_name
DOCUMENT = {
    "profiles": [{"name": "genesis", "state": "serving"}, {"name": "aeon", "state": "stopped"}]
}
CATALOGUE = {
    "genesis": applied("genesis"),
    "aeon": applied("aeon"),
    "words": applied("words", warm_up=WarmUp.EMBEDDING),
}


class Health:
    """A health agent with fake monitors, genesis serving, and its socket."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "health.sock"
        self.store = MeasurementStore(directory / "measurements.sqlite")
        self.states = StateStore(directory / "states.sqlite")
        self.lane = FakeProbeLane(lambda _request: LaneAnswer())
        self.speeds: dict[str, FakeSpeedWatch] = {}
        self.qualities: dict[str, FakeQualityWatch] = {}
        self.clock = SystemHealthClock()
        self.desk = LeaseDesk(self.lane, self.clock)
        self.agent = HealthAgent(
            catalogue=lambda: CATALOGUE,
            make_watches=self._watch,
            store=self.store,
            is_leased=self.desk.is_leased,
            clock=self.clock,
            on_alive=lambda _status: None,
        )
        self.desk.on_change = self.agent.observe

    async def _watch(
        self, names: Sequence[str]
    ) -> Mapping[str, tuple[FakeSpeedWatch, FakeQualityWatch]]:
        self.speeds |= {name: FakeSpeedWatch(name) for name in names}
        self.qualities |= {name: FakeQualityWatch() for name in names}
        return {name: (self.speeds[name], self.qualities[name]) for name in names}

    table: SocketTable[HealthRequest | ActingRequest, HealthEvent] = HEALTH

    async def ask(
        self, request: HealthRequest | ActingRequest, *, most: int = 10_000
    ) -> list[HealthEvent]:
        """The first events of a conversation, up to its end."""
        seen: list[HealthEvent] = []
        async with (
            asyncio.timeout(PATIENCE_S),
            open_conversation(self.table, self.path, request) as events,
        ):
            async for event in events:
                seen.append(event)
                if len(seen) == most:
                    break
        return seen

    async def details(self, request: HealthRequest) -> Mapping[str, Any]:
        """The details of an answer that is a result alone."""
        (result,) = await self.ask(request)
        assert isinstance(result, ResultEvent), result
        return result.details

    async def refusal(self, request: HealthRequest) -> tuple[str, str]:
        """The kind and the text of an answer that is an error alone."""
        (error,) = await self.ask(request)
        assert isinstance(error, ErrorEvent), error
        return error.kind, error.message


async def _documents() -> AsyncIterator[StatusDocument | None]:
    yield as_status(DOCUMENT)
    await asyncio.Event().wait()


@asynccontextmanager
async def serving(
    directory: Path, alerts: AlertVerbs | None = None, *, by_token: bool = False
) -> AsyncIterator[Health]:
    """A health agent that answers, to operators or on its view socket to those with a token."""
    health = Health(directory)
    health.table = VIEW if by_token else HEALTH
    await health.store.open()
    verbs = HealthVerbs(
        health.agent,
        health.store,
        health.desk,
        health.clock,
        alerts,
        states=health.states,
        operator_of=one_operator,
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(health.path))
        listener.listen()
        tasks = [
            asyncio.create_task(health.agent.run(_documents())),
            asyncio.create_task(verbs.serve(listener, health.table)),
        ]
        try:
            while len(health.speeds) < 2:
                await asyncio.sleep(0)
            yield health
            assert not any(task.done() for task in tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await health.store.close()
            await health.states.close()


def event(text: str, profile: str = "genesis", unix_s: float = 50.0) -> MeasurementEvent:
    return MeasurementEvent(
        unix_s=unix_s, profile=profile, kind=EventKind.REGRESSION, change=-0.34, text=text
    )


async def test_speeds_come_from_memory(tmp_path: Path) -> None:
    """Profiles that serve are there before a probe too, and the troubles of the agent beside them."""
    async with serving(tmp_path) as health:
        health.speeds["genesis"].trouble = "no timings"
        details = await health.details(SpeedsRequest())
        reports = {n: from_json(SpeedReport, r) for n, r in details["profiles"].items()}
        assert reports == {"genesis": health.speeds["genesis"].report()}
        assert details["trouble"] == ["genesis: no timings"]


async def test_the_record_of_states_is_told_by_profile(tmp_path: Path) -> None:
    """Each change with its time, and until when anybody has looked; at first there is none."""
    async with serving(tmp_path) as health:
        assert await health.details(StateRecordRequest()) == {"profiles": {}, "until_unix_s": None}
        await health.states.observe({"genesis": "loading", "aeon": "stopped"}, 100.0)
        await health.states.observe({"genesis": "serving", "aeon": "stopped"}, 130.0)
        assert await health.details(StateRecordRequest()) == {
            "profiles": {
                "aeon": [[100.0, "stopped"]],
                "genesis": [[100.0, "loading"], [130.0, "serving"]],
            },
            "until_unix_s": 130.0,
        }


async def test_history_has_rows_baseline_and_events(tmp_path: Path) -> None:
    """Rows of the wanted series since a time, in spans that are asked for, and the events since."""
    async with serving(tmp_path) as health:
        for unix_s in (100.0, 200.0, 7300.0):
            await health.store.add(probe=probe(unix_s))
        await health.store.add(events=[event("old", unix_s=50.0), event("new", unix_s=150.0)])
        details = await health.details(HistoryRequest("genesis", 150.0))
        assert details["rows"] == {
            "decode": [[200.0, 1, 50.0, 50.0, 50.0], [7300.0, 1, 50.0, 50.0, 50.0]],
            "prefill": [[200.0, 1, 2000.0, 2000.0, 2000.0], [7300.0, 1, 2000.0, 2000.0, 2000.0]],
        }
        baseline = from_json(BaselineReport, details["baseline"])
        assert baseline == health.speeds["genesis"].baseline()
        assert [e["text"] for e in details["events"]] == ["new"]
        joined = await health.details(HistoryRequest("genesis", 0.0, Series.DECODE, 3600.0))
        assert [row[:2] for row in joined["rows"]["decode"]] == [[0.0, 2], [7200.0, 1]]
        assert "prefill" not in joined["rows"]


async def test_a_profile_that_is_gone_keeps_its_history(tmp_path: Path) -> None:
    """Measurements are told while there are any; without any, the name is told to be unknown."""
    async with serving(tmp_path) as health:
        await health.store.add(probe=probe(100.0, profile="gone"))
        assert (await health.details(HistoryRequest("gone", 0.0)))["baseline"] is None
        assert len(await health.ask(MeasurementsRequest("gone", 0.0))) == 2
        for request in (HistoryRequest("genesi", 0.0), MeasurementsRequest("genesi", 0.0)):
            kind, text = await health.refusal(request)
            assert kind == "unknown-profile"
            assert "genesis" in text
        assert (await health.details(HistoryRequest("aeon", 0.0)))["rows"]["decode"] == []


async def test_measurements_are_told_one_by_one(tmp_path: Path) -> None:
    """The newest probes come with their raw times, oldest first."""
    async with serving(tmp_path) as health:
        rows = [probe(100.0 + n) for n in range(3)]
        for one in rows:
            await health.store.add(probe=one)
        *probes, result = await health.ask(MeasurementsRequest("genesis", 0.0, 2))
        assert isinstance(result, ResultEvent)
        found = [one.read() for one in probes if isinstance(one, StoredProbeEvent)]
        assert found == rows[1:]


async def test_events_are_told_and_followed(tmp_path: Path) -> None:
    """Events after a number, of one profile and the box; a client that follows gets later ones."""
    async with serving(tmp_path) as health:
        await health.store.add(events=[event("1"), event("2", "aeon"), event("3", "")])

        def texts(seen: list[HealthEvent]) -> list[str]:
            return [one.text for one in seen if isinstance(one, MeasuredEvent)]

        assert texts(await health.ask(MeasurementEventsRequest())) == ["1", "2", "3"]
        assert texts(await health.ask(MeasurementEventsRequest(1, "genesis"))) == ["3"]
        assert texts(await health.ask(MeasurementEventsRequest(most=1))) == ["3"]
        following = asyncio.create_task(
            health.ask(MeasurementEventsRequest(2, "genesis", follow=True), most=2)
        )
        await asyncio.sleep(0.05)  # real time: it is to have told the first one by then
        await health.store.add(events=[event("4", "aeon"), event("5")])
        assert texts(await following) == ["3", "5"]
        kind, _ = await health.refusal(MeasurementEventsRequest(name="nobody"))
        assert kind == "unknown-profile"


async def test_a_baseline_is_shown_accepted_and_reset(tmp_path: Path) -> None:
    """Changes are recorded with the user of the connection, whatever the request says."""
    async with serving(tmp_path) as health:
        shown = await health.details(BaselineRequest("genesis"))
        assert from_json(BaselineReport, shown).series[0].baseline == RATE
        (result,) = await health.ask(AcceptBaselineRequest("genesis", "ana"))
        assert isinstance(result, ResultEvent)
        assert (result.outcome, result.message) == ("done", "the baseline of genesis is accepted")
        await health.ask(ResetBaselineRequest("genesis"))
        assert health.speeds["genesis"].changes == [
            ("accept", f"{USER} for ana"),
            ("reset", USER),
        ]
        assert health.qualities["genesis"].changes == [f"accept by {USER} for ana", "reset"]


async def test_what_cannot_be_accepted_is_refused(tmp_path: Path) -> None:
    """A monitor's refusal, an embedder and an unknown name each have their answer."""
    async with serving(tmp_path) as health:
        health.speeds["genesis"].refusal = BusyError("there is no level yet")
        refused = await health.refusal(AcceptBaselineRequest("genesis"))
        assert refused == ("busy", "there is no level yet")
        kind, text = await health.refusal(AcceptBaselineRequest("words"))
        assert (kind, text) == ("bad-request", "words is not measured: it generates no text")
        assert (await health.refusal(BaselineRequest("nobody")))[0] == "unknown-profile"


async def test_a_probe_is_told_as_it_goes_on(tmp_path: Path) -> None:
    """Progress, then the outcome with the rate in tokens a second, then the end."""
    async with serving(tmp_path) as health:
        reading, ended, probed, result = await health.ask(ProbeNowRequest())
        assert reading == ProbeProgressEvent("genesis", "refactor", "reading")
        assert ended == ProbeProgressEvent("genesis", "refactor", "ended", "", RATE)
        assert probed == ProbedEvent("genesis", "valid", "", 2 * RATE)
        assert isinstance(result, ResultEvent)


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("aeon", "precondition", "aeon does not serve: appliance status"),
        ("words", "bad-request", "words is not measured: it generates no text"),
        ("nobody", "unknown-profile", 'no profile "nobody"'),
    ],
)
async def test_what_does_not_serve_is_not_probed(
    tmp_path: Path, name: str, kind: str, text: str
) -> None:
    """A probe of a profile that cannot be measured now is refused with the reason."""
    async with serving(tmp_path) as health:
        found, message = await health.refusal(ProbeNowRequest(name))
        assert found == kind
        assert text in message


async def test_no_profile_is_probed_without_the_supervisor(tmp_path: Path) -> None:
    """While nobody tells of operations, a person who wants a probe learns the reason."""
    async with serving(tmp_path) as health:
        health.agent.view = NOT_CONNECTED
        assert await health.refusal(ProbeNowRequest("genesis")) == ("unreachable", AWAY)


async def test_a_lease_lasts_while_its_client_stays(tmp_path: Path) -> None:
    """Probes pause in it, real requests are told, and a client that leaves ends it."""
    async with serving(tmp_path) as health:
        request = LeaseRequest(("genesis",), exclusive=True, text="bench genesis")
        async with (
            asyncio.timeout(PATIENCE_S),
            open_conversation(HEALTH, health.path, request) as events,
        ):
            assert await anext(events) == LeasedEvent("token")
            assert health.lane.leases == [(("genesis",), True)]
            assert health.speeds["genesis"].seen[-1][1].bench
            assert await health.refusal(LeaseRequest(("aeon",))) == (
                "busy",
                f"the box is leased (bench genesis, of {USER}): try again when that has ended",
            )
            health.lane.request_arrives()
            assert await anext(events) == LeaseTrafficEvent(1)
        async with asyncio.timeout(PATIENCE_S):
            while health.desk.is_leased():
                await asyncio.sleep(0.01)  # real time: the server notices that a client has left
        assert not health.speeds["genesis"].seen[-1][1].bench


async def test_a_lease_that_is_lost_is_told(tmp_path: Path) -> None:
    """An operation ends a lease, and its client learns why."""
    async with serving(tmp_path) as health:
        asked = asyncio.create_task(health.ask(LeaseRequest(("genesis",))))
        async with asyncio.timeout(PATIENCE_S):
            while not health.lane.leases:
                await asyncio.sleep(0.01)  # real time: over a socket
        health.lane.break_lease("switch aeon begins")
        assert await asked == [
            LeasedEvent("token"),
            LeaseLostEvent("the gateway has ended the lease: switch aeon begins"),
        ]
        assert (await health.refusal(LeaseRequest(("nobody",))))[0] == "unknown-profile"


async def test_benches_are_kept(tmp_path: Path) -> None:
    """A stored result gets a number and comes back; as many come as a line holds."""
    async with serving(tmp_path) as health:
        big = {"text": "x" * 47_000}
        for number in range(1, 23):
            found = await health.details(StoreBenchRequest("genesis", big | {"n": number}))
            assert found == {"id": number}
        benches = (await health.details(BenchesRequest(1000)))["benches"]
        assert [bench["id"] for bench in benches] == list(range(22, 3, -1))
        assert benches[0]["document"] == big | {"n": 22}
        assert time.time() - benches[0]["unix_s"] < 3600
        kind, _ = await health.refusal(StoreBenchRequest("genesis", {"text": "x" * 50_000}))
        assert kind == "bad-request"


def test_an_engine_may_not_ask() -> None:
    """A process of a model is refused, whatever group it has got into."""
    with pytest.raises(PermissionDeniedError, match="engines may not ask the health agent"):
        read_for_health(HEALTH, "speeds", {}, Peer(1, 61_200, 0))
    assert read_for_health(HEALTH, "speeds", {}, Peer(1, 0, 0)) == SpeedsRequest()


def test_every_series_may_be_asked_for() -> None:
    """A request names a series of the domain."""
    for series in Series:
        request = read_for_health(
            HEALTH,
            "history",
            {"name": "a", "since_unix_s": 0, "series": series.value},
            Peer(1, 0, 0),
        )
        assert request == HistoryRequest("a", 0.0, series)


async def test_alerts_are_told_beside_speeds_and_events(tmp_path: Path) -> None:
    """One answer has both; events of both kinds come in the order of their times, and as they happen."""
    async with watched_alerts(tmp_path) as box, serving(tmp_path, box.verbs) as health:
        await health.store.add(events=[event("first", unix_s=100.0), event("third", unix_s=300.0)])
        await box.tell(transition(unix_s=200.0))
        speeds = await health.details(SpeedsRequest())
        assert [alert["alert"] for alert in speeds["alerts"]["alerts"]] == ["Agenesis1"]
        told = await health.ask(MeasurementEventsRequest(alerts_after=0))
        assert [type(one) for one in told[:-1]] == [MeasuredEvent, AlertEvent, MeasuredEvent]
        newest = await health.ask(MeasurementEventsRequest(most=2, alerts_after=0))
        assert [type(one) for one in newest[:-1]] == [AlertEvent, MeasuredEvent]
        alone = await health.ask(MeasurementEventsRequest())
        assert [type(one) for one in alone[:-1]] == [MeasuredEvent, MeasuredEvent]
        of_watch = await health.ask(MeasurementEventsRequest(name="nas", alerts_after=0))
        assert of_watch == [ResultEvent()]
        kind, text = await health.refusal(MeasurementEventsRequest(name="nass", alerts_after=0))
        assert (kind, 'Did you mean "nas"' in text) == ("unknown-profile", True)


async def test_a_follower_hears_of_alerts(tmp_path: Path) -> None:
    """Each new transition is told once, also while no event is measured."""
    async with watched_alerts(tmp_path) as box, serving(tmp_path, box.verbs) as health:
        await box.tell(transition())
        request = MeasurementEventsRequest(follow=True, alerts_after=0)
        asked = asyncio.create_task(health.ask(request, most=3))
        await asyncio.sleep(0.2)  # real time: the first answer comes, the next look is in a second
        await box.tell(transition(TransitionKind.RESOLVED))
        await health.store.add(events=[event("after it", unix_s=1.9e9)])
        found = await asked
    assert [getattr(one, "kind", "") for one in found] == ["fired", "resolved", "regression"]


async def test_an_ack_is_recorded_with_the_user_of_the_connection(tmp_path: Path) -> None:
    """The person that the client names stands behind the user, who cannot lie."""
    async with watched_alerts(tmp_path) as box, serving(tmp_path, box.verbs) as health:
        await box.tell(transition())
        await health.ask(AckRequest("Agenesis1", "ana"))
        (state,) = box.book.states.values()
        assert state.acked_by == f"{USER} for ana"


async def test_an_agent_without_alerts_says_so(tmp_path: Path) -> None:
    """Speeds then have no alerts, and a question about them is refused."""
    async with serving(tmp_path) as health:
        assert "alerts" not in await health.details(SpeedsRequest())
        assert await health.refusal(AlertsRequest()) == (
            "bad-request",
            "this agent keeps no alerts",
        )


CHANGING = {"accept", "reset", "lease", "store-bench"}


def test_the_view_socket_offers_no_change_without_a_token() -> None:
    """A verb that changes something is refused there, and so is each such action of a verb that is offered."""
    visitor = Peer(1, 990, 990)
    assert read_for_health(VIEW, "speeds", {}, visitor) == SpeedsRequest()
    for verb in CHANGING:
        with pytest.raises(BadRequestError, match="does not know this verb"):
            VIEW.verb_of({"verb": verb})
    assert {verb for verb, _, _ in HEALTH.requests} - {*VIEW.verbs} == CHANGING
    by_token = {(verb, action) for verb, action, form in VIEW.requests if form in BY_TOKEN}
    assert by_token == {
        ("probe", ""),
        *(("alerts", action) for action in ("ack", "silence", "unsilence", "test")),
        *(("window", action) for action in ("add", "rm")),
    }
    args = {"alert": "A1", "name": "a", "begin": "02:00", "minutes": 5}
    for verb, action in by_token:
        with pytest.raises(PermissionDeniedError, match="wants an operator's token"):
            read_for_health(VIEW, verb, {**args, "action": action}, visitor)
        more = {"action": action, "operator_token": "apt_"}
        assert isinstance(read_for_health(VIEW, verb, {**args, **more}, visitor), ActingRequest)


async def one_operator(token: str) -> TokenOperator:
    """Supervisor's word on tokens: there is one."""
    if token != "apt_anas":  # noqa: S105 - of no box
        raise PermissionDeniedError("the token is not known")
    return TokenOperator(uid=1000, user="ana", token="phone")  # noqa: S106 - its name


async def test_an_operator_acts_through_the_view_socket(tmp_path: Path) -> None:
    """The record has operator and token, whatever the request says of a person; others change nothing."""
    async with (
        watched_alerts(tmp_path) as box,
        serving(tmp_path, box.verbs, by_token=True) as health,
    ):
        await box.tell(transition())
        refused = await health.ask(ActingRequest("apt_x", AckRequest("Agenesis1", "ana")))
        assert [type(one) for one in refused] == [ErrorEvent]
        (state,) = box.book.states.values()
        assert state.acked_by in {None, ""}
        await health.ask(ActingRequest("apt_anas", AckRequest("Agenesis1", "the queen")))
        (state,) = box.book.states.values()
        assert state.acked_by == "ana (token phone)"
        probed = await health.ask(ActingRequest("apt_anas", ProbeNowRequest("genesis")))
        assert isinstance(probed[-1], ResultEvent)


def test_an_engine_may_not_look_either() -> None:
    """The view socket refuses it as the other one does."""
    with pytest.raises(PermissionDeniedError):
        read_for_health(VIEW, "speeds", {}, Peer(1, 61_200, 0))
