"""Trials of prompts, over a unix socket to what answers as the gateway does."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from appliance.model.errors import ApplianceError, BackendError, BusyError
from appliance.web.actions import MOST_TRIALS, GatewayTrials
from tests.fakes.engine_server import EVENTS, LAST, EngineServer, Talk, answering, chunk, sized
from tests.waiting import until

PROMPT = "the secret of the garden"


def event(text: str) -> bytes:
    """A piece of a stream."""
    return chunk(
        b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"
    )


async def test_an_answer_comes_in_pieces(tmp_path: Path) -> None:
    """The request is an ordinary one of the client API, without a key."""
    done = chunk(b"data: [DONE]\n\n")
    path = str(tmp_path / "prompt.sock")
    async with EngineServer(
        answering(EVENTS, event("Once"), event(" upon"), done, LAST), path
    ) as server:
        found = [text async for text in GatewayTrials(Path(path)).answer("aeon", PROMPT)]
        (heard,) = server.heard
    assert found == ["Once", " upon"]
    assert heard.line == b"POST /v1/chat/completions HTTP/1.1"
    assert heard.header(b"authorization") == []
    assert heard.header(b"host") == [b"localhost:8010"]
    body = json.loads(heard.body)
    assert (body["model"], body["messages"]) == ("aeon", [{"role": "user", "content": PROMPT}])
    assert body["stream"] is True


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            sized(b'{"error":{"code":"model_not_active","message":"secret"}}', b"404 X"),
            "404 model_not_active",
        ),
        (
            EVENTS + chunk(b'data: {"error":{"message":"secret"}}\n\n') + LAST,
            "the answer broke off",
        ),
        (EVENTS + chunk(b"x" * 2_000_000), "too long"),
    ],
    ids=["refused", "error event", "too long"],
)
async def test_a_failure_is_told_without_any_text_of_it(
    tmp_path: Path, answer: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A status and a code are told; a message of the other side, which may repeat the prompt, is not."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "prompt.sock"
    async with EngineServer(answering(answer), str(path)):
        with pytest.raises(BackendError, match=text) as caught:
            async for _ in GatewayTrials(path).answer("aeon", PROMPT):
                pass
    assert "secret" not in str(caught.value) + caplog.text


async def test_an_answer_that_breaks_off_keeps_what_came(tmp_path: Path) -> None:
    """Events that are no JSON, nested however deeply, are passed over."""

    async def cut(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, event("a"), chunk(b"data: " + b"[" * 50_000 + b"\n\n"))
        await talk.delivered()
        talk.writer.close()

    path = tmp_path / "prompt.sock"
    async with EngineServer(cut, str(path)):
        answer = GatewayTrials(path).answer("aeon", PROMPT)
        assert await anext(answer) == "a"
        with pytest.raises(BackendError, match="broke off"):
            await anext(answer)


async def test_without_a_gateway_there_is_no_answer(tmp_path: Path) -> None:
    """The fault is a sentence."""
    with pytest.raises(BackendError, match="no connection"):
        async for _ in GatewayTrials(tmp_path / "none.sock").answer("aeon", PROMPT):
            pass


async def test_who_leaves_ends_the_request_and_makes_room(tmp_path: Path) -> None:
    """Few run at once; the connection to the gateway is closed with the browser's."""
    path, gone = tmp_path / "prompt.sock", 0

    async def endless(talk: Talk) -> None:
        nonlocal gone
        await talk.request()
        await talk.say(EVENTS, event("a"))
        await talk.reader.read()
        gone += 1

    trials = GatewayTrials(path)
    async with EngineServer(endless, str(path)):
        running = [trials.answer("aeon", PROMPT) for _ in range(MOST_TRIALS)]
        assert [await anext(one) for one in running] == ["a"] * MOST_TRIALS
        with pytest.raises(BusyError):
            await anext(trials.answer("aeon", PROMPT))
        await running[0].aclose()
        await until(lambda: gone == 1)
        again = trials.answer("aeon", PROMPT)
        assert await anext(again) == "a"
        for one in (again, running[1]):
            await one.aclose()
        await until(lambda: gone == MOST_TRIALS + 1)
    assert issubclass(BusyError, ApplianceError)
    await asyncio.sleep(0)
