"""A form as audio is uploaded with: which model it asks for, and changes to its fields.

Read more strictly than most engines do (RFC 2046 and RFC 7578, and nothing that two readers of
them could take differently), because what counts is that the engine sees the same fields.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.planning.routing.changes import Changes, change
from appliance.planning.routing.long_bodies import read_at_once
from appliance.planning.routing.scanning import BodyError
from appliance.planning.routing.splicing import Cut, Pieces, spliced

_MOST_PARTS: Final = 1000
_LONGEST_HEAD: Final = 8 << 10
"""Of one part."""
_LONGEST_VALUE: Final = 4 << 10
"""Of a field that a form is routed by."""
_A_STEP: Final = 512 << 10
"""Bytes that are searched at once: at worst 2 ms, where 64 MiB take 250 ms."""
_HEAD_WEIGHT: Final = 16
"""How much dearer a byte of a head is: a thousand heads of 7 KB take 400 ms."""

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(
    rf'[ \t]*;[ \t]*({_WORD})=(?:"((?:[^"\\\r\n]|\\[^\r\n])*)"|({_WORD}))'
)
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]\Z")
_FIELD_LINE: Final = re.compile(rf"({_WORD}):([^\r\n\x00]*)\Z")
"""A header; the blanks around its value are taken off by `str.strip`, which takes linear time."""
_LONG_FILE_NAME: Final = "filename*"
"""Of a file whose name is not ASCII (RFC 5987)."""
_CHARSET_FIELD: Final = "_charset_"
"""A field that tells the encoding of the others (RFC 7578, 4.6)."""
_UTF8: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_PLAIN_ENCODINGS: Final = frozenset({"7bit", "8bit", "binary"})
_YES: Final = frozenset({b"true", b"1", b"on", b"yes", b"t", b"y"})
"""What engines take for true in a form."""


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    is_file: bool
    begin: int
    """Where its delimiter is."""
    start: int
    """Where its content begins."""
    end: int
    """Where its content ends."""


class Form:
    """The fields of a form, found in one pass."""

    __slots__ = ("_body", "_close", "_delimiter", "_parts", "model", "streams")

    def __init__(self, body: bytes, delimiter: bytes, parts: Sequence[_Part], close: int) -> None:
        self._body = body
        self._delimiter = delimiter
        self._parts = parts
        self._close = close
        model = self._only("model")
        self.model: str | None = None if model is None else _text(model)
        """What the client asks for; None: it does not say."""
        stream = self._only("stream")
        self.streams: bool = stream is not None and stream.lower() in _YES
        """Whether it asks for a stream of events."""

    def rewritten(self, changes: Changes) -> bytes | Pieces:
        """The form with its changes; the very same object when there is nothing to do.

        A form is flat: changes inside of objects do not apply to it.

        Raises:
            BodyError: Something that would be changed is there twice.
        """
        return spliced(self._body, list(self._cuts(changes.fields)))

    def _cuts(self, fields: Mapping[str, str | None]) -> Iterator[Cut]:
        for name, value in fields.items():
            at = self._place(name)
            if value is None:
                if at is not None:
                    following = self._parts[at + 1].begin if at + 1 < len(self._parts) else None
                    yield self._parts[at].begin, following or self._close, b""
                continue
            content = value.encode()
            if self._delimiter in b"\r\n" + content:
                raise BodyError("the form's boundary is part of what is put into it")
            if at is None:
                yield self._close, self._close, self._field(name, content)
            elif not self._holds(self._parts[at], content):
                yield self._parts[at].start, self._parts[at].end, content

    def _field(self, name: str, content: bytes) -> bytes:
        # Escaped as HTML's form submission does it.
        quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A").encode()
        head = b'Content-Disposition: form-data; name="%b"' % quoted
        return b"%b\r\n%b\r\n\r\n%b\r\n" % (self._delimiter, head, content)

    def _holds(self, part: _Part, content: bytes) -> bool:
        same_size = part.end - part.start == len(content)
        return same_size and self._body.startswith(content, part.start)

    def _only(self, name: str) -> bytes | None:
        at = self._place(name)
        if at is None:
            return None
        part = self._parts[at]
        if part.end - part.start > _LONGEST_VALUE:
            raise BodyError(f"{name} is too long", name)
        return self._body[part.start : part.end]

    def _place(self, name: str) -> int | None:
        places = [at for at, part in enumerate(self._parts) if part.name == name]
        if len(places) > 1:
            raise BodyError(f"{name} is there twice", name)
        if places and self._parts[places[0]].is_file:
            raise BodyError(f"{name} must be a field, not a file", name)
        return places[0] if places else None


def opened(content_type: str, body: bytes) -> Form:
    """The fields of a form.

    Args:
        content_type: The header's value.
        body: All of it.

    Raises:
        BodyError: It is no form, or one that could be read in two ways.
    """
    return read_at_once(opened_in_steps(content_type, body))


def opened_in_steps(content_type: str, body: bytes) -> Generator[None, None, Form]:
    """The same in steps of a few milliseconds, each up to a ``yield``.

    Raises:
        BodyError: See `opened`.
    """
    delimiter = b"--" + _boundary(content_type).encode()
    parts, close = yield from _parts(body, delimiter)
    return Form(body, delimiter, parts, close)


def read_model_part(content_type: str, body: bytes) -> str | None:
    """The model that a form asks for; None: it does not say.

    Raises:
        BodyError: See `opened`.
    """
    return opened(content_type, body).model


def rewritten_part(
    content_type: str,
    body: bytes,
    *,
    model: str | None,
    set_: Mapping[str, object],
    strip: Sequence[str],
) -> bytes:
    """A form with its changes, in one call; see `opened` and `Form.rewritten`.

    Raises:
        BodyError: See `opened`.
    """
    form = opened(content_type, body)
    return bytes(form.rewritten(change(model=model, set_=set_, strip=strip)))


def _boundary(content_type: str) -> str:
    kind, parameters = _parameters(content_type)
    boundary = parameters.get("boundary", "")
    # RFC 2231 lets "boundary*0" stand for the boundary; some readers know that.
    extended = any("*" in name for name in parameters)
    if kind != "multipart/form-data" or extended or not _BOUNDARY.match(boundary):
        raise BodyError("the body is no form with a proper boundary")
    return boundary


def _parts(body: bytes, delimiter: bytes) -> Generator[None, None, tuple[list[_Part], int]]:
    """The parts, and where the closing delimiter is."""
    parts: list[_Part] = []
    at = spent = 0
    if not body.startswith(delimiter):
        raise BodyError("the form does not begin with its boundary")
    while len(parts) <= _MOST_PARTS:
        after = at + len(delimiter)
        mark = body[after : after + 2]
        if mark == b"--":
            # One byte more than may follow: what does can be as long as the form.
            if body[after + 2 : after + 5] not in {b"", b"\r\n"}:
                raise BodyError("something follows the form")
            return parts, at
        if mark != b"\r\n":
            raise BodyError("the form's boundary is part of its content")
        end = yield from _find(body, b"\r\n" + delimiter, after)
        if end < 0:
            raise BodyError("the form ends too soon")
        part = _part(body, at, after + 2, end)
        parts.append(part)
        spent += end - at + _HEAD_WEIGHT * (part.start - at)
        if spent > _A_STEP:
            spent = 0
            yield
        at = end + 2
    raise BodyError(f"the form has more than {_MOST_PARTS} fields")


def _find(body: bytes, mark: bytes, start: int) -> Generator[None, None, int]:
    """Where a mark is; -1: nowhere."""
    for at in range(start, len(body), _A_STEP):
        found = body.find(mark, at, at + _A_STEP + len(mark) - 1)
        if found >= 0:
            return found
        yield
    return -1


def _part(body: bytes, begin: int, start: int, end: int) -> _Part:
    """One part, of which the head begins at `start`."""
    close = body.find(b"\r\n\r\n", start, min(end, start + _LONGEST_HEAD))
    if close < 0:
        raise BodyError("a field of the form has no proper head")
    headers = _headers(body[start:close].decode("latin-1"))
    kind, parameters = _parameters(headers.get("content-disposition", ""))
    name = parameters.get("name", "\\")
    # What a backslash in a name means, browsers and libraries do not agree on; nor on the names
    # that RFC 2231 puts together, such as "name*0".
    extended = any("*" in word for word in parameters if word != _LONG_FILE_NAME)
    if kind != "form-data" or "\\" in name or extended:
        raise BodyError("a field of the form has no proper name")
    if headers.get("content-transfer-encoding", "binary").lower() not in _PLAIN_ENCODINGS:
        raise BodyError("a field of the form is encoded")
    is_file = "filename" in parameters or _LONG_FILE_NAME in parameters
    if not is_file and (name.lower() == _CHARSET_FIELD or not _is_utf8(headers)):
        raise BodyError("a field of the form is not UTF-8")
    return _Part(
        name=name,
        is_file=is_file,
        begin=begin,
        start=close + 4,
        end=end,
    )


def _is_utf8(headers: Mapping[str, str]) -> bool:
    """Whether a field says that it is UTF-8, or says nothing."""
    media_type = headers.get("content-type", "")
    if "charset" not in media_type.lower():
        return True
    _, parameters = _parameters(media_type)
    return parameters.get("charset", "").lower() in _UTF8


def _headers(head: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in head.split("\r\n"):
        found = _FIELD_LINE.match(line)
        name = found[1].lower() if found else ""
        if found is None or name in headers:
            raise BodyError("a field of the form has a malformed head")
        headers[name] = found[2].strip(" \t")
    return headers


def _parameters(value: str) -> tuple[str, dict[str, str]]:
    """What stands before the parameters, in small letters, and they."""
    kind, _, _ = value.partition(";")
    at = len(kind)
    parameters: dict[str, str] = {}
    while at < len(value):
        found = _PARAMETER.match(value, at)
        name = found[1].lower() if found else ""
        if found is None or name in parameters:
            raise BodyError("the form has malformed parameters")
        quoted, bare = found[2], found[3]
        parameters[name] = bare if quoted is None else quoted
        at = found.end()
    return kind.strip(" \t").lower(), parameters


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BodyError("model is not UTF-8", "model") from error
