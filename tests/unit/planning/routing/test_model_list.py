"""List of models."""

import json
from typing import Any

from appliance.domain.gateway import Key, Refusal, Routed, Standing, State
from appliance.domain.profile import Endpoint
from appliance.planning.routing.model_list import encode_model, encode_model_list
from appliance.planning.routing.model_names import ModelDirectory

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
    assert ids == ["genesis", "gpt-4o", "qwen", "aeon", "gemma"]


def test_an_entry_tells_its_profile_and_state() -> None:
    """A name that several profiles serve has the state of the one that a request would go to."""
    by_id = {model["id"]: model for model in shown()["data"]}
    states = {name: (model["profile"], model["state"]) for name, model in by_id.items()}
    assert states == {
        "genesis": ("genesis", "serving"),
        "gpt-4o": ("genesis", "serving"),
        "qwen": ("genesis", "serving"),
        "aeon": ("aeon", "coming"),
        "gemma": ("gemma", "held"),
    }
    assert by_id["aeon"]["served"] == ["qwen", "claude-*"]


def test_the_list_has_the_form_of_both_apis() -> None:
    """OpenAI's `object` and `created`, Anthropic's `type`, `created_at` and page."""
    found = shown()
    assert (found["object"], found["has_more"]) == ("list", False)
    assert (found["first_id"], found["last_id"]) == ("genesis", "gemma")
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
