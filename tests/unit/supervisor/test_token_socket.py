"""Token socket of the supervisor: operators' requests through a process without rights of its own."""

import asyncio
import json
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from appliance.model.errors import BadRequestError
from appliance.model.operations import HoldUntil, Kind
from appliance.model.operators import OperatorToken
from appliance.model.status import StatusDocument
from appliance.model.words import Mark
from appliance.supervisor.access_policy import ReadByToken
from appliance.supervisor.client_requests import ClientRequests
from appliance.supervisor.control_verbs import ControlVerbs
from appliance.supervisor.ownership import OperationRequest, Supervisor
from appliance.supervisor.token_check import TokenCheck
from appliance.supervisor.token_verbs import KEY_S, MOST_KEYS, RequestKeys, TokenVerbs
from appliance.system.credential_files import FileKeys, FileTokens
from appliance.wire.async_client import open_conversation
from appliance.wire.control_events import AcceptedEvent, EndedEvent
from appliance.wire.control_requests import CONTROL, StopRequest, SwitchRequest
from appliance.wire.conversation import ActingRequest, ErrorEvent
from appliance.wire.token_socket import OFFERED, TOKEN
from tests.fakes.operator_accounts import ANA, BO, FakeAccounts, token_desk
from tests.fakes.profiles import FakeProfiles, applied, catalogue
from tests.fakes.supervisor_ports import FakePorts

BOX = catalogue(applied("aeon", "gpu-all"), applied("genesis", "gpu-all"))
UID = os.geteuid()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBox:
    """Supervised box, aeon serving, with the token socket, and tokens of ana and bo."""

    supervisor: Supervisor
    fakes: FakePorts
    accounts: FakeAccounts
    path: Path
    ana: str
    bo: str

    async def ask(self, verb: str, **args: object) -> Mapping[str, Any]:
        """The closing event of one conversation."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        request = {"protocol": {"min": 1, "max": 1}, "verb": verb, "args": args}
        writer.write(json.dumps(request).encode() + b"\n")
        closing: Mapping[str, Any] = json.loads((await reader.read()).splitlines()[-1])
        writer.close()
        return closing

    @property
    def recorded(self) -> list[tuple[str, str]]:
        """Kind and requester of every operation that was begun."""
        return [(row.kind, row.requested_by) for row in self.fakes.store.rows.values()]


@asynccontextmanager
async def supervised(directory: Path, *, web_uid: int = UID) -> AsyncIterator[TokenBox]:
    """The token socket of a supervisor, served."""
    fakes = FakePorts(BOX, "aeon")
    fakes.units.patience = sys.maxsize
    fakes.serve("aeon")
    supervisor = fakes.supervisor(FakeProfiles(BOX))
    accounts = FakeAccounts(ANA, BO)
    tokens = FileTokens(directory)
    clock = fakes.clock
    check = TokenCheck(
        tokens, accounts.of_uid, now_unix_s=clock.unix_s, monotonic_s=clock.monotonic_s
    )

    async def nothing() -> StatusDocument:
        return StatusDocument()

    control = ControlVerbs(
        supervisor,
        status=nothing,
        keys=FileKeys(directory),
        tokens=token_desk(directory),
        requests=ClientRequests(fakes.gateway),
        now_unix_s=clock.unix_s,
    )
    server = TokenVerbs(control, check.operator, clock.monotonic_s)
    made = {
        one.user: tokens.add(OperatorToken(name="phone", uid=one.uid, user=one.user), "ana", 0.0)[0]
        for one in (ANA, BO)
    }
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "token"))
        listener.listen()
        listener.settimeout(0)
        tasks = [
            asyncio.create_task(supervisor.run()),
            asyncio.create_task(server.serve(listener, ReadByToken(web_uid))),
        ]
        try:
            yield TokenBox(
                supervisor=supervisor,
                fakes=fakes,
                accounts=accounts,
                path=directory / "token",
                ana=made["ana"],
                bo=made["bo"],
            )
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def test_an_operator_acts_through_the_socket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each operation is on record with the operator and the token's name, as its line in the journal."""
    caplog.set_level(logging.DEBUG)
    async with supervised(tmp_path) as box:
        switched = await box.ask("switch", name="genesis", operator_token=box.ana)
        assert (switched["outcome"], box.fakes.commitment.names) == ("done", ("genesis",))
        stopped = await box.ask("stop", names=["genesis"], operator_token=box.bo)
        assert stopped["outcome"] == "done"
        assert box.recorded == [("switch", "ana (token phone)"), ("stop", "bo (token phone)")]
        assert "switch genesis for ana (token phone)" in caplog.text
        for token in (box.ana, box.bo):
            assert token.rpartition("_")[2] not in caplog.text


async def test_a_mark_is_set_as_the_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal names who has set it."""
    caplog.set_level("INFO")
    async with supervised(tmp_path) as box:
        done = await box.ask("mark", name="genesis", mark="standby", operator_token=box.ana)
        assert done["message"] == "genesis is marked standby"
        assert (await box.fakes.store.marks())["genesis"] is Mark.STANDBY
    assert "genesis is marked standby by ana (token phone)" in caplog.text


async def test_a_request_of_a_client_is_cancelled_as_the_operator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal names who has done it, and the key; one that is over is told as such."""
    caplog.set_level("INFO")
    async with supervised(tmp_path) as box:
        box.fakes.gateway.listed["ab-1"] = {
            "id": "ab-1",
            "profile": "aeon",
            "key": "laptop",
            "age_s": 12.3,
        }
        done = await box.ask("cut", request="ab-1", operator_token=box.ana)
        assert (done["exit"], done["cancelled"]) == (0, True)
        again = await box.ask("cut", request="ab-1", operator_token=box.ana)
        assert (again["exit"], again["cancelled"]) == (1, False)
        assert again["message"] == "request ab-1 is over"
        box.fakes.gateway.away = True
        away = await box.ask("cut", request="ab-1", operator_token=box.ana)
        assert "the gateway does not answer" in away["message"]
        for odd in ("", "a b", "x" * 49, 7):
            refused = await box.ask("cut", request=odd, operator_token=box.ana)
            assert refused["error"] == "bad-request"
    said = [r.message for r in caplog.records if "cancelled" in r.message]
    assert said == ["request ab-1 to aeon (key laptop, 12 s old) is cancelled by ana (token phone)"]


async def test_a_rehearsal_wants_a_token_too(tmp_path: Path) -> None:
    """With one it tells the plan, and changes nothing."""
    async with supervised(tmp_path) as box:
        told = await box.ask("switch", name="genesis", dry_run=True, operator_token=box.ana)
        assert told["plan"]["start"] == ["genesis"]
        refused = await box.ask("switch", name="genesis", dry_run=True)
        assert refused["error"] == "denied"
        assert box.recorded == []


@pytest.mark.parametrize(
    ("token", "kind"),
    [
        (None, "denied"),
        ("apt_00000000_0", "denied"),
        ("", "bad-request"),
        (7, "bad-request"),
    ],
)
@pytest.mark.parametrize("verb", [row[0] for row in TOKEN.requests])
async def test_without_an_operators_token_nothing_is_done(
    tmp_path: Path, verb: str, token: object, kind: str
) -> None:
    """No verb of the socket works for the process that owns it."""
    async with supervised(tmp_path) as box:
        refused = await box.ask(
            verb,
            name="genesis",
            names=["genesis"],
            mark="live",
            request="ab-1",
            operator_token=token,
        )
        assert (refused["event"], refused["error"]) == ("error", kind)
        assert box.recorded == []


async def test_a_former_operators_token_does_nothing(tmp_path: Path) -> None:
    """Rights end when the user leaves the group, whatever tokens there are."""
    async with supervised(tmp_path) as box:
        del box.accounts.known["ana"]
        refused = await box.ask("switch", name="genesis", operator_token=box.ana)
        assert (refused["error"], box.recorded) == ("denied", [])
        assert box.ana not in str(refused)


@pytest.mark.parametrize("verb", [v for v in CONTROL.verbs if v not in TOKEN.verbs])
async def test_other_verbs_are_not_offered(tmp_path: Path, verb: str) -> None:
    """Neither keys nor further tokens, no command, no hold, no reload, not even the status."""
    async with supervised(tmp_path) as box:
        refused = await box.ask(
            verb, name="a", action="add", command="sh", gpus="all", operator_token=box.ana
        )
        assert refused["error"] == "bad-request"
        assert box.recorded == []


def test_the_offer_is_what_operators_do_in_a_page() -> None:
    """A new verb of the control socket is not offered by itself."""
    assert {row[2] for row in TOKEN.requests} == set(OFFERED)
    assert [verb for verb in CONTROL.verbs if verb not in TOKEN.verbs] == [
        "status",
        "watch",
        "gpus",
        "operations",
        "hold",
        "run",
        "uncommit",
        "verify",
        "key",
        "token",
        "reload",
    ]


async def test_another_user_is_refused(tmp_path: Path) -> None:
    """The kernel's word on who connected counts beside the socket's mode, and before any token."""
    async with supervised(tmp_path, web_uid=UID + 1) as box:
        refused = await box.ask("switch", name="genesis", operator_token=box.ana)
        assert refused["error"] == "denied"
        assert str(UID + 1) in refused["message"]
        assert box.recorded == []


async def test_a_repeated_request_is_the_same_operation(tmp_path: Path) -> None:
    """With its key it is followed while it runs and told when it is over; another operator's key is another."""
    async with supervised(tmp_path) as box:
        once = ActingRequest(box.ana, SwitchRequest("genesis"), "k1")
        numbers = []
        for _ in range(3):
            async with open_conversation(TOKEN, box.path, once) as events:
                ended = [event async for event in events][-1]
            assert isinstance(ended, EndedEvent)
            numbers.append(ended.operation)
        assert (set(numbers), len(box.recorded)) == ({1}, 1)
        other = ActingRequest(box.ana, StopRequest(("genesis",)), "k1")
        async with open_conversation(TOKEN, box.path, other) as events:
            (refused,) = [event async for event in events]
        assert isinstance(refused, ErrorEvent)
        assert (refused.kind, len(box.recorded)) == ("bad-request", 1)
        bos = ActingRequest(box.bo, SwitchRequest("aeon"), "k1")
        async with open_conversation(TOKEN, box.path, bos) as events:
            first = await anext(events)
        assert isinstance(first, AcceptedEvent)
        assert first.operation == 2


async def test_a_cancel_is_for_the_operation_that_is_meant(tmp_path: Path) -> None:
    """A late cancel does not end the next operation."""
    async with supervised(tmp_path) as box:
        await box.ask("switch", name="genesis", operator_token=box.ana)
        until: HoldUntil = "forever"
        running = await box.supervisor.submit(
            OperationRequest(kind=Kind.HOLD, names=(), hold_until=until)
        )
        late = await box.ask("cancel", operation=1, operator_token=box.ana)
        assert late["message"] == "operation 1 does not run"
        unknown = await box.ask("cancel", operation=99, operator_token=box.ana)
        assert (unknown["error"], unknown["exit"]) == ("not-found", 4)
        assert unknown["message"] == "operation 99 is not on record: appliance operations"
        async for _ in running.transaction.feed.follow():
            pass
        assert box.fakes.commitment.names == ("genesis",)


def test_no_representation_has_a_token() -> None:
    """A request in a traceback or a log line shows what is asked, and not by whom it may be."""
    request = ActingRequest("apt_secret", SwitchRequest("genesis"), "k")
    assert "secret" not in repr(request)
    assert "genesis" in repr(request)


def test_keys_last_a_day() -> None:
    """After it the same key begins an operation again; before, another request is refused."""
    keys = RequestKeys()
    asked = SwitchRequest("genesis")
    keys.keep(1000, "k", asked, 18, 0.0)
    assert keys.operation(1000, "k", SwitchRequest("genesis"), KEY_S - 1) == 18
    assert keys.operation(1001, "k", asked, 1.0) is None
    with pytest.raises(BadRequestError, match="used for another request"):
        keys.operation(1000, "k", SwitchRequest("genesis", rollback=False), 1.0)
    assert keys.operation(1000, "k", asked, KEY_S) is None


def test_keys_are_bounded() -> None:
    """The oldest give way; a key that is used again counts as new."""
    keys = RequestKeys()
    asked = SwitchRequest("genesis")
    for number in range(MOST_KEYS):
        keys.keep(1000, f"k{number}", asked, number, 0.0)
    keys.keep(1000, "k0", asked, 7, 1.0)
    keys.keep(1000, "new", asked, 8, 2.0)
    assert keys.operation(1000, "k0", asked, 3.0) == 7
    assert keys.operation(1000, "k1", asked, 3.0) is None
    assert len(keys._kept) == MOST_KEYS
