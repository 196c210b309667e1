"""The list of models that clients are shown.

It has OpenAI's form and Anthropic's at once: their fields do not contradict each other, and
clients of either skip what they do not know.
"""

import json
from collections.abc import Mapping
from typing import Final

from appliance.domain.gateway import Key, Refusal, Routed, State
from appliance.planning.routing.model_names import Directory, may_use

_LONG_AGO: Final = "1970-01-01T00:00:00Z"
"""Nobody knows when a model was made; both APIs want a time."""

Entry = Mapping[str, object]


def listing(directory: Directory, state: State, key: Key | None = None) -> bytes:
    """The body of ``GET /v1/models``: what serves first, then by name.

    Args:
        directory: Every applied profile.
        state: What serves now.
        key: Whose request it is; None: nobody's, who may use everything.
    """
    data = _entries(directory, state, key)
    ids = [entry["id"] for entry in data]
    return _text(
        {
            "object": "list",
            "data": data,
            "has_more": False,
            "first_id": ids[0] if ids else None,
            "last_id": ids[-1] if ids else None,
        }
    )


def entry(name: str, directory: Directory, state: State, key: Key | None = None) -> bytes | Refusal:
    """The body of ``GET /v1/models/NAME``.

    Args:
        name: A profile's, or one that a profile serves; patterns count.
        directory: Every applied profile.
        state: What serves now.
        key: As for `listing`.
    """
    found = directory.resolve(name, state, key)
    return found if isinstance(found, Refusal) else _text(_entry(name, found, state))


def _entries(directory: Directory, state: State, key: Key | None) -> list[Entry]:
    found: list[tuple[bool, str, Entry]] = []
    for name, profiles in directory.names.items():
        if any(may_use(key, profile) for profile in profiles):
            routed = directory.resolve(name, state, key)
            # It resolves: somebody behind that name may be used.
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


def _text(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
