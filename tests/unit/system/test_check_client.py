"""Client of check.sock: outcomes of checks, and checkers that are away or of another release."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from appliance.checker.process import answer
from appliance.system.check_client import CheckClient
from appliance.wire.conversation import ResultEvent
from appliance.wire.helpers import CHECK, CheckEvent, CheckRequest, CheckResult
from appliance.wire.server import FEW, Answer, Peer, serve_conversations


@asynccontextmanager
async def client_of(
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
    async with client_of(tmp_path, answer) as client:
        result = await client.check("http://127.0.0.1:1/", 20.0)
    assert result is not None
    assert (result.up, result.status, result.detail) == (False, None, "connection refused")


async def test_a_refusal_tells_nothing_about_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A URL that the checker refuses is not known to be down; that is logged once."""
    async with client_of(tmp_path, answer) as client:
        for _ in range(2):
            assert await client.check("ftp://box/", 20.0) is None
    assert caplog.text.count("watched addresses are not checked") == 1


async def test_an_answer_of_another_release_tells_nothing(tmp_path: Path) -> None:
    """A result without an outcome is no outcome."""

    async def other(_: CheckRequest, __: Peer) -> AsyncGenerator[CheckEvent, None]:
        yield ResultEvent(details={"up": "yes"})

    async with client_of(tmp_path, other) as client:
        assert await client.check("http://127.0.0.1:1/", 20.0) is None


async def test_every_field_arrives(tmp_path: Path) -> None:
    """An outcome has the same fields on both sides."""
    sent = CheckResult(up=True, status=204, ms=12, detail="x")

    async def other(_: CheckRequest, __: Peer) -> AsyncGenerator[CheckEvent, None]:
        yield ResultEvent(details=sent.fields())

    async with client_of(tmp_path, other) as client:
        assert await client.check("http://127.0.0.1:1/", 20.0) == sent
