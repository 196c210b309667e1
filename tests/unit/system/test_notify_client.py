"""Client of the notifier: what it asks, and what becomes of answers and of none."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from appliance.model.alerts import Message, MessageAction, SendOutcome, SendResult, Severity
from appliance.model.errors import BusyError, UnreachableError
from appliance.model.targets import TargetStanding
from appliance.system.notify_client import NotifyClient
from appliance.wire.conversation import ResultEvent
from appliance.wire.helpers import (
    NOTIFY,
    CancelScheduledRequest,
    NotifyEvent,
    NotifyRequest,
    PingRequest,
    ScheduleRequest,
    SendRequest,
    TargetsRequest,
)
from appliance.wire.server import FEW, Peer, serve_conversations
from appliance.wire.typed_json import from_json

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
