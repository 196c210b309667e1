"""List of models."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from appliance.model.gateway import Key, ModelCard, Refusal, Routed, Standing, State
from appliance.model.profile import Endpoint
from appliance.routing.model_names import ModelDirectory, encode_model, encode_model_list

BOX = ModelDirectory(
    {
        name: Routed(name=name, served=served, engine_name=name, endpoint=Endpoint(port=1))
        for name, served in {
            "aeon": ("qwen", "claude-*"),
            "genesis": ("qwen", "gpt-4o", "claude-*"),
            "gemma": (),
        }.items()
    }
)
NOW = State(
    standings={"genesis": Standing.SERVING, "gemma": Standing.SERVING, "aeon": Standing.STARTING},
    held=frozenset({"gemma"}),
)


def shown(key: Key | None = None) -> dict[str, Any]:
    """Return the decoded list."""
    found = json.loads(encode_model_list(BOX, NOW, key))
    assert isinstance(found, dict)
    return found


def test_every_name_that_can_be_asked_for_is_there_once() -> None:
    """Models that serve come first; patterns are not listed."""
    ids = [model["id"] for model in shown()["data"]]
    assert ids == ["default", "genesis", "gpt-4o", "qwen", "aeon", "gemma"]


def test_an_entry_tells_its_profile_and_state() -> None:
    """A name that several profiles serve has the state of the one that a request would go to."""
    by_id = {model["id"]: model for model in shown()["data"]}
    states = {name: (model["profile"], model["state"]) for name, model in by_id.items()}
    assert states == {
        "default": ("genesis", "serving"),
        "genesis": ("genesis", "serving"),
        "gpt-4o": ("genesis", "serving"),
        "qwen": ("genesis", "serving"),
        "aeon": ("aeon", "coming"),
        "gemma": ("gemma", "held"),
    }
    assert by_id["aeon"]["served"] == ["qwen", "claude-*"]


def test_an_engine_that_does_not_answer_is_no_model_to_choose() -> None:
    """The entry stands behind those that serve, as failed; one that does not serve stays as it is."""
    found = json.loads(encode_model_list(BOX, NOW, unresponsive={"genesis", "aeon"}))["data"]
    by_id = {model["id"]: (model["state"], model["status"]["value"]) for model in found}
    assert by_id["genesis"] == ("unresponsive", "failed")
    assert by_id["aeon"] == ("coming", "loading")


def test_the_list_has_the_form_of_both_apis() -> None:
    """OpenAI's `object` and `created`, Anthropic's `type`, `created_at` and page."""
    found = shown()
    assert (found["object"], found["has_more"]) == ("list", False)
    assert (found["first_id"], found["last_id"]) == ("default", "gemma")
    for model in found["data"]:
        assert (model["object"], model["type"]) == ("model", "model")
        assert isinstance(model["created"], int)
        assert model["created_at"].endswith("Z")
        assert model["display_name"] == model["id"]


def test_a_key_is_shown_what_it_may_use() -> None:
    """A name that several profiles serve stands for the one that the key may use."""
    data = shown(Key(name="anna", profiles=("aeon",)))["data"]
    assert [(model["id"], model["profile"]) for model in data] == [
        ("aeon", "aeon"),
        ("qwen", "aeon"),
    ]


@pytest.mark.parametrize(
    ("now", "state", "status"),
    [
        (State(standings={"aeon": Standing.SERVING}), "serving", {"value": "loaded"}),
        (State(standings={"aeon": Standing.STARTING}), "coming", {"value": "loading"}),
        (State(), "down", {"value": "unloaded"}),
        (State(failed=frozenset({"aeon"})), "failed", {"value": "failed", "failed": True}),
        # Its restart has begun: that is no failure any more.
        (
            State(standings={"aeon": Standing.STARTING}, failed=frozenset({"aeon"})),
            "coming",
            {"value": "loading"},
        ),
        (State(held=frozenset({"aeon"}), target=("aeon",)), "held", {"value": "loading"}),
        (
            State(
                standings={"aeon": Standing.SERVING},
                held=frozenset({"aeon", "genesis"}),
                target=("genesis",),
            ),
            "held",
            {"value": "unloaded"},
        ),
    ],
)
def test_a_status_in_the_words_of_other_servers(
    now: State, state: str, status: dict[str, object]
) -> None:
    """A failed model is failed; of two that are switched the new one loads, and the old one is gone."""
    found = encode_model("aeon", BOX, now)
    assert isinstance(found, bytes)
    entry = json.loads(found)
    assert (entry["state"], entry["status"]) == (state, status)


def test_an_entry_has_the_card_of_its_model() -> None:
    """Context, time and capabilities are the profile's; what is not known is absent."""
    card = ModelCard(
        created_unix_s=1_795_392_000,
        context_tokens=32768,
        capabilities={"tools": True, "vision": False},
    )
    plain = Routed(name="b", served=("b",), engine_name="b", endpoint=Endpoint(port=1))
    directory = ModelDirectory({"a": replace(plain, name="a", card=card), "b": plain})
    entries = {
        entry["id"]: entry for entry in json.loads(encode_model_list(directory, State()))["data"]
    }
    known, unknown = entries["a"], entries["b"]
    assert (known["created"], known["created_at"]) == (1_795_392_000, "2026-11-23T00:00:00Z")
    assert (known["context_length"], known["meta"]) == (32768, {"n_ctx": 32768})
    assert known["max_model_len"] == 32768
    assert known["capabilities"] == {"tools": True, "vision": False}
    assert unknown["capabilities"] == {}
    assert not {"context_length", "max_model_len", "meta"} & unknown.keys()


def test_an_adapter_names_the_model_that_it_belongs_to() -> None:
    """`parent` is the model, as in vLLM's list; it is there, and null, of a model as well."""
    box = Routed(
        name="box",
        served=("qwen", "q-*", "sql"),
        engine_name="qwen",
        endpoint=Endpoint(port=1),
        adapters={"sql": "qwen"},
    )
    directory = ModelDirectory({"box": box})
    listed = json.loads(encode_model_list(directory, State(committed=("box",))))["data"]
    assert {entry["id"]: entry["parent"] for entry in listed} == {
        **dict.fromkeys(("box", "default", "qwen")),
        "sql": "qwen",
    }
    found = encode_model("sql", directory, State())
    assert isinstance(found, bytes)
    assert json.loads(found)["parent"] == "qwen"


@pytest.mark.parametrize("unix_s", [-1, 0, 253402300799, 1 << 62])
def test_a_time_of_any_file_is_a_time(unix_s: int) -> None:
    """File systems keep times that no calendar has; the list is made all the same."""
    plain = Routed(name="b", served=("b",), engine_name="b", endpoint=Endpoint(port=1))
    directory = ModelDirectory({"b": replace(plain, card=ModelCard(created_unix_s=unix_s))})
    found = encode_model("b", directory, State())
    assert isinstance(found, bytes)
    assert datetime.fromisoformat(json.loads(found)["created_at"]).tzinfo is not None


def test_the_default_is_listed_while_it_leads_somewhere() -> None:
    """Clients that offer the list offer `default`; without a model to serve it they do not."""
    found = json.loads(encode_model_list(BOX, State()))
    assert "default" not in [entry["id"] for entry in found["data"]]
    found = json.loads(encode_model_list(BOX, State(committed=("aeon",))))
    (entry,) = [entry for entry in found["data"] if entry["id"] == "default"]
    assert entry["profile"] == "aeon"


def test_an_empty_list_is_a_list() -> None:
    """A key without profiles gets an empty list."""
    found = shown(Key(name="nobody", profiles=()))
    assert (found["data"], found["first_id"], found["last_id"]) == ([], None, None)


def test_one_entry_can_be_asked_for() -> None:
    """An entry is found by every name that a request may have; others are refused."""
    found = encode_model("claude-opus-4", BOX, NOW)
    assert isinstance(found, bytes)
    assert json.loads(found)["profile"] == "genesis"
    assert json.loads(found)["id"] == "claude-opus-4"
    refused = encode_model("nothing", BOX, NOW)
    assert isinstance(refused, Refusal)
    assert refused.code == "model_not_found"
