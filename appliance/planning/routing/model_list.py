"""List of models, in OpenAI's form and Anthropic's at once.

Their fields do not contradict each other, and clients of either skip fields they do not know.
"""

import json
from collections.abc import Mapping
from typing import Final

from appliance.domain.gateway import Key, Refusal, Routed, State
from appliance.planning.routing.model_names import ModelDirectory, may_use

_LONG_AGO: Final = "1970-01-01T00:00:00Z"
"""Time of a model's creation, which both APIs require and which is not known."""

Entry = Mapping[str, object]


def encode_model_list(directory: ModelDirectory, state: State, key: Key | None = None) -> bytes:
    """Return the body of ``GET /v1/models``: models that serve first, then by name.

    Args:
        directory: Applied profiles.
        state: What serves now.
        key: Key of the request; None: none, and every profile may be used.
    """
    data = _entries(directory, state, key)
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
    name: str, directory: ModelDirectory, state: State, key: Key | None = None
) -> bytes | Refusal:
    """Return the body of ``GET /v1/models/NAME``.

    Args:
        name: Name of a profile, or one that a profile serves; patterns count.
        directory: Applied profiles.
        state: What serves now.
        key: As for `encode_model_list`.
    """
    found = directory.resolve(name, state, key)
    return found if isinstance(found, Refusal) else _encode(_entry(name, found, state))


def _entries(directory: ModelDirectory, state: State, key: Key | None) -> list[Entry]:
    found: list[tuple[bool, str, Entry]] = []
    for name, profiles in directory.names.items():
        if any(may_use(key, profile) for profile in profiles):
            routed = directory.resolve(name, state, key)
            # The name resolves, because one of its profiles may be used.
            assert isinstance(routed, Routed)  # noqa: S101
            shown = _entry(name, routed, state)
            found.append((shown["state"] != "serving", name, shown))
    return [shown for _, _, shown in sorted(found, key=lambda item: item[:2])]


def _entry(name: str, profile: Routed, state: State) -> Entry:
    held = profile.name in state.held
    return {
        "id": name,
        "object": "model",
        "created": 0,
        "owned_by": "appliance",
        "type": "model",
        "display_name": name,
        "created_at": _LONG_AGO,
        "profile": profile.name,
        "served": list(profile.served),
        "state": "held" if held else state.standing(profile.name).value,
        "on_request": profile.on_request,
    }


def _encode(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
