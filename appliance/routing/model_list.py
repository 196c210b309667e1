"""List of models, in OpenAI's form and Anthropic's at once, with what servers of local models add.

Their fields do not contradict each other, and clients of either skip fields they do not know:

==================  ====================================================================================
field               who reads it
==================  ====================================================================================
``status.value``    clients of llama-server's router and of llama-swap: loaded, loading, unloaded; failed, also
                    while an unresponsive engine holds its model: who picks by the value needs an answer
``status.failed``   clients of llama-server's router, whose value for a failed model is unloaded
``meta.n_ctx``      clients of llama-server
``context_length``  clients of OpenRouter and its likes
``max_model_len``   clients of vLLM, as ``parent``: the model of an adapter, null of a model
``name``            Open WebUI
``type`` …          clients of Anthropic's API: ``type``, ``display_name``, ``created_at``
``profile`` …       ours: ``profile``, ``served``, ``state``, ``on_request``
==================  ====================================================================================
"""

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

from appliance.model.gateway import Key, Refusal, Routed, Standing, State
from appliance.routing.model_names import DEFAULT, ModelDirectory, may_use

_SERVING: Final = Standing.SERVING.value
_HELD: Final = "held"
_FAILED: Final = "failed"
_UNRESPONSIVE: Final = "unresponsive"
_LATEST_UNIX_S: Final = 253402300799
"""Last second of the year 9999, which the form of ``created_at`` ends with."""

Entry = Mapping[str, object]


def encode_model_list(
    directory: ModelDirectory,
    state: State,
    key: Key | None = None,
    *,
    unresponsive: Collection[str] = (),
) -> bytes:
    """Return the body of ``GET /v1/models``: models that serve first, then by name.

    Args:
        directory: Applied profiles.
        state: What serves now.
        key: Key of the request; None: none, and every profile may be used.
        unresponsive: Profiles whose engines run and do not answer, as the health agent has found.
    """
    data = _entries(directory, state, key, unresponsive)
    ids = [entry["id"] for entry in data]
    return _encode(
        {
            "object": "list",
            "data": data,
            "has_more": False,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
        }
    )


def encode_model(
    name: str,
    directory: ModelDirectory,
    state: State,
    key: Key | None = None,
    *,
    unresponsive: Collection[str] = (),
) -> bytes | Refusal:
    """Return the body of ``GET /v1/models/NAME``.

    Args:
        name: Name of a profile, or one that a profile serves; patterns count.
        directory: Applied profiles.
        state: What serves now.
        key: As for `encode_model_list`.
        unresponsive: As for `encode_model_list`.
    """
    found = directory.resolve(name, state, key)
    if isinstance(found, Refusal):
        return found
    return _encode(_entry(name, found, state, unresponsive))


def _entries(
    directory: ModelDirectory, state: State, key: Key | None, unresponsive: Collection[str]
) -> list[Entry]:
    found: list[tuple[bool, str, Entry]] = []
    allowed = (
        n for n, profiles in directory.names.items() if any(may_use(key, p) for p in profiles)
    )
    for name in dict.fromkeys((*allowed, DEFAULT)):
        routed = directory.resolve(name, state, key)
        # Only the default may lead nowhere: of any other name one profile may be used.
        if isinstance(routed, Routed):
            shown = _entry(name, routed, state, unresponsive)
            found.append((shown["state"] != _SERVING, name, shown))
    return [shown for _, _, shown in sorted(found, key=lambda item: item[:2])]


def _entry(name: str, profile: Routed, state: State, unresponsive: Collection[str]) -> Entry:
    card = profile.card
    shown = _state(profile.name, state)
    if shown == _SERVING and profile.name in unresponsive:
        shown = _UNRESPONSIVE
    status = _status(profile.name, shown, state)
    entry: dict[str, object] = {
        "id": name,
        "object": "model",
        "created": card.created_unix_s,
        "owned_by": "appliance",
        "parent": profile.adapters.get(name),
        "name": name,
        "type": "model",
        "display_name": name,
        "created_at": _rfc3339(card.created_unix_s),
        "status": {"value": status, "failed": True} if status == _FAILED else {"value": status},
        "capabilities": card.capabilities,
        "profile": profile.name,
        "served": list(profile.served),
        "state": shown,
        "on_request": profile.on_request,
    }
    if card.context_tokens is not None:
        entry |= {
            "context_length": card.context_tokens,
            "max_model_len": card.context_tokens,
            "meta": {"n_ctx": card.context_tokens},
        }
    return entry


def _state(profile: str, state: State) -> str:
    if profile in state.held:
        return _HELD
    standing = state.standing(profile)
    return _FAILED if standing is Standing.DOWN and profile in state.failed else standing.value


def _status(profile: str, shown: str, state: State) -> str:
    """Return llama-server's word for a state: a held profile is loaded soon, or has been."""
    if shown == _HELD:
        return "loading" if profile in state.target else "unloaded"
    words = {
        _SERVING: "loaded",
        Standing.STARTING.value: "loading",
        _FAILED: _FAILED,
        _UNRESPONSIVE: _FAILED,
    }
    return words.get(shown, "unloaded")


def _rfc3339(unix_s: int) -> str:
    moment = datetime.fromtimestamp(min(max(unix_s, 0), _LATEST_UNIX_S), UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
