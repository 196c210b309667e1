"""OpenAI's own client before the gateway: what it shows of a refusal, and tools through a switch."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import openai
import pytest
from openai import AsyncOpenAI

from appliance.model.gateway import Refusal, Standing, State
from appliance.routing import refusals
from tests.fakes.engine_server import EVENTS, LAST, Talk, answering, chunk, sized
from tests.unit.gateway.relay.rig import Rig, rigged
from tests.waiting import until

TOOLS: Final = [
    {
        "type": "function",
        "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
    }
]
CALL: Final = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "weather", "arguments": "{}"},
}
WHOLE: Final = {
    "id": "1",
    "object": "chat.completion",
    "created": 1,
    "model": "genesis",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [CALL]},
        }
    ],
}
PIECE: Final = {
    "id": "1",
    "object": "chat.completion.chunk",
    "created": 1,
    "model": "genesis",
    "choices": [{"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": None}],
}
JSON: Final = b"Content-Type: application/json\r\n"
HELD: Final = State(
    standings={"genesis": Standing.STARTING}, committed=("genesis",), target=("genesis",)
)
SHAPES = pytest.mark.parametrize(
    "shape",
    [{}, {"stream": True}, {"tools": TOOLS}, {"stream": True, "tools": TOOLS}],
    ids=["whole", "stream", "tools", "stream with tools"],
)


def event(document: object) -> bytes:
    return chunk(b"data: %b\n\n" % json.dumps(document).encode())


async def calling(talk: Talk) -> None:
    """Answer each request with a call of the tool."""
    while True:
        heard = await talk.request()
        if json.loads(heard.body).get("stream"):
            await talk.say(EVENTS, event(PIECE), chunk(b"data: [DONE]\n\n"), LAST)
        else:
            await talk.say(sized(json.dumps(WHOLE).encode(), headers=JSON))


@asynccontextmanager
async def client_of(rig: Rig) -> AsyncIterator[AsyncOpenAI]:
    url = f"http://127.0.0.1:{rig.port}/v1"
    async with AsyncOpenAI(base_url=url, api_key="right", max_retries=0) as client:
        yield client


async def ask(client: AsyncOpenAI, shape: dict[str, Any], model: str = "genesis") -> list[str]:
    """Return the names of the tools that an answer calls."""
    create: Any = client.chat.completions.create  # its types know no made-up arguments
    found = await create(model=model, messages=[{"role": "user", "content": "hello"}], **shape)
    if not shape.get("stream"):
        return [call.function.name for call in found.choices[0].message.tool_calls]
    pieces = [choice.delta async for piece in found for choice in piece.choices]
    return [call.function.name for delta in pieces for call in delta.tool_calls or ()]


@SHAPES
@pytest.mark.parametrize(
    ("state", "model", "refusal"),
    [
        (
            State(committed=("genesis",), paused=True),
            "genesis",
            refusals.box_paused(lent=False),
        ),
        (
            State(committed=("genesis",), paused=True, lent=True),
            "genesis",
            refusals.box_paused(lent=True),
        ),
        (State(paused=True), "default", refusals.box_paused(lent=False)),
        (
            State(committed=("genesis",), failed=frozenset({"genesis"})),
            "genesis",
            refusals.model_failed("genesis", is_repaired=True),
        ),
        (
            State(failed=frozenset({"genesis"})),
            "genesis",
            refusals.model_failed("genesis", is_repaired=False),
        ),
        (State(), "genesis", refusals.model_not_active("genesis", ())),
        (State(), "genesys", refusals.model_not_found('"genesys"', "genesis", "genesis")),
        (State(retired=frozenset({"genesis"})), "genesis", refusals.model_retired("genesis")),
    ],
)
async def test_a_person_reads_what_to_do(
    state: State, model: str, refusal: Refusal, shape: dict[str, Any]
) -> None:
    """The client's error has the gateway's whole sentence, its code, and its type by the status."""
    async with rigged(answering()) as rig, client_of(rig) as client:
        rig.table.take(state)
        with pytest.raises(openai.APIStatusError) as caught:
            await ask(client, shape, model)
    assert refusal.message in str(caught.value).replace('\\"', '"')
    assert (caught.value.status_code, caught.value.code) == (refusal.status, refusal.code)
    wait_s = caught.value.response.headers.get("retry-after")
    assert wait_s == (None if refusal.retry_after_s is None else str(refusal.retry_after_s))


@SHAPES
async def test_a_request_waits_through_a_switch(shape: dict[str, Any]) -> None:
    """Held while the model loads, and then answered with what the engine says, tools too."""
    async with rigged(calling) as rig, client_of(rig) as client:
        rig.table.take(HELD)
        asking = asyncio.create_task(ask(client, {**shape, "tools": TOOLS}))
        await until(lambda: len(rig.relay.hold_queue))
        rig.tell(Standing.SERVING)
        assert await asking == ["weather"]
    (heard,) = rig.engine.heard
    assert json.loads(heard.body)["tools"] == TOOLS


async def test_a_stream_that_a_switch_cuts_says_so() -> None:
    """The client raises an error with the sentence, in place of a text that ends too early."""

    async def endless(talk: Talk) -> None:
        await talk.request()
        await talk.say(EVENTS, event(PIECE))
        await talk.request()

    async with rigged(endless) as rig, client_of(rig) as client:
        stream = await client.chat.completions.create(
            model="genesis", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        assert (await anext(stream)).choices
        await rig.relay.drain(["genesis"], 0.0)
        with pytest.raises(openai.APIError, match="ask again") as caught:
            await anext(stream)
        assert str(caught.value) == refusals.MODEL_REPLACED.message
