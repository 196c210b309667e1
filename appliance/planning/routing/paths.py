"""What a request's path is about: which API it speaks, and whether it governs the engine.

A path goes to the engine as the client wrote it. It is judged by the plainest form that any
engine, or anything in front of one, could make of it: unescaped until nothing is left to
unescape, dots and doubled slashes resolved, in small letters.

The governing paths are those of all engines (`Engine.admin_paths`): the program of a ``command``
may be any of them. Engines add and rename paths, so words that only such paths contain count as
well.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from appliance.domain.errors import ApplianceError
from appliance.domain.gateway import Api, Refusal
from appliance.engines import ENGINES

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_ADMIN_PATHS: Final = tuple(path for engine in ENGINES.values() for path in engine.admin_paths)
_GOVERNING: Final = frozenset(
    {*("debug", "dev", "admin", "internal"), *(path for path in _ADMIN_PATHS if "/" not in path)}
)
"""First parts of paths, after a version."""
_GOVERNING_LONGER: Final = tuple(path.split("/") for path in _ADMIN_PATHS if "/" in path)
_GOVERNING_WRITES: Final = frozenset(
    path for engine in ENGINES.values() for path in engine.admin_writes
)
"""First parts of paths that only reading is open for."""

_GOVERNING_WORDS: Final = re.compile(
    r"weight|lora|profil|sleep|wake_?up|memory_occupation|hicache|expert_distribution"
    r"|kv_cache|kv_event|kv_transfer|transfer_engine"
)
"""In a first part; nothing that generates is called so."""

_APIS: Final = {
    ("chat", "completions"): Api.CHAT,
    ("api", "chat"): Api.CHAT,  # llama-server takes the same there
    ("invocations",): Api.CHAT,  # vLLM and SGLang take chats there, and vLLM everything else too
    ("completions",): Api.COMPLETIONS,
    ("completion",): Api.COMPLETIONS,
    ("infill",): Api.COMPLETIONS,
    ("responses",): Api.RESPONSES,
    ("messages",): Api.ANTHROPIC,
}
"""By the first parts of a path, after a version."""

_VERSION: Final = re.compile(r"v\d+\Z")
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL: Final = re.compile(r"[\x00-\x20\x7f#?]")
_MOST_UNESCAPED: Final = 4
"""How often; honest clients escape once, and a name that is itself escaped, twice."""


class PathError(ApplianceError):
    """A path that no honest client sends; the message is for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a path is about."""

    api: Api = Api.OTHER
    governs: bool = False
    """It changes the engine, or tells what other clients do; not exposed unless allowed."""
    listing: bool = False
    """It asks for the list of models, or for one entry of it: the gateway answers itself."""
    entry: str | None = None
    """Which entry; None: all of them."""


def place(method: str, path: str) -> Place:
    """What a request is about.

    Args:
        method: In capitals.
        path: As the client wrote it, without the query.

    Raises:
        PathError: It cannot be told what an engine would make of it.
    """
    known = _KNOWN.get(path)
    if known is not None and (known is not _LISTING or method in _READS):
        return known
    return _judged(method, _parts(path))


def not_exposed(path: str) -> Refusal:
    """The refusal of a path that governs the engine."""
    return Refusal(
        status=403,
        code="path_not_exposed",
        message=f"{path[:200]} governs the engine or tells of other clients, and is not exposed",
    )


def _judged(method: str, parts: list[str]) -> Place:
    lower = [part.lower() for part in parts]
    first = 1 if lower and _VERSION.match(lower[0]) else 0
    if lower[first : first + 1] == ["models"]:
        if method not in _READS or lower[first + 1 :] in (["load"], ["unload"], ["sse"]):
            return Place(governs=True)
        return Place(listing=True, entry="/".join(parts[first + 1 :]) or None)
    if _governs(method, lower[first:]):
        return Place(governs=True)
    for start, api in _APIS.items():
        if tuple(lower[first : first + len(start)]) == start:
            return Place(api=api)
    return Place()


def _governs(method: str, parts: list[str]) -> bool:
    if not parts:
        return False
    name = parts[0]
    if name in _GOVERNING_WRITES:
        return method not in _READS
    if any(parts[: len(longer)] == longer for longer in _GOVERNING_LONGER):
        return True
    return name in _GOVERNING or _GOVERNING_WORDS.search(name) is not None


def _parts(path: str) -> list[str]:
    """The parts of a path in its plainest form."""
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
    raise PathError("the path is escaped over and over")


_LISTING: Final = Place(listing=True)
_KNOWN: Final = {
    "/v1/chat/completions": Place(api=Api.CHAT),
    "/v1/completions": Place(api=Api.COMPLETIONS),
    "/v1/responses": Place(api=Api.RESPONSES),
    "/v1/messages": Place(api=Api.ANTHROPIC),
    "/v1/embeddings": Place(),
    "/v1/models": _LISTING,
}
"""What nearly all requests are for, so that they cost one look-up."""
