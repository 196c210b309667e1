"""Clients of other daemons: requests that they send, and what becomes of answers and of silence."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.helpers.auditor import audit_listeners
from appliance.helpers.checker import answer
from appliance.model.alerts import Message, MessageAction, SendOutcome, SendResult, Severity
from appliance.model.errors import ApplianceError, BusyError, UnreachableError
from appliance.model.targets import TargetStanding
from appliance.system.daemon_clients import AuditClient, CheckClient, NotifyClient
from appliance.wire.conversation import ResultEvent, UnknownEvent
from appliance.wire.helpers import (
    AUDIT,
    CHECK,
    NOTIFY,
    AuditEvent,
    AuditReport,
    AuditRequest,
    CancelScheduledRequest,
    CheckEvent,
    CheckRequest,
    CheckResult,
    Listener,
    NotifyEvent,
    NotifyRequest,
    PingRequest,
    ScheduleRequest,
    SendRequest,
    TargetsRequest,
)
from appliance.wire.server import FEW, Answer, Peer, serve_conversations
from appliance.wire.typed_json import from_json
from tests.waiting import settle

MESSAGE = Message(
    title="genesis slow",
    body="text ✓",
    severity=Severity.WARNING,
    sequence_id="A17",
    tags=("warning",),
    actions=(MessageAction(label="Ack", url="http://box/ack"),),
)


class Notifier:
    """A notifier that keeps its requests and answers all of them alike."""

    def __init__(self) -> None:
        self.asked: list[NotifyRequest] = []
        self.outcome = "sent"
        self.details: Mapping[str, Any] = {}
        self.is_busy = False
        self.is_mute = False

    async def answer(
        self, request: NotifyRequest, _peer: Peer
    ) -> AsyncGenerator[NotifyEvent, None]:
        self.asked.append(request)
        if self.is_mute:
            await asyncio.Event().wait()
        if self.is_busy:
            raise BusyError("too much to do")
        yield ResultEvent(outcome=self.outcome, details=self.details)


@asynccontextmanager
async def served(path: Path) -> AsyncIterator[Notifier]:
    notifier = Notifier()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        serving = asyncio.create_task(
            serve_conversations(
                NOTIFY,
                listener,
                lambda verb, args, _peer: NOTIFY.decode_request(verb, args),
                notifier.answer,
                bounds=FEW,
            )
        )
        try:
            yield notifier
        finally:
            everything = asyncio.all_tasks() - {asyncio.current_task()}
            for task in everything:
                task.cancel()
            await asyncio.gather(serving, *everything, return_exceptions=True)


async def test_each_request_reaches_the_notifier_whole(tmp_path: Path) -> None:
    """A message arrives with all its fields, under the verb that was meant."""
    async with served(tmp_path / "s") as notifier:
        client = NotifyClient(tmp_path / "s")
        sent = SendResult(outcome=SendOutcome.SENT)
        assert await client.send("phone", MESSAGE) == sent
        assert await client.schedule("phone", MESSAGE, 300.0) == sent
        assert await client.cancel("phone", "box") == sent
        assert await client.ping() == sent
    send, schedule, cancel, ping = notifier.asked
    assert isinstance(send, SendRequest)
    assert from_json(Message, send.message) == MESSAGE
    assert isinstance(schedule, ScheduleRequest)
    assert (schedule.target, schedule.delay_s) == ("phone", 300.0)
    assert cancel == CancelScheduledRequest("phone", "box")
    assert ping == PingRequest()


@pytest.mark.parametrize(
    ("word", "outcome"),
    [("retry", SendOutcome.RETRY), ("refused", SendOutcome.REFUSED), ("new", SendOutcome.RETRY)],
)
async def test_an_answer_is_a_result(tmp_path: Path, word: str, outcome: SendOutcome) -> None:
    """Outcome, text and time come as they are; a word of a later release is a try that failed."""
    async with served(tmp_path / "s") as notifier:
        notifier.outcome = word
        notifier.details = {"text": "ntfy answers 429", "retry_after_s": 7}
        result = await NotifyClient(tmp_path / "s").send("phone", MESSAGE)
    assert result == SendResult(outcome=outcome, text="ntfy answers 429", retry_after_s=7.0)


async def test_a_notifier_that_is_away_is_tried_again(tmp_path: Path) -> None:
    """No socket, a refusal and no answer in time are tries that may succeed later."""
    path = tmp_path / "s"
    assert (await NotifyClient(path).send("phone", MESSAGE)).outcome is SendOutcome.RETRY
    async with served(path) as notifier:
        notifier.is_busy = True
        busy = await NotifyClient(path).ping()
        notifier.is_mute = True
        mute = await NotifyClient(path, deadline_s=0.05).ping()
    assert busy == SendResult(outcome=SendOutcome.RETRY, text="too much to do")
    assert mute == SendResult(
        outcome=SendOutcome.RETRY, text="the notifier does not answer in time"
    )


async def test_the_targets_are_listed(tmp_path: Path) -> None:
    """Each target comes with what is known of it; rows of no known form are an error."""
    row = {"name": "phone", "kind": "ntfy", "scheduled": True, "later": 1}
    async with served(tmp_path / "s") as notifier:
        client = NotifyClient(tmp_path / "s")
        notifier.details = {"targets": [row]}
        assert await client.targets() == [TargetStanding(name="phone", kind="ntfy", scheduled=True)]
        notifier.details = {"targets": [{"name": 1}]}
        with pytest.raises(UnreachableError):
            await client.targets()
        assert notifier.asked == [TargetsRequest(), TargetsRequest()]
    with contextlib.suppress(FileNotFoundError):
        (tmp_path / "s").unlink()
    with pytest.raises(UnreachableError, match="notifier not running"):
        await NotifyClient(tmp_path / "s").targets()


FOUND = Listener("0.0.0.0", 8000, 7, "python3", "miner.service", is_reachable=True)  # noqa: S104
HANG = UnknownEvent("hang")


@asynccontextmanager
async def audit_client_of(
    folder: Path, said: Sequence[AuditEvent] | ApplianceError | None = None
) -> AsyncIterator[AuditClient]:
    """A client of an auditor that says this; None: that audits this machine."""
    left = asyncio.Event()
    hangs = isinstance(said, list) and HANG in said

    async def answer(request: AuditRequest, _: Peer) -> AsyncGenerator[AuditEvent, None]:
        if isinstance(said, ApplianceError):
            raise said
        if said is None:
            report = audit_listeners(request.pids, init=os.getpid())
            yield ResultEvent(details=report.details())
        for event in said or ():
            if event is HANG:
                await left.wait()
            yield event

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "audit.sock"))
        listener.listen(16)
        serving = asyncio.create_task(
            serve_conversations(
                AUDIT,
                listener,
                lambda verb, args, _: AUDIT.decode_request(verb, args),
                answer,
                bounds=FEW,
            )
        )
        patience_s = 0.2 if hangs else 20.0
        try:
            yield AuditClient(folder / "audit.sock", patience_s=patience_s)
        finally:
            left.set()
            await settle()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_listeners_of_a_process_are_told(tmp_path: Path) -> None:
    """A socket of this process comes back over the real codec, as the rules take it."""
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen()
        async with audit_client_of(tmp_path) as client:
            told = await client.listeners([os.getpid()])
        assert told is not None
        (one,) = (one for one in told if one.port == own.getsockname()[1])
    assert (one.address, one.pid, one.is_reachable) == ("127.0.0.1", os.getpid(), False)


@pytest.mark.parametrize("truncated", [False, True])
async def test_a_part_is_told_as_well(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    truncated: bool,  # noqa: FBT001
) -> None:
    """Listeners that the auditor tells are known, also when there were more; that is logged once."""
    said: Sequence[AuditEvent] = [
        UnknownEvent("news"),
        ResultEvent(details=AuditReport((FOUND,), truncated).details()),
    ]
    async with audit_client_of(tmp_path, said) as client:
        for _ in range(3):
            assert await client.listeners([]) == (Listener(**FOUND.fields()),)
    assert caplog.text.count("a part of the listening sockets") == truncated


@pytest.mark.parametrize(
    "said",
    [
        [ResultEvent()],
        [ResultEvent(details={"listeners": [1]})],
        [ResultEvent(details={"listeners": None})],
        [HANG],
        [UnknownEvent("the end")],
        ApplianceError("the network namespace of process 1 cannot be read"),
    ],
    ids=repr,
)
async def test_without_an_answer_nothing_is_known(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    said: Sequence[AuditEvent] | ApplianceError,
) -> None:
    """An auditor that refuses, hangs or says something else tells neither good nor bad; logged once."""
    async with audit_client_of(tmp_path, said) as client:
        for _ in range(2):
            assert await client.listeners([1]) is None
    assert caplog.text.count("listening sockets are not known") == 1


async def test_an_auditor_that_is_not_installed(tmp_path: Path) -> None:
    """Without a socket nothing is known."""
    assert await AuditClient(tmp_path / "none.sock").listeners([]) is None


@asynccontextmanager
async def check_client_of(
    folder: Path, answer: Answer[CheckRequest, CheckEvent]
) -> AsyncIterator[CheckClient]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "check.sock"))
        listener.listen(16)
        serving = asyncio.create_task(
            serve_conversations(
                CHECK,
                listener,
                lambda verb, args, _: CHECK.decode_request(verb, args),
                answer,
                bounds=FEW,
            )
        )
        try:
            yield CheckClient(folder / "check.sock")
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


async def test_an_outcome_comes_over_the_socket(tmp_path: Path) -> None:
    """The real checker tells that nobody listens."""
    async with check_client_of(tmp_path, answer) as client:
        result = await client.check("http://127.0.0.1:1/", 20.0)
    assert result is not None
    assert (result.up, result.status, result.detail) == (False, None, "connection refused")


async def test_a_refusal_tells_nothing_about_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A URL that the checker refuses is not known to be down; that is logged once."""
    async with check_client_of(tmp_path, answer) as client:
        for _ in range(2):
            assert await client.check("ftp://box/", 20.0) is None
    assert caplog.text.count("watched addresses are not checked") == 1


async def test_an_answer_of_another_release_tells_nothing(tmp_path: Path) -> None:
    """A result without an outcome is no outcome."""

    async def other(_: CheckRequest, __: Peer) -> AsyncGenerator[CheckEvent, None]:
        yield ResultEvent(details={"up": "yes"})

    async with check_client_of(tmp_path, other) as client:
        assert await client.check("http://127.0.0.1:1/", 20.0) is None


async def test_every_field_arrives(tmp_path: Path) -> None:
    """An outcome has the same fields on both sides."""
    sent = CheckResult(up=True, status=204, ms=12, detail="x")

    async def other(_: CheckRequest, __: Peer) -> AsyncGenerator[CheckEvent, None]:
        yield ResultEvent(details=sent.fields())

    async with check_client_of(tmp_path, other) as client:
        assert await client.check("http://127.0.0.1:1/", 20.0) == sent
