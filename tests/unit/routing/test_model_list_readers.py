"""Readers of the list of models find in ours what they find in those of other servers."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI

from appliance.model.gateway import ModelCard, Routed, Standing, State
from appliance.model.profile import Endpoint
from appliance.routing.model_names import ModelDirectory, encode_model, encode_model_list
from tests.fakes.engine_server import EngineServer, answering, sized
from tests.fakes.model_lists import LLAMA_ROUTER, LLAMA_SWAP, read_like_open_webui

CARD = ModelCard(created_unix_s=1776984352, context_tokens=16384, capabilities={"tools": True})
BOX = ModelDirectory(
    {
        name: Routed(
            name=name, served=(name,), engine_name=name, endpoint=Endpoint(port=1), card=CARD
        )
        for name in ("genesis", "aeon", "broken")
    }
)
CURRENT = State(standings={"genesis": Standing.SERVING}, failed=frozenset({"broken"}))
OURS: Mapping[str, Any] = json.loads(encode_model_list(BOX, CURRENT))
LISTS = pytest.mark.parametrize(
    "answer", [OURS, LLAMA_ROUTER, LLAMA_SWAP], ids=["ours", "llama-server", "llama-swap"]
)


@LISTS
def test_a_menu_marks_the_same_models(answer: Mapping[str, Any]) -> None:
    """A reader after Open WebUI's rules shows each model under its id, and one as loaded."""
    found = read_like_open_webui(answer)
    assert {"genesis", "aeon"} <= found.keys()
    assert [name for name, model in found.items() if model.loaded and name != "default"] == [
        "genesis"
    ]
    assert found["aeon"].name == "aeon"
    # The reader takes a bare list as well, which some servers answer.
    assert read_like_open_webui(list(answer["data"])) == found


def test_a_server_without_a_status_would_mark_every_model() -> None:
    """The reason for the field: without it a model that does not run is shown as loaded."""
    bare = [{k: v for k, v in entry.items() if k != "status"} for entry in OURS["data"]]
    assert all(model.loaded for model in read_like_open_webui(bare).values())


@asynccontextmanager
async def answered(body: bytes) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own client, before a server that answers every request with the same."""
    headers = b"Content-Type: application/json\r\n"
    async with (
        EngineServer(answering(sized(body, headers=headers))) as server,
        AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none") as client,
    ):
        yield client


@LISTS
async def test_the_openai_client_reads_all_lists_alike(answer: Mapping[str, Any]) -> None:
    """OpenAI's own client finds id, owner and a real time, and keeps the fields that are not OpenAI's."""
    async with answered(json.dumps(answer).encode()) as client:
        models = {model.id: model async for model in client.models.list()}
    assert {"genesis", "aeon"} <= models.keys()
    for model in models.values():
        assert model.object == "model"
        assert model.owned_by in {"appliance", "llamacpp", "llama-swap"}
        assert model.created > 1_700_000_000
    extras = {name: model.model_extra or {} for name, model in models.items()}
    statuses = {name: extra["status"]["value"] for name, extra in extras.items()}
    assert (statuses["genesis"], statuses["aeon"]) == ("loaded", "unloaded")


async def test_the_openai_client_reads_one_entry() -> None:
    """The client's ``retrieve`` gives the context of a model."""
    body = encode_model("genesis", BOX, CURRENT)
    assert isinstance(body, bytes)
    async with answered(body) as client:
        model = await client.models.retrieve("genesis")
    extra = model.model_extra or {}
    assert model.id == "genesis"
    assert (extra["context_length"], extra["meta"]) == (16384, {"n_ctx": 16384})


@pytest.mark.parametrize("answer", [OURS, LLAMA_ROUTER], ids=["ours", "llama-server"])
def test_a_failed_model_is_known_by_the_same_field(answer: Mapping[str, Any]) -> None:
    """A client of llama-server's router finds a failure where it looks for it."""
    failed = [e["id"] for e in answer["data"] if e.get("status", {}).get("failed") is True]
    assert failed == ["broken"]
