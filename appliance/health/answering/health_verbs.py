"""Verbs of health.sock and view.sock: what operators, and processes that only look, ask the health agent."""

import json
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import Final, cast

import msgspec

from appliance.health.agent import AWAY, HealthAgent, SpeedWatch
from appliance.health.answering.alert_verbs import AlertVerbs
from appliance.health.answering.lease_desk import LeaseDesk
from appliance.health.clock import HealthClock
from appliance.model.errors import (
    BadRequestError,
    PermissionDeniedError,
    PreconditionError,
    StoreError,
    UnknownProfileError,
    UnreachableError,
)
from appliance.model.events import AlertEvent, MeasuredEvent
from appliance.model.names import is_engine
from appliance.model.operators import TokenOperator
from appliance.model.speeds import SpeedReport
from appliance.model.wording import no_such_profile, short
from appliance.model.words import ProbeOutcome, Series
from appliance.system.kernel.processes import group_name, user_name
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.system.sqlite.state_store import StateStore
from appliance.wire.conversation import ActingRequest, ResultEvent, SocketTable, acting_request
from appliance.wire.health_socket import (
    HEALTH,
    MOST_ROWS,
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
    ResetBaselineRequest,
    SpeedsRequest,
    StateRecordRequest,
    StoreBenchRequest,
    StoredProbeEvent,
)
from appliance.wire.json_values import Json
from appliance.wire.server import CROWD, Bounds, Peer, serve_conversations
from appliance.wire.view_socket import BY_TOKEN

_log = logging.getLogger(__name__)

_MOST_HISTORY_EVENTS: Final = 200
_MOST_BENCH_BYTES: Final = 48 << 10
_MOST_ANSWER_BYTES: Final = 900_000
"""Size of the documents in an answer: a line has at most 1 MiB."""
_FOLLOW_EVERY_S: Final = 1.0
"""Pause between two looks for new events: of a number in memory, and by an index of the alerts."""
_NO_ALERTS: Final = "this agent keeps no alerts"
_NO_STATES: Final = "this agent keeps no record of states"
_NO_TOKENS: Final = "nobody can act by a token here"


class HealthVerbs:
    """Server of the operators' requests.

    Args:
        agent: Has the monitors of the profiles.
        store: Of the measurements.
        desk: Of leases.
        clock: Of the box.
        alerts: Answers what is about alerts; None: no alerts are kept.
        states: Keeps the record of states; None: none is kept.
        operator_of: Returns the operator for whom a token stands. Raises `ApplianceError`. None: nobody can
            act by a token.
    """

    def __init__(
        self,
        agent: HealthAgent,
        store: MeasurementStore,
        desk: LeaseDesk,
        clock: HealthClock,
        alerts: AlertVerbs | None = None,
        *,
        states: StateStore | None = None,
        operator_of: Callable[[str], Awaitable[TokenOperator]] | None = None,
    ) -> None:
        self._states = states
        self._operator_of = operator_of
        self._alerts = alerts
        self._agent = agent
        self._store = store
        self._desk = desk
        self._clock = clock

    async def serve(
        self,
        listener: socket.socket,
        table: SocketTable[HealthRequest | ActingRequest, HealthEvent] = HEALTH,
        bounds: Bounds = CROWD,
    ) -> None:
        """Answer on one socket for ever, what its table offers."""
        await serve_conversations(
            table, listener, partial(read_for_health, table), self._answer, bounds=bounds
        )

    async def _answer(
        self, request: HealthRequest | ActingRequest, peer: Peer
    ) -> AsyncGenerator[HealthEvent, None]:
        operator = None
        if isinstance(request, ActingRequest):
            if self._operator_of is None:
                raise PermissionDeniedError(_NO_TOKENS)
            operator = await self._operator_of(request.token)
            request = cast("HealthRequest", request.request)
        async with aclosing(self._answer_to(request, peer, operator)) as events:
            async for event in events:
                yield event

    async def _answer_to(  # noqa: C901 - one a request
        self, request: HealthRequest, peer: Peer, operator: TokenOperator | None
    ) -> AsyncGenerator[HealthEvent, None]:
        """Answer a request of a peer, or of the operator by whose token it acts."""
        match request:
            case SpeedsRequest():
                yield await self._speeds()
            case HistoryRequest():
                yield await self._history(request)
            case StateRecordRequest():
                yield await self._state_record()
            case BaselineRequest(name):
                yield ResultEvent(details=msgspec.to_builtins(self._monitor(name).baseline()))
            case AcceptBaselineRequest(name, by) | ResetBaselineRequest(name, by):
                yield await self._change(request, name, _who(peer, operator, by))
            case StoreBenchRequest(name, document):
                yield await self._store_bench(name, document)
            case BenchesRequest(most):
                yield await self._benches(most)
            case (
                MeasurementsRequest()
                | MeasurementEventsRequest()
                | ProbeNowRequest()
                | LeaseRequest()
            ):
                async with aclosing(self._several(request, peer)) as events:
                    async for event in events:
                        yield event
            case _:
                if self._alerts is None:
                    raise BadRequestError(_NO_ALERTS)
                who = _who(peer, operator, getattr(request, "by", ""))
                yield await self._alerts.answer(request, who)

    async def _several(
        self,
        request: MeasurementsRequest | MeasurementEventsRequest | ProbeNowRequest | LeaseRequest,
        peer: Peer,
    ) -> AsyncGenerator[HealthEvent, None]:
        """Answer a request that has several events."""
        match request:
            case MeasurementsRequest(name, since_unix_s, most, until_unix_s):
                probes = await self._store.probes(
                    name, since_unix_s, most=most, until_unix_s=until_unix_s
                )
                if not probes:
                    self._check_name(name)
                for probe in probes:
                    yield StoredProbeEvent.of(probe)
                yield ResultEvent()
            case MeasurementEventsRequest():
                async with aclosing(self._events(request)) as events:
                    async for event in events:
                        yield event
            case ProbeNowRequest(name):
                async with aclosing(self._probe(name)) as events:
                    async for event in events:
                        yield event
            case LeaseRequest():
                async with aclosing(self._lease(request, peer)) as events:
                    async for event in events:
                        yield event

    # --- from memory -----------------------------------------------------------------

    async def _state_record(self) -> ResultEvent:
        if self._states is None:
            raise BadRequestError(_NO_STATES)
        changes, until = await self._states.changes()
        found: dict[str, list[tuple[float, str]]] = {}
        for change in changes:
            found.setdefault(change.profile, []).append((change.unix_s, change.state))
        return ResultEvent(details={"profiles": found, "until_unix_s": until})

    async def _speeds(self) -> ResultEvent:
        reports = {
            name: msgspec.to_builtins(report) for name, report in self._agent.reports().items()
        }
        speeds = {"profiles": reports, "trouble": list(self._agent.troubles())}
        alerts = {} if self._alerts is None else {"alerts": await self._alerts.overview()}
        return ResultEvent(details={**speeds, **alerts})

    def _monitor(self, name: str) -> SpeedWatch:
        monitor = self._agent.monitor(name)
        if monitor is None:
            self._check_name(name)
            raise BadRequestError(f"{name} is not measured: it generates no text")
        return monitor

    def _check_name(self, name: str) -> None:
        """Check that a profile is applied. Raises `UnknownProfileError`."""
        known = self._agent.profiles()
        if name not in known:
            raise UnknownProfileError(no_such_profile(short(name), known))

    # --- the baseline ----------------------------------------------------------------

    async def _change(
        self, request: AcceptBaselineRequest | ResetBaselineRequest, name: str, by: str
    ) -> ResultEvent:
        self._monitor(name)
        if isinstance(request, AcceptBaselineRequest):
            await self._agent.accept(name, by)
            done = "accepted"
        else:
            await self._agent.reset(name, by)
            done = "reset"
        _log.info("the baseline of %s was %s by %s", name, done, by)
        return ResultEvent(outcome="done", message=f"the baseline of {name} is {done}")

    # --- from the store --------------------------------------------------------------

    async def _history(self, request: HistoryRequest) -> ResultEvent:
        name, since_unix_s = request.name, request.since_unix_s
        wanted = tuple(Series) if request.series is None else (Series(request.series),)
        rows = await self._store.histories(
            name, wanted, since_unix_s, span_s=request.span_s, most=MOST_ROWS
        )
        monitor = self._agent.monitor(name)
        if monitor is None and not any(rows.values()):
            self._check_name(name)
        events = await self._store.events(profile=name, most=_MOST_HISTORY_EVENTS)
        return ResultEvent(
            details={
                "rows": {series.value: found for series, found in rows.items()},
                "baseline": None if monitor is None else msgspec.to_builtins(monitor.baseline()),
                "events": [event.fields() for event in events if event.unix_s >= since_unix_s],
            }
        )

    async def _events(self, request: MeasurementEventsRequest) -> AsyncGenerator[HealthEvent, None]:
        """Yield the newest events of both kinds in the order of their times, then those to come."""
        alerts = None if request.alerts_after is None else self._alerts
        if request.name is not None and alerts is None:
            self._check_name(request.name)
        name, most = request.name, request.most
        after, alerts_after = request.after, request.alerts_after or 0
        while True:
            last = self._store.last_event
            found: list[MeasuredEvent | AlertEvent] = []
            if last > after or not request.follow:
                measured = await self._store.events(after, profile=name, most=most)
                found += measured
                after = max([after, last, *(event.id for event in measured)])
            if alerts is not None:
                changes = await alerts.changes(alerts_after, name, most)
                found += changes
                alerts_after = max([alerts_after, *(event.id for event in changes)])
            for event in sorted(found, key=lambda event: event.unix_s)[-most:]:
                yield event
            if not request.follow:
                yield ResultEvent()
                return
            await self._clock.sleep_until(self._clock.monotonic_s() + _FOLLOW_EVERY_S)

    async def _store_bench(self, name: str, document: Json) -> ResultEvent:
        if len(json.dumps(document)) > _MOST_BENCH_BYTES:
            raise BadRequestError(f"the document is longer than {_MOST_BENCH_BYTES >> 10} KiB")
        if not await self._store.add_bench(short(name), self._clock.unix_s(), document):
            raise StoreError(self._store.trouble or "the document cannot be stored")
        (bench,) = await self._store.benches(most=1)
        return ResultEvent(details={"id": bench.id})

    async def _benches(self, most: int) -> ResultEvent:
        """Return the newest benches, as many as fit in a line."""
        shown, size_bytes = [], 0
        for bench in await self._store.benches(most=most):
            row = asdict(bench)
            size_bytes += len(json.dumps(row))
            if size_bytes > _MOST_ANSWER_BYTES:
                break
            shown.append(row)
        return ResultEvent(details={"benches": shown})

    # --- what lasts ------------------------------------------------------------------

    async def _probe(self, name: str | None) -> AsyncGenerator[HealthEvent, None]:
        if name is not None:
            self._monitor(name)
        if not self._agent.view.connected:
            raise UnreachableError(AWAY)
        serving = self._agent.serving()
        names = serving if name is None else [one for one in serving if one == name]
        if not names:
            who = "no measured profile serves" if name is None else f"{name} does not serve"
            raise PreconditionError(f"{who}: appliance status")
        for one in names:
            monitor = self._monitor(one)
            async for step in monitor.probe_now():
                yield step
            yield _probed(monitor.report())
        yield ResultEvent()

    async def _lease(self, request: LeaseRequest, peer: Peer) -> AsyncGenerator[HealthEvent, None]:
        for name in request.names:
            self._check_name(name)
        who = user_name(peer.uid)
        text = f"{short(request.text)}, of {who}" if request.text else f"a bench of {who}"
        async with self._desk.lease(request.names, exclusive=request.exclusive, text=text) as lease:
            _log.info("%s has the box: nothing is probed meanwhile", text)
            yield LeasedEvent(lease.token)
            async for requests in lease.traffic():
                yield LeaseTrafficEvent(requests)
            yield LeaseLostEvent(f"the gateway has ended the lease: {lease.lost or 'no reason'}")


def read_for_health(
    table: SocketTable[HealthRequest | ActingRequest, HealthEvent],
    verb: str,
    args: Json,
    peer: Peer,
) -> HealthRequest | ActingRequest:
    """Return a request on a socket of the health agent.

    Raises:
        PermissionDeniedError: an engine asks, or the request wants a token and has none.
        BadRequestError: it makes no sense.
    """
    if is_engine(peer.uid, group_name(peer.gid)):
        raise PermissionDeniedError(
            f"{user_name(peer.uid)} is an engine, and engines may not ask the health agent"
        )
    request = table.decode_request(verb, args)
    if table is HEALTH or type(request) not in BY_TOKEN:
        return request
    acting = acting_request(request, args)
    if acting is None:
        raise PermissionDeniedError("this wants an operator's token: appliance token add NAME")
    return acting


def _who(peer: Peer, operator: TokenOperator | None, by: str) -> str:
    """Return who asks, for the record: an operator by token, or the user of the connection, which cannot lie.

    What the request says about a person stands beside the latter alone: the process that has the
    token is no witness.
    """
    if operator is not None:
        return str(operator)
    user = user_name(peer.uid)
    return f"{user} for {short(by)}" if by and by != user else user


def _probed(report: SpeedReport) -> ProbedEvent:
    """Return the event that ends an asked probe, as the monitor took it in."""
    valid = report.last_outcome is ProbeOutcome.VALID
    decode, prefill = report.of(Series.DECODE), report.of(Series.PREFILL)
    rate = decode.rate * decode.tokens_per_step if valid and decode and decode.rate else None
    return ProbedEvent(
        report.profile,
        report.last_outcome.value if report.last_outcome else "",
        report.trouble,
        rate,
        prefill.rate if valid and prefill else None,
        report.ttft_s if valid else None,
        decode.change if valid and decode else None,
    )
