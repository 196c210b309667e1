"""The gateway's socket to the supervisor: a switch on request, and nothing else."""

import asyncio
import json
import os
import pwd
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from appliance.gateway.switch_requester import Busy, Done, Failed, ask_for_switch, cancel_switch
from appliance.model.operations import Kind, Outcome
from appliance.model.profile import Handling
from appliance.model.status import StatusDocument
from appliance.supervisor.access_policy import ReadFromGateway, Requester, read_from_operator
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.ownership import OperationRequest, Supervisor
from appliance.system.credential_files import FileKeys
from appliance.wire.control import Exit
from appliance.wire.control_events import EndedEvent
from appliance.wire.control_requests import CONTROL
from appliance.wire.conversation import PROTOCOL_MAX, PROTOCOL_MIN
from tests.fakes.operator_accounts import token_desk
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts

BOX = catalogue(
    applied("aeon", "gpu-all"),
    replace(applied("genesis", "gpu-all"), handling=Handling(on_request=True)),
)
UID = os.geteuid()
WHO = f"{pwd.getpwuid(UID).pw_name} (uid {UID}, pid {os.getpid()})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """A supervised box, aeon serving, with the operators' socket and the gateway's."""

    supervisor: Supervisor
    fakes: FakePorts
    control: Path
    request: Path

    async def ask(self, path: Path, verb: str, **args: object) -> Mapping[str, Any]:
        """The closing event of one conversation."""
        reader, writer = await asyncio.open_unix_connection(path)
        protocol = {"min": PROTOCOL_MIN, "max": PROTOCOL_MAX}
        request = {"protocol": protocol, "verb": verb, "args": args}
        writer.write(json.dumps(request).encode() + b"\n")
        closing: Mapping[str, Any] = json.loads((await reader.read()).splitlines()[-1])
        writer.close()
        return closing

    @property
    def targets(self) -> list[tuple[str, ...]]:
        """Return the target of every operation that was begun."""
        return [row.target for row in self.fakes.store.rows.values()]


@asynccontextmanager
async def supervised(directory: Path, *, gateway_uid: int = UID) -> AsyncIterator[Sockets]:
    """Both sockets of a supervisor, served."""
    fakes = FakePorts(BOX, "aeon")
    fakes.units.patience = sys.maxsize
    fakes.serve("aeon")
    supervisor = fakes.supervisor(FakeProfiles(BOX))

    async def nothing() -> StatusDocument:
        return StatusDocument()

    server = ControlVerbs(
        supervisor,
        status=nothing,
        keys=FileKeys(directory),
        tokens=token_desk(directory),
        requests=ClientRequests(fakes.gateway),
        now_unix_s=fakes.clock.unix_s,
    )
    tasks = [asyncio.create_task(supervisor.run())]
    listeners = []
    for name, read in (
        ("control", read_from_operator),
        ("request", ReadFromGateway(gateway_uid)),
    ):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(directory / name))
        listener.listen()
        listener.settimeout(0)
        listeners.append(listener)
        tasks.append(asyncio.create_task(server.serve(listener, read)))
    try:
        yield Sockets(
            supervisor=supervisor,
            fakes=fakes,
            control=directory / "control",
            request=directory / "request",
        )
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for listener in listeners:
            listener.close()


async def test_the_gateway_switches_on_behalf_of_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Log and history name the key beside the user that really asked."""
    caplog.set_level("INFO")
    async with supervised(tmp_path) as box:
        assert await ask_for_switch(box.request, "genesis", "key ana") == Done()
        assert box.fakes.commitment.names == ("genesis",)
        refused = await ask_for_switch(box.request, "nobody", "gateway")
    (operation,) = box.fakes.store.rows.values()
    assert operation.requested_by == f"key ana as {WHO}"
    assert operation.requested_by in caplog.text
    assert isinstance(refused, Failed)
    assert refused.why.startswith('no profile "nobody"')


async def test_a_profile_that_is_not_on_request_is_refused(tmp_path: Path) -> None:
    """An intruder in the gateway cannot choose a profile that is not on request."""
    async with supervised(tmp_path) as box:
        answer = await ask_for_switch(box.request, "aeon", "gateway")
        assert isinstance(answer, Failed)
        assert answer.why.startswith("no request may switch to aeon")
        assert box.targets == []


@pytest.mark.parametrize("verb", [v for v in CONTROL.verbs if v != "switch"])
async def test_every_other_verb_is_refused(tmp_path: Path, verb: str) -> None:
    """Run, hold, keys, even the status: nothing but a switch."""
    async with supervised(tmp_path) as box:
        refused = await box.ask(box.request, verb, name="genesis", names=["genesis"], action="ls")
        assert refused["exit"] == Exit.PERMISSION
        assert box.targets == []


@pytest.mark.parametrize("joined", [False, True])
async def test_the_gateway_cancels_what_its_clients_alone_have_asked_for(
    tmp_path: Path, *, joined: bool
) -> None:
    """An abandoned switch is rolled back; one that a person has joined, or another one, goes on."""
    client = Requester(uid=UID, pid=1, user="gateway", on_behalf="key ana")
    person = Requester(uid=UID, pid=2, user="ana")
    async with supervised(tmp_path) as box:
        asked = OperationRequest(kind=Kind.SWITCH, names=("genesis",), by=client)
        running = await box.supervisor.submit(asked)
        if joined:
            await box.supervisor.submit(replace(asked, by=person))
        number = running.accepted.operation
        assert not box.supervisor.abandon(number + 1)
        await cancel_switch(box.request, number)
        *_, last = [event async for event in running.transaction.feed.follow()]
        assert isinstance(last, EndedEvent)
        assert (last.outcome is Outcome.DONE) == joined
        assert box.fakes.commitment.names == (("genesis",) if joined else ("aeon",))
        assert not box.supervisor.abandon(number)


@pytest.mark.parametrize(
    "args", [{}, {"operation": None}, {"operation": True}, {"operation": 1, "x": 1}]
)
async def test_a_cancellation_names_its_operation(
    tmp_path: Path, args: Mapping[str, object]
) -> None:
    """The gateway can cancel no operation but the one whose number it was told."""
    async with supervised(tmp_path) as box:
        assert (await box.ask(box.request, "cancel", **args))["exit"] == Exit.PERMISSION


@pytest.mark.parametrize("more", [{"drain_s": 0}, {"rollback": False}, {"dry_run": True}])
async def test_further_arguments_are_refused(tmp_path: Path, more: Mapping[str, object]) -> None:
    """A request with further arguments cuts no other request, and leaves nothing undone."""
    async with supervised(tmp_path) as box:
        refused = await box.ask(box.request, "switch", name="genesis", **more)
        assert (refused["exit"], next(iter(more)) in refused["message"]) == (Exit.PERMISSION, True)
        assert box.targets == []


async def test_another_user_is_refused(tmp_path: Path) -> None:
    """The kernel's word on who connected counts beside the socket's mode."""
    async with supervised(tmp_path, gateway_uid=UID + 1) as box:
        refused = await box.ask(box.request, "switch", name="genesis")
        assert refused["exit"] == Exit.PERMISSION
        assert str(UID + 1) in refused["message"]
        assert box.targets == []


async def test_a_hold_is_not_ended_through_this_socket(tmp_path: Path) -> None:
    """People's hold stays, whatever the gateway makes of it; a person may end it."""
    async with supervised(tmp_path) as box:
        held = await box.supervisor.submit(OperationRequest(kind=Kind.HOLD, hold_until="forever"))
        async for _ in held.transaction.feed.follow():
            pass
        assert await ask_for_switch(box.request, "genesis", "gateway") == Busy()
        assert len(box.targets) == 1
        assert (await box.ask(box.control, "switch", name="genesis"))["exit"] == Exit.OK


async def test_operators_ask_for_themselves(tmp_path: Path) -> None:
    """On the control socket nobody's word on somebody else is believed, and every profile goes."""
    async with supervised(tmp_path) as box:
        done = await box.ask(box.control, "switch", name="genesis", on_behalf="the queen")
        assert done["exit"] == Exit.OK
        assert (await box.ask(box.control, "switch", name="aeon"))["exit"] == Exit.OK
    assert {row.requested_by for row in box.fakes.store.rows.values()} == {WHO}
