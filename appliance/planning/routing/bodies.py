"""A JSON request body: what it asks for, and changes that leave every other byte as it was.

One pass of the standard library's C scanner finds the members of the top level. It keeps no
values: numbers and objects become booleans as they are met, so a body costs little more than its
own size. The text is scanned as Latin-1, one character a byte, so that positions in it are
positions in the body; what JSON's grammar is made of is ASCII in both.
"""

import codecs
import json
import re
from collections.abc import Callable, Mapping, Sequence
from json import JSONDecodeError, decoder
from json.scanner import make_scanner
from typing import Any, Final, NoReturn, cast

from appliance.domain.errors import ApplianceError
from appliance.planning.routing.changes import Changes, Edit, Edits, change
from appliance.planning.routing.splicing import Cut, spliced

_MOST_MEMBERS: Final = 1000
"""Of one object. No API has a tenth of it; each one costs half a microsecond."""
_LARGE_BYTES: Final = 1 << 20
"""Bodies up to here are parsed whatever they hold: that takes milliseconds and megabytes."""
_HEAVIEST: Final = 128 << 20
"""What a larger body may need while it is parsed, in bytes. Ordinary ones, also with images as
base64 in them, need a few hundred thousand."""
_BRACKET_WEIGHT: Final = 64
"""Bytes that CPython takes for an empty list or object."""
_QUOTE_WEIGHT: Final = 28
"""Half of what it takes for a short string."""
_DECODED_BYTES: Final = 1 << 20
_COUNTED_BYTES: Final = 1 << 14


class BodyError(ApplianceError):
    """A body cannot be routed; the message is for the client."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param: Final = param
        """Which request parameter is to blame; None: the body as such."""


def _no_constant(word: str) -> NoReturn:
    raise BodyError(f"the body is not JSON: {word} is no JSON value")


_whitespace: Final = re.compile(r"[ \t\n\r]*").match
_scan_once: Final = make_scanner(
    # Typed as the scanner itself; what it reads are the attributes of a decoder.
    cast(
        "Any",
        json.JSONDecoder(
            object_hook=bool, parse_float=bool, parse_int=bool, parse_constant=_no_constant
        ),
    )
)

# The C function; the type stubs leave it out.
_scan_string: Final[Callable[[str, int], tuple[str, int]]] = vars(decoder)["scanstring"]

_Member = tuple[str, int, int, int]
"""Key; where its quote is; where the value begins; where it ends."""


class Document:
    """The top level of a JSON body, found in one pass; see `opened`."""

    __slots__ = ("_at", "_body", "_members", "_span", "model", "streams")

    def __init__(self, body: bytes, at: int, members: list[_Member]) -> None:
        self._body = body
        self._at = at
        self._members = members
        self._span: tuple[int, int] | None = None
        self.model: str | None = None
        """What the client asks for; None: it does not say, or says null."""
        self.streams: bool = False
        """Whether it asks for a stream of events."""
        seen_stream = False
        for key, _, start, end in members:
            if key == "model":
                if self._span is not None:
                    raise _twice("model")
                self._span = start, end
                self.model = _string(body, start, end)
            elif key == "stream":
                if seen_stream:
                    raise _twice("stream")
                seen_stream = True
                self.streams = body[start:end] == b"true"

    def rewritten(self, changes: Changes) -> bytes:
        """The body with its changes; the very same object when there is nothing to do.

        Raises:
            BodyError: Something that would be changed is there twice.
        """
        body = self._body
        if changes.model is not None and not changes.others and self._span is not None:
            start, end = self._span
            if body[start:end] == changes.model:
                return body
            return b"".join((body[:start], changes.model, body[end:]))
        return spliced(body, _cuts(body, self._at, self._members, changes.edits, ""))


def opened(body: bytes) -> Document:
    """What a body says at its top level.

    Raises:
        BodyError: It is no JSON object in UTF-8, says something twice that it is routed by, is
            nested too deeply, or would take more memory than its size explains.
    """
    if not body.isascii():
        _check_encoding(body)
    if len(body) > _LARGE_BYTES:
        _check_weight(body)
    text = body.decode("latin-1")
    at = _whitespace(text).end()  # type: ignore[union-attr]  # it matches everywhere
    if text[at : at + 1] != "{":
        raise BodyError("the body is not a JSON object")
    members, end = _members(text, at)
    if _whitespace(text, end).end() != len(text):  # type: ignore[union-attr]
        raise BodyError(f"the body is not JSON: something follows the object at byte {end}")
    return Document(body, at, members)


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
    return opened(body).rewritten(change(model=model, set_=set_, strip=strip))


def _check_encoding(body: bytes) -> None:
    """In pieces: a decoded body can take four times its size."""
    pieces = codecs.getincrementaldecoder("utf-8")()
    try:
        for at in range(0, len(body), _DECODED_BYTES):
            pieces.decode(body[at : at + _DECODED_BYTES])
        pieces.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise BodyError("the body is not UTF-8") from error


def _check_weight(body: bytes) -> None:
    brackets = _count(body, b"[") + _count(body, b"{")
    if brackets * _BRACKET_WEIGHT + _count(body, b'"') * _QUOTE_WEIGHT > _HEAVIEST:
        raise BodyError("the body holds too many values: send less at once")


def _count(body: bytes, mark: bytes) -> int:
    """In pieces: counting is slow, and finding out that there is nothing to count is not."""
    pieces = range(0, len(body), _COUNTED_BYTES)
    return sum(
        body.count(mark, at, at + _COUNTED_BYTES)
        for at in pieces
        if body.find(mark, at, at + _COUNTED_BYTES) >= 0
    )


def _members(text: str, at: int) -> tuple[list[_Member], int]:
    """The members of the object at a brace, and where it ends."""
    try:
        return _scanned(text, at)
    except JSONDecodeError as error:
        raise BodyError(f"the body is not JSON: {error.msg} at byte {error.pos}") from error
    except StopIteration as error:
        raise BodyError(f"the body is not JSON: no value at byte {error.value}") from error
    except IndexError as error:
        raise BodyError("the body is not JSON: it ends too soon") from error
    except RecursionError as error:
        raise BodyError("the body is nested too deeply") from error


def _scanned(text: str, at: int) -> tuple[list[_Member], int]:
    members: list[_Member] = []
    foreign = not text.isascii()
    at = _past(text, at + 1)
    if text[at] == "}":
        return members, at + 1
    for _ in range(_MOST_MEMBERS):
        if text[at] != '"':
            raise JSONDecodeError("no name", text, at)
        key, colon = _scan_string(text, at + 1)
        if foreign and not key.isascii():
            key = _reread(text[at:colon])
        start = _value_at(text, colon)
        _, end = _scan_once(text, start)
        members.append((key, at, start, end))
        if text[end] != ",":
            end = _past(text, end)
            if text[end] == "}":
                return members, end + 1
        at = _name_at(text, end)
    raise BodyError(f"an object of the body has more than {_MOST_MEMBERS} members")


def _value_at(text: str, at: int) -> int:
    """Where the value begins whose name ended here. What programs write costs no regex."""
    if text[at] != ":":
        at = _past(text, at)
        if text[at] != ":":
            raise JSONDecodeError("no colon", text, at)
    at += 1
    if text[at] == " ":
        at += 1
    return at if text[at] > " " else _past(text, at)


def _name_at(text: str, at: int) -> int:
    """Where the next name begins after the value that ended here."""
    if text[at] != ",":
        raise JSONDecodeError("no comma", text, at)
    at += 1
    if text[at] == " ":
        at += 1
    return at if text[at] > " " else _past(text, at)


def _past(text: str, at: int) -> int:
    """Where the whitespace at a place ends; raises IndexError at the text's end."""
    end = _whitespace(text, at).end()  # type: ignore[union-attr]
    text[end]
    return end


def _reread(quoted: str) -> str:
    """A string of which Latin-1 made something else."""
    text = quoted.encode("latin-1").decode()
    return _scan_string(text, 1)[0]


def _string(body: bytes, start: int, end: int) -> str | None:
    raw = body[start:end]
    if raw == b"null":
        return None
    if raw[:1] != b'"':
        raise BodyError("model must be a string", "model")
    return _scan_string(raw.decode(), 1)[0]


def _twice(name: str) -> BodyError:
    return BodyError(f"{name} is there twice", name)


def _cuts(body: bytes, opening: int, members: list[_Member], edits: Edits, above: str) -> list[Cut]:
    """What changes of the object at a brace.

    Args:
        body: All of it.
        opening: Where the object's brace is.
        members: Of that object.
        edits: By key.
        above: The keys that lead to it, each with a dot behind it.
    """
    cuts: list[Cut] = []
    seen: set[str] = set()
    gone: list[bool] = []
    for key, _, start, end in members:
        edit = edits.get(key)
        gone.append(edit is not None and not edit.value and edit.inside is None)
        if edit is None:
            continue
        if key in seen:
            raise _twice(above + key)
        seen.add(key)
        if not gone[-1]:
            cuts += _changed(body, start, end, edit, f"{above}{key}.")
    cuts += _removals(members, gone)
    if new := b",".join([e.member for k, e in edits.items() if e.member and k not in seen]):
        cuts.append((opening + 1, opening + 1, new if all(gone) else new + b","))
    return cuts


def _changed(body: bytes, start: int, end: int, edit: Edit, above: str) -> list[Cut]:
    """What changes of one value that stays."""
    if edit.inside is not None and body[start : start + 1] == b"{":
        members, _ = _members(body[start:end].decode("latin-1"), 0)
        moved = [(key, at + start, first + start, last + start) for key, at, first, last in members]
        return _cuts(body, start, moved, edit.inside, above)
    # A client that sends no object where one belongs is corrected as far as we set it.
    if not edit.value or body[start:end] == edit.value:
        return []
    return [(start, end, edit.value)]


def _removals(members: list[_Member], gone: list[bool]) -> list[Cut]:
    """Takes members out, each with one comma."""
    if True not in gone:
        return []
    kept = [at for at, out in enumerate(gone) if not out]
    if not kept:
        return [(members[0][1], members[-1][3], b"")]
    last = kept[-1]
    cuts = [(members[at][1], members[at + 1][1], b"") for at in range(last) if gone[at]]
    if last + 1 < len(members):
        cuts.append((members[last][3], members[-1][3], b""))
    return cuts
