"""Multipart form, as used for uploads of audio: its model, and changes of its fields.

Parsed more strictly than most engines do (RFC 2046 and RFC 7578, without what two implementations
could take differently), because the engine has to see the same fields.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.routing.json_body import BodyChanges, Cut, Pieces, splice
from appliance.routing.json_scanner import BodyError, run_steps

_MOST_PARTS: Final = 1000
_LONGEST_HEAD: Final = 8 << 10
"""Longest head of one part, in bytes."""
_LONGEST_VALUE: Final = 4 << 10
"""Longest value of a field that the form is routed by, in bytes."""
_A_STEP: Final = 512 << 10
"""Bytes that are searched in one step: at worst 2 ms, where 64 MiB take 250 ms."""
_HEAD_WEIGHT: Final = 16
"""Cost of a byte of a head, in bytes of content: a thousand heads of 7 KB take 400 ms."""

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(
    rf'[ \t]*;[ \t]*({_WORD})=(?:"((?:[^"\\\r\n]|\\[^\r\n])*)"|({_WORD}))'
)
_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]\Z")
_FIELD_LINE: Final = re.compile(rf"({_WORD}):([^\r\n\x00]*)\Z")
"""Header of a part; `str.strip` takes off the blanks around its value, in linear time."""
_LONG_FILE_NAME: Final = "filename*"
"""Parameter for a file name that is not ASCII (RFC 5987)."""
_CHARSET_FIELD: Final = "_charset_"
"""Field that names the encoding of the others (RFC 7578, 4.6)."""
_UTF8: Final = frozenset({"utf-8", "utf8", "us-ascii"})
_PLAIN_ENCODINGS: Final = frozenset({"7bit", "8bit", "binary"})
_YES: Final = frozenset({b"true", b"1", b"on", b"yes", b"t", b"y"})
"""Values that engines take for true in a form."""


@dataclass(frozen=True, slots=True)
class _Part:
    name: str
    is_file: bool
    begin: int
    """Position of the delimiter."""
    start: int
    """Position where the content begins."""
    end: int
    """Position where the content ends."""


class FormBody:
    """Fields of a form, found in one pass."""

    __slots__ = ("_body", "_close", "_delimiter", "_parts", "model", "streams")

    def __init__(self, body: bytes, delimiter: bytes, parts: Sequence[_Part], close: int) -> None:
        self._body = body
        self._delimiter = delimiter
        self._parts = parts
        self._close = close
        model = self._only("model")
        self.model: str | None = None if model is None else _text(model)
        """Model that the client asks for; None: none."""
        stream = self._only("stream")
        self.streams: bool = stream is not None and stream.lower() in _YES
        """Whether the client asks for a stream of events."""

    def apply(self, changes: BodyChanges) -> bytes | Pieces:
        """Return the form with changes; the very same object when there is nothing to change.

        A form is flat: changes inside of objects do not apply to it.

        Raises:
            BodyError: A field that would be changed is there twice.
        """
        return splice(self._body, list(self._cuts(changes.fields)))

    def _cuts(self, fields: Mapping[str, str | None]) -> Iterator[Cut]:
        for name, value in fields.items():
            at = self._index(name)
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
        at = self._index(name)
        if at is None:
            return None
        part = self._parts[at]
        if part.end - part.start > _LONGEST_VALUE:
            raise BodyError(f"{name} is too long", name)
        return self._body[part.start : part.end]

    def _index(self, name: str) -> int | None:
        """Return the index of a field's part; None: absent."""
        found = [at for at, part in enumerate(self._parts) if part.name == name]
        if len(found) > 1:
            raise BodyError(f"{name} is there twice", name)
        if found and self._parts[found[0]].is_file:
            raise BodyError(f"{name} must be a field, not a file", name)
        return found[0] if found else None


def parse_form(content_type: str, body: bytes) -> FormBody:
    """Parse a form.

    Args:
        content_type: Value of the header.
        body: Whole body.

    Raises:
        BodyError: The body is no form, or one that could be read in two ways.
    """
    return run_steps(parse_form_in_steps(content_type, body))


def parse_form_in_steps(content_type: str, body: bytes) -> Generator[None, None, FormBody]:
    """Parse a form in steps of a few milliseconds, each up to a ``yield``.

    Raises:
        BodyError: See `parse_form`.
    """
    delimiter = b"--" + _boundary(content_type).encode()
    parts, close = yield from _parts(body, delimiter)
    return FormBody(body, delimiter, parts, close)


def _boundary(content_type: str) -> str:
    kind, parameters = _parameters(content_type)
    boundary = parameters.get("boundary", "")
    # RFC 2231 lets "boundary*0" stand for the boundary; some parsers know that.
    extended = any("*" in name for name in parameters)
    if kind != "multipart/form-data" or extended or not _BOUNDARY.match(boundary):
        raise BodyError("the body is no form with a proper boundary")
    return boundary


def _parts(body: bytes, delimiter: bytes) -> Generator[None, None, tuple[list[_Part], int]]:
    """Return the parts, and the position of the closing delimiter."""
    parts: list[_Part] = []
    at = spent = 0
    if not body.startswith(delimiter):
        raise BodyError("the form does not begin with its boundary")
    while len(parts) <= _MOST_PARTS:
        after = at + len(delimiter)
        mark = body[after : after + 2]
        if mark == b"--":
            # Copy one byte more than the limit, not all: the text can be as long as the form.
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
    """Return the position of a mark; -1: not found."""
    for at in range(start, len(body), _A_STEP):
        found = body.find(mark, at, at + _A_STEP + len(mark) - 1)
        if found >= 0:
            return found
        yield
    return -1


def _part(body: bytes, begin: int, start: int, end: int) -> _Part:
    """Return one part, whose head begins at `start`."""
    close = body.find(b"\r\n\r\n", start, min(end, start + _LONGEST_HEAD))
    if close < 0:
        raise BodyError("a field of the form has no proper head")
    headers = _headers(body[start:close].decode("latin-1"))
    kind, parameters = _parameters(headers.get("content-disposition", ""))
    name = parameters.get("name", "\\")
    # Browsers and libraries disagree about a backslash in a name, and about the names that RFC 2231
    # puts together, such as "name*0".
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
    """Tell whether a field names the charset UTF-8, or none."""
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
    """Return the text before the parameters, in lower case, and the parameters."""
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
