"""Classification of paths: the API that a request speaks, and admin paths of engines.

A path goes to the engine as the client wrote it. It is classified by the plainest form that any
engine, or anything in front of one, could make of it: unescaped until nothing is left to
unescape, dots and doubled slashes resolved, in lower case.

The admin paths are those of all engines (`Engine.admin_paths`): the program of a ``command``
may be any of them. Engines add and rename paths, so words that only such paths contain count as
well.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from appliance.model.errors import ApplianceError
from appliance.model.gateway import Api
from appliance.routing.admin_paths import ADMIN_PATHS, ADMIN_WRITES

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_ADMIN_PARTS: Final = frozenset(
    {*("debug", "dev", "admin", "internal"), *(path for path in ADMIN_PATHS if "/" not in path)}
)
"""Admin paths by their first part, after a version."""
_ADMIN_LONGER: Final = tuple(path.split("/") for path in ADMIN_PATHS if "/" in path)
_ADMIN_WORDS: Final = re.compile(
    r"weight|lora|profil|sleep|wake_?up|memory_occupation|hicache|expert_distribution"
    r"|kv_cache|kv_event|kv_transfer|transfer_engine"
)
"""Words of admin paths in a first part; no path for generation contains them."""

_APIS: Final = {
    ("chat", "completions"): Api.CHAT,
    ("invocations",): Api.CHAT,  # vLLM and SGLang take chats at this path, vLLM all else too
    ("completions",): Api.COMPLETIONS,
    ("completion",): Api.COMPLETIONS,
    ("infill",): Api.COMPLETIONS,
    ("responses",): Api.RESPONSES,
    ("messages",): Api.ANTHROPIC,
}
"""APIs by the first parts of a path, after a version."""

_OLLAMA: Final = frozenset(
    {
        *("blobs", "chat", "copy", "create", "delete", "embed", "embeddings", "generate", "me"),
        *("ps", "pull", "push", "show", "signout", "tags", "version"),
    }
)
"""Second parts of the paths of Ollama's API, whose first is ``api`` (its docs/api.md, November 2026).
Engines that imitate a few of them answer for one model, whatever is asked for."""

_VERSION: Final = re.compile(r"v\d+\Z")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f#?]")
_MOST_UNESCAPED: Final = 4
"""Most rounds of unescaping; honest clients escape once, and an escaped name twice."""


class PathError(ApplianceError):
    """Error for a path that no honest client sends; the message is for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathClass:
    """Class of a path."""

    api: Api = Api.OTHER
    is_admin: bool = False
    """Whether the path changes the engine or shows other clients' requests; the path is then
    exposed only if allowed."""
    is_model_list: bool = False
    """Whether the path asks for the list of models or one of its entries, which the gateway answers
    itself."""
    model: str | None = None
    """Name of the entry of the list of models; None: all entries."""


def classify_path(method: str, path: str) -> PathClass:
    """Classify a path.

    Args:
        method: In capitals.
        path: As the client wrote it, without the query.

    Raises:
        PathError: Engines could disagree about what the path means.
    """
    known = _COMMON_PATHS.get(path)
    if known is not None and (known is not _MODEL_LIST or method in _READS):
        return known
    return _classify(method, _parts(path))


def _classify(method: str, parts: list[str]) -> PathClass:
    lower = [part.lower() for part in parts]
    first = 1 if lower and _VERSION.match(lower[0]) else 0
    if lower[first : first + 1] == ["models"]:
        if method not in _READS or lower[first + 1 :] in (["load"], ["unload"], ["sse"]):
            return PathClass(is_admin=True)
        return PathClass(is_model_list=True, model="/".join(parts[first + 1 :]) or None)
    if lower[:1] == ["api"] and lower[1:2] and lower[1] in _OLLAMA:
        return PathClass(api=Api.OLLAMA)
    if _is_admin(method, lower[first:]):
        return PathClass(is_admin=True)
    for start, api in _APIS.items():
        if tuple(lower[first : first + len(start)]) == start:
            return PathClass(api=api)
    return PathClass()


def _is_admin(method: str, parts: list[str]) -> bool:
    if not parts:
        return False
    name = parts[0]
    if name in ADMIN_WRITES:
        return method not in _READS
    if any(parts[: len(longer)] == longer for longer in _ADMIN_LONGER):
        return True
    return name in _ADMIN_PARTS or _ADMIN_WORDS.search(name) is not None


def _parts(path: str) -> list[str]:
    """Return the parts of a path in its plainest form."""
    if not path.startswith("/") or _BROKEN_ESCAPE.search(path):
        raise PathError("the path is malformed")
    plain = _unescaped(path)
    if _CONTROL.search(plain):
        raise PathError("the path has a control character, a space, a # or a ? in it")
    parts: list[str] = []
    for part in plain.replace("\\", "/").split("/"):
        bare = part.partition(";")[0]
        if bare == "..":
            del parts[-1:]
        elif bare not in {"", "."}:
            parts.append(bare)
    return parts


def _unescaped(path: str) -> str:
    for _ in range(_MOST_UNESCAPED):
        plain = unquote(path)
        if plain == path:
            return plain
        path = plain
    raise PathError("the path is percent-encoded too many times")


_MODEL_LIST: Final = PathClass(is_model_list=True)
_COMMON_PATHS: Final = {
    "/v1/chat/completions": PathClass(api=Api.CHAT),
    "/v1/completions": PathClass(api=Api.COMPLETIONS),
    "/v1/responses": PathClass(api=Api.RESPONSES),
    "/v1/messages": PathClass(api=Api.ANTHROPIC),
    "/v1/embeddings": PathClass(),
    "/v1/models": _MODEL_LIST,
}
"""Paths of nearly all requests, whose class costs one look-up."""
