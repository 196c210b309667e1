"""A JSON request body: what it asks for, and changes that leave every other byte as it was."""

from collections.abc import Generator, Mapping, Sequence
from typing import Final

from appliance.planning.routing.changes import Changes, Edit, Edits, change
from appliance.planning.routing.long_bodies import TopLevel, read_at_once
from appliance.planning.routing.scanning import (
    BodyError,
    Member,
    glance,
    members,
    string,
    top_level,
)
from appliance.planning.routing.splicing import LONG_BYTES, Cut, Pieces, spliced

__all__ = [
    "BodyError",
    "Document",
    "opened",
    "opened_in_steps",
    "read_model",
    "rewritten",
    "streams",
]

_LONGEST_MODEL: Final = 4 << 10
"""In bytes as it is written: it is looked up, and part of the error that no such model is there."""
_LARGEST_INSIDE: Final = 32 << 10
"""Of an object in which something changes, in bytes: it is read at once."""


class Document:
    """The top level of a JSON body, found in one pass; see `opened`.

    Args:
        body: The whole body.
        top: Where its brace is, and its members; None: nobody has looked.
    """

    __slots__ = ("_body", "_span", "_top", "model", "streams")

    def __init__(self, body: bytes, top: tuple[int, list[Member]] | None = None) -> None:
        self._body = body
        self._top = top
        self._span: tuple[int, int] | None = None
        self.model: str | None = None
        """What the client asks for; None: it does not say, or says null."""
        self.streams: bool = False
        """Whether it asks for a stream of events."""
        glanced = None if top is not None else glance(body)
        if glanced is not None:
            self.model, self._span, self.streams = glanced
        else:
            self._look()

    def _look(self) -> None:
        """Look at every member."""
        body = self._body
        self._top = self._top or top_level(body)
        _, found = self._top
        seen_stream = False
        for key, _, start, end in found:
            if key == "model":
                if self._span is not None:
                    raise _twice("model")
                self._span = start, end
                self.model = _model(body[start:end])
            elif key == "stream":
                if seen_stream:
                    raise _twice("stream")
                seen_stream = True
                self.streams = body[start:end] == b"true"

    def rewritten(self, changes: Changes) -> bytes | Pieces:
        """The body with its changes; the very same object when there is nothing to do.

        Raises:
            BodyError: Something that would be changed is there twice.
        """
        body = self._body
        if changes.model is not None and not changes.others and self._span is not None:
            start, end = self._span
            if body[start:end] == changes.model:
                return body
            if len(body) > LONG_BYTES:
                return spliced(body, [(start, end, changes.model)])
            return b"".join((body[:start], changes.model, body[end:]))
        at, found = self._top or top_level(body)
        return spliced(body, _cuts(body, at, found, changes.edits, ""))


def opened(body: bytes) -> Document:
    """What a body says at its top level.

    Raises:
        BodyError: It is no JSON object in UTF-8, says something twice that it is routed by, is
            nested too deeply, or has too many values.
    """
    if len(body) <= LONG_BYTES:
        return Document(body)
    return read_at_once(opened_in_steps(body))


def opened_in_steps(body: bytes) -> Generator[None, None, Document]:
    """The same in steps of a few milliseconds, each up to a ``yield``; short bodies need none.

    Raises:
        BodyError: See `opened`.
    """
    if len(body) <= LONG_BYTES:
        return Document(body)
    top = TopLevel(body)
    yield from top.steps()
    return Document(body, (top.opening, top.members))


def read_model(body: bytes) -> str | None:
    """The model that a body asks for; None: it does not say.

    Raises:
        BodyError: See `opened`.
    """
    return opened(body).model


def streams(body: bytes) -> bool:
    """Whether a body asks for a stream of events.

    Raises:
        BodyError: See `opened`.
    """
    return opened(body).streams


def rewritten(
    body: bytes, *, model: str | None, set_: Mapping[str, object], strip: Sequence[str]
) -> bytes:
    """A body with its changes, in one call; see `opened`, `Changes` and `Document.rewritten`.

    Raises:
        BodyError: See `opened`.
    """
    return bytes(opened(body).rewritten(change(model=model, set_=set_, strip=strip)))


def _model(raw: bytes) -> str | None:
    if raw == b"null":
        return None
    if raw[:1] != b'"':
        raise BodyError("model must be a string", "model")
    if len(raw) > _LONGEST_MODEL:
        raise BodyError("model is too long", "model")
    return string(raw)


def _twice(name: str) -> BodyError:
    return BodyError(f"{name} is there twice", name)


def _cuts(body: bytes, opening: int, found: list[Member], edits: Edits, above: str) -> list[Cut]:
    """What changes of the object at a brace.

    Args:
        body: All of it.
        opening: Where the object's brace is.
        found: Its members.
        edits: By key.
        above: The keys that lead to it, each with a dot behind it.
    """
    cuts: list[Cut] = []
    seen: set[str] = set()
    gone: list[bool] = []
    for key, _, start, end in found:
        edit = edits.get(key)
        gone.append(edit is not None and not edit.value and edit.inside is None)
        if edit is None:
            continue
        if key in seen:
            raise _twice(above + key)
        seen.add(key)
        if not gone[-1]:
            cuts += _changed(body, start, end, edit, f"{above}{key}.")
    cuts += _removals(found, gone)
    if new := b",".join([e.member for k, e in edits.items() if e.member and k not in seen]):
        cuts.append((opening + 1, opening + 1, new if all(gone) else new + b","))
    return cuts


def _changed(body: bytes, start: int, end: int, edit: Edit, above: str) -> list[Cut]:
    """What changes of one value that stays."""
    if edit.inside is not None and body[start : start + 1] == b"{":
        if end - start > _LARGEST_INSIDE:
            raise BodyError(f"{above[:-1]} is too large to be changed", above[:-1])
        return _cuts(body, start, members(body, start, end), edit.inside, above)
    # A client that sends no object where one belongs is corrected as far as we set it.
    if not edit.value or body[start:end] == edit.value:
        return []
    return [(start, end, edit.value)]


def _removals(found: list[Member], gone: list[bool]) -> list[Cut]:
    """Takes members out, each with one comma."""
    if True not in gone:
        return []
    kept = [at for at, out in enumerate(gone) if not out]
    if not kept:
        return [(found[0][1], found[-1][3], b"")]
    last = kept[-1]
    cuts = [(found[at][1], found[at + 1][1], b"") for at in range(last) if gone[at]]
    if last + 1 < len(found):
        cuts.append((found[last][3], found[-1][3], b""))
    return cuts
