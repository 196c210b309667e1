"""Client of audit.sock: answers of the auditor, and auditors that are away, slow or of another release."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.auditor.listener_audit import audit_listeners
from appliance.model.errors import ApplianceError
from appliance.system.audit_client import AuditClient
from appliance.wire.conversation import ResultEvent, UnknownEvent
from appliance.wire.helpers import (
    AUDIT,
    AuditEvent,
    AuditRequest,
    Listener,
    encode_listeners,
)
from appliance.wire.server import FEW, Peer, serve_conversations
from tests.waiting import settle

FOUND = Listener("0.0.0.0", 8000, 7, "python3", "miner.service", is_reachable=True)  # noqa: S104
HANG = UnknownEvent("hang")


@asynccontextmanager
async def client_of(
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
            yield ResultEvent(details=encode_listeners(report.listeners, truncated=False))
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
        async with client_of(tmp_path) as client:
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
        ResultEvent(details=encode_listeners((FOUND,), truncated=truncated)),
    ]
    async with client_of(tmp_path, said) as client:
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
    async with client_of(tmp_path, said) as client:
        for _ in range(2):
            assert await client.listeners([1]) is None
    assert caplog.text.count("listening sockets are not known") == 1


async def test_an_auditor_that_is_not_installed(tmp_path: Path) -> None:
    """Without a socket nothing is known."""
    assert await AuditClient(tmp_path / "none.sock").listeners([]) is None
