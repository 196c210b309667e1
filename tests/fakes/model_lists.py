"""Lists of models as servers of local models give them, and a reader after the rules of Open WebUI.

The lists have the shapes that the servers document: llama-server's router in its README ("GET /models", November 2026),
llama-swap in its sources and in lists that its users have published (2026). Both have one model that is loaded, one that
is not, and the router one that has failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

LLAMA_ROUTER: Final[Mapping[str, Any]] = {
    "object": "list",
    "data": [
        {
            "id": "genesis",
            "aliases": [],
            "tags": [],
            "object": "model",
            "owned_by": "llamacpp",
            "created": 1776984352,
            "status": {"value": "loaded", "args": ["llama-server", "--ctx-size", "16384"]},
            "architecture": {"input_modalities": ["text", "image"], "output_modalities": ["text"]},
            "meta": {"vocab_type": 2, "n_vocab": 151936, "n_ctx": 16384, "n_ctx_train": 32768},
        },
        {
            "id": "aeon",
            "object": "model",
            "owned_by": "llamacpp",
            "created": 1776984352,
            "status": {"value": "unloaded"},
        },
        {
            "id": "broken",
            "object": "model",
            "owned_by": "llamacpp",
            "created": 1776984352,
            "status": {
                "value": "unloaded",
                "args": ["llama-server"],
                "failed": True,
                "exit_code": 1,
            },
        },
    ],
}
LLAMA_SWAP: Final[Mapping[str, Any]] = {
    "object": "list",
    "data": [
        {
            "id": "genesis",
            "object": "model",
            "created": 1775097337,
            "owned_by": "llama-swap",
            "name": "Genesis",
            "description": "A model for code",
            "meta": {"llamaswap": {"type": "model", "context": 16384}},
            "status": {"value": "loaded"},
        },
        {
            "id": "aeon",
            "object": "model",
            "created": 1775097337,
            "owned_by": "llama-swap",
            "name": None,
            "meta": {"llamaswap": {"type": "model"}},
            "status": {"value": "unloaded"},
        },
    ],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownModel:
    """Model as a menu shows it."""

    id: str
    name: str
    loaded: bool
    """Whether it is marked as loaded: by its status, and where there is none always."""


def read_like_open_webui(answer: Mapping[str, Any] | list[Any]) -> dict[str, ShownModel]:
    """Return the models of an answer, by id.

    Open WebUI takes an object with ``data`` or a bare list, the id or else the name of an entry, the id where a name is
    missing or null, and for the provider llama.cpp the entry's ``status.value`` (its routers/openai.py, 2026).
    """
    entries = answer if isinstance(answer, list) else answer.get("data", [])
    found: dict[str, ShownModel] = {}
    for entry in entries:
        name = entry.get("name")
        key = entry.get("id") or name
        if not key:
            continue
        status = entry.get("status")
        found[key] = ShownModel(
            id=key, name=name or key, loaded=status is None or status.get("value") == "loaded"
        )
    return found
