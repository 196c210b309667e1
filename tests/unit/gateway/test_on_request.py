"""Switches on request: relay, routing table, scheduler, request socket and supervisor."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from appliance.gateway.switch_requester import SwitchRequester, ask_for_switch, cancel_switch
from appliance.model.operations import Kind
from appliance.model.profile import Endpoint, Handling
from appliance.model.status import StatusDocument
from appliance.routing.switch_scheduler import SwitchPolicy
from appliance.supervisor.access_policy import ReadFromGateway
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.ownership import OperationRequest, Supervisor
from appliance.system.credential_files import FileKeys
from tests.fakes.gateway_states import routed
from tests.fakes.operator_accounts import token_desk
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts
from tests.fakes.units import FakeUnits
from tests.unit.gateway.test_switching import Box, Engine, relaying, serving_engines
from tests.waiting import until

ON_REQUEST = Handling(on_request=True)
PROFILES = catalogue(
    *(replace(applied(name, "gpu-all"), handling=ON_REQUEST) for name in ("aeon", "genesis"))
)
NOW = SwitchPolicy(residency_s=0.0, patience_s=0.0)


@asynccontextmanager
async def supervised(box: Box, fakes: FakePorts, path: Path) -> AsyncIterator[Supervisor]:
    """Supervisor that sends its state to this gateway, and takes its requests."""
    fakes.units.patience = sys.maxsize
    fakes.serve("aeon")
    supervisor = fakes.supervisor(FakeProfiles(PROFILES), gateway=box.supervisor)

    async def nothing() -> StatusDocument:
        return StatusDocument()

    server = ControlVerbs(
        supervisor,
        status=nothing,
        keys=FileKeys(path.parent),
        tokens=token_desk(path.parent),
        requests=ClientRequests(fakes.gateway),
        now_unix_s=fakes.clock.unix_s,
    )
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0)
        tasks = [
            asyncio.create_task(w)
            for w in (supervisor.run(), server.serve(listener, ReadFromGateway(os.geteuid())))
        ]
        try:
            yield supervisor
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.fixture
async def engines() -> AsyncIterator[dict[str, Engine]]:
    async with serving_engines("aeon", "genesis") as engines:
        yield engines


@asynccontextmanager
async def willing(
    engines: dict[str, Engine], fakes: FakePorts, directory: Path
) -> AsyncIterator[tuple[Box, Supervisor]]:
    """Box on which any request may switch."""
    path = directory / "request.sock"
    async with relaying(engines, directory) as box:
        box.table.adopt(
            {
                name: replace(routed(name, on_request=True), endpoint=Endpoint(port=engine.port))
                for name, engine in engines.items()
            }
        )
        wanting = SwitchRequester(
            box.table,
            partial(ask_for_switch, path),
            partial(cancel_switch, path),
            waiting=box.meter.waiting,
            in_flight=box.relay.in_flight,
            policy=NOW,
        )
        async with supervised(box, fakes, path) as supervisor:
            taking_turns = asyncio.create_task(wanting.run())
            try:
                yield box, supervisor
            finally:
                taking_turns.cancel()
                await asyncio.gather(taking_turns, return_exceptions=True)


async def test_two_clients_that_want_different_models_are_both_served(
    engines: dict[str, Engine], tmp_path: Path
) -> None:
    """Each request waits for its model, and is served by it."""
    fakes = FakePorts(PROFILES, "aeon")
    async with willing(engines, fakes, tmp_path) as (box, _supervisor):
        for name in ("genesis", "aeon", "genesis"):
            status, body = await box.ask(name)
            assert (status, f'"{name}"'.encode() in body) == (200, True)
    assert [o.target for o in fakes.store.rows.values()] == [
        ("genesis",),
        ("aeon",),
        ("genesis",),
    ]
    assert fakes.store.rows[1].requested_by.startswith("a client without a key as ")


async def test_a_switch_that_fails_is_told_to_who_asked_for_it(
    engines: dict[str, Engine], tmp_path: Path
) -> None:
    """The old model serves again, and the waiting request is refused with the reason."""
    fakes = FakePorts(PROFILES, "aeon")
    fakes.processes.behaviour["genesis"].refusal = "9.8 GiB held by python3 (pid 4121, user ana)"
    async with willing(engines, fakes, tmp_path) as (box, _supervisor):
        status, body = await box.ask("genesis")
        assert (status, b"9.8 GiB held by python3" in body) == (503, True)
        assert (await box.ask("aeon"))[0] == 200


async def test_a_load_whose_client_has_left_makes_nobody_wait(
    engines: dict[str, Engine], tmp_path: Path
) -> None:
    """A client leaves a second into a load of nine; the next one, of the other model, is answered before it ends."""
    fakes = FakePorts(PROFILES, "aeon")
    units = fakes.units
    fakes.processes.behaviour["genesis"].load_s = 9.0
    fakes.processes.behaviour["aeon"].load_s = 1.0
    async with willing(engines, fakes, tmp_path) as (box, _supervisor):
        units.is_driven = True
        leaving = asyncio.create_task(box.ask("genesis"))
        while units.starts != ["genesis"]:
            await pass_time(units)
        left_s = units.systemd.now_s + 1.0
        while units.systemd.now_s < left_s:
            await pass_time(units)
        leaving.cancel()
        await until(lambda: not box.meter.waiting(["genesis"]))
        asking = asyncio.create_task(box.ask("aeon"))
        while not asking.done() and units.systemd.now_s < left_s + 20.0:
            await pass_time(units)
        status, body = await asking
    assert (status, b'"aeon"' in body) == (200, True)
    assert units.systemd.now_s - left_s < 8.0
    assert (units.starts, len(fakes.store.rows)) == (["genesis", "aeon"], 1)


async def pass_time(units: FakeUnits) -> None:
    """Let a tenth of a second of the box pass, and everybody act on it."""
    units.drive(units.systemd.now_s + 0.1)
    await asyncio.sleep(0.02)  # real time: requests pass through real sockets


async def test_a_hold_is_not_ended_by_a_request(engines: dict[str, Engine], tmp_path: Path) -> None:
    """While an operator holds the box, requests are refused at once."""
    fakes = FakePorts(PROFILES, "aeon")
    async with willing(engines, fakes, tmp_path) as (box, supervisor):
        await supervisor.submit(OperationRequest(kind=Kind.HOLD, hold_until="forever"))
        await until(lambda: fakes.store.ended and not box.table.state.held)
        statuses = [(await box.ask(name))[0] for name in ("genesis", "aeon")]
    assert statuses == [404, 503]
    assert len(fakes.store.rows) == 1
