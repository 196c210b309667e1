"""Scanners of a JSON object, which find its members and where each lies: of a short body, and of a long one.

A short body is scanned in one pass of the standard library's C scanner. No values are kept: numbers
and objects become booleans as they are met. The text is scanned as Latin-1, one character a byte, so
that positions in it are positions in the body; the tokens of JSON's grammar are ASCII in both.

For a long body that pass would be too long, since it makes an object of every value: a body of 63 MB
that is nothing but numbers held up all clients for 2.5 s and took 500 MB. `LongJsonScanner` works in
short steps and builds no values. The top level is read as strictly as in a short body. Inside of its
values only the structure is read: strings with their escapes, and brackets that match. Between them
only characters are let through that JSON has there, so that no parser finds a comment or another kind
of quote. Whether ``[1 2,,]`` is a list, the engine decides; where it ends, all parsers agree.

A step takes 1 to 3 ms (the first one 10, for 64 MiB); 64 MiB of numbers take 0.1 s in all, of
escapes or two-byte strings 1.6 s.
"""

import codecs
import json
import re
from collections.abc import Callable, Generator
from json import JSONDecodeError, decoder
from json.scanner import make_scanner
from typing import Any, Final, Never, NoReturn, TypeVar, cast

import msgspec

from appliance.model.errors import ApplianceError

MOST_MEMBERS: Final = 1000
"""Most members of one object. No API has a tenth of that; each costs half a microsecond."""


class BodyError(ApplianceError):
    """Body that cannot be routed; the message is for the client."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param: Final = param
        """Request parameter that is to blame; None: the body as such."""


def _no_constant(word: str) -> NoReturn:
    raise BodyError(f"the body is not JSON: {word} is no JSON value")


_whitespace: Final = re.compile(r"[ \t\n\r]*").match
_scan_once: Final = make_scanner(
    # The stubs want a context object; the scanner reads the attributes of a decoder.
    cast(
        "Any",
        json.JSONDecoder(
            object_hook=bool, parse_float=bool, parse_int=bool, parse_constant=_no_constant
        ),
    )
)

# The C function, which the type stubs leave out.
_scan_string: Final[Callable[[str, int], tuple[str, int]]] = vars(decoder)["scanstring"]

_SHORT_BYTES: Final = 4096
"""Longest body for `scan_plain_object`: a body of this length cannot hold too many members."""


class _Routed(msgspec.Struct):
    """Values by which a body is routed, as their JSON text; empty: absent. Others are checked and skipped."""

    model: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()


_read_routed: Final = msgspec.json.Decoder(_Routed).decode
_read_text: Final = msgspec.json.Decoder(str).decode
_MODEL: Final = b'"model"'
_MODEL_MEMBER: Final = re.compile(rb'"model"[ \t\n\r]*:[ \t\n\r]*("[^"\\]*")')

Member = tuple[str, int, int, int]
"""Member of an object: key, position of its quote, begin and end of its value."""


def scan_object(body: bytes) -> tuple[int, list[Member]]:
    """Return the position of the brace of a body's object, and the object's members.

    Raises:
        BodyError: The body is no JSON object in UTF-8, or is nested too deeply.
    """
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BodyError("the body is not UTF-8") from error
    text = body.decode("latin-1")
    at = _whitespace(text).end()  # type: ignore[union-attr]  # it matches everywhere
    if text[at : at + 1] != "{":
        raise BodyError("the body is not a JSON object")
    found, end = _members(text, at)
    if _whitespace(text, end).end() != len(text):  # type: ignore[union-attr]
        raise BodyError(f"the body is not JSON: something follows the object at byte {end}")
    return at, found


def scan_plain_object(body: bytes) -> tuple[str | None, bool] | None:
    """Return the model, and whether a stream is wanted, of a plain body.

    Most bodies have each key once and without escapes. msgspec checks such a body in one go and keeps
    no value, in a fifth of the time that `scan_object` takes: on the path of every request.

    Returns:
        None: the body is not plain; `scan_object` finds what is wrong with it, if anything.
    """
    if len(body) > _SHORT_BYTES:
        return None
    try:
        # msgspec does not check the encoding of the values that it skips. Searched in the text,
        # because `in` takes four times as long for bytes.
        if "\\u" in body.decode():
            return None
        found = _read_routed(body)
        model = _read_text(found.model) if (named := bytes(found.model)) else None
    except (ValueError, RecursionError):
        return None
    # A key that occurs once in the text, and is a member, occurs nowhere else. Of two members with
    # one key msgspec takes the last, and an engine may take the first.
    if named and body.count(_MODEL) != 1:
        return None
    stream = bytes(found.stream)
    if stream and body.count(b'"stream"') != 1:
        return None
    return model, stream == b"true"


def find_plain_model(body: bytes) -> tuple[int, int] | None:
    """Return the position of the model in a plain body; None: the model is written with escapes."""
    written = _MODEL_MEMBER.match(body, body.find(_MODEL))
    return None if written is None else written.span(1)


def scan_member_object(body: bytes, start: int, end: int) -> list[Member]:
    """Return the members of an object inside of a body that was scanned already.

    Raises:
        BodyError: The object has too many members.
    """
    found, _ = _members(body[start:end].decode("latin-1"), 0)
    return [(key, at + start, first + start, last + start) for key, at, first, last in found]


def decode_string(raw: bytes) -> str:
    """Return the value of a JSON string that was scanned already."""
    return _scan_string(raw.decode(), 1)[0]


def _members(text: str, at: int) -> tuple[list[Member], int]:
    """Return the members of the object at a brace, and the position of its end."""
    try:
        return _scan_members(text, at)
    except JSONDecodeError as error:
        # Some of the library's messages end with the word.
        why = error.msg.removesuffix(" at")
        raise BodyError(f"the body is not JSON: {why} at byte {error.pos}") from error
    except StopIteration as error:
        raise BodyError(f"the body is not JSON: no value at byte {error.value}") from error
    except IndexError as error:
        raise BodyError("the body is not JSON: it ends too soon") from error
    except RecursionError as error:
        raise BodyError("the body is nested too deeply") from error


def _scan_members(text: str, at: int) -> tuple[list[Member], int]:
    members: list[Member] = []
    foreign = not text.isascii()
    at = _past(text, at + 1)
    if text[at] == "}":
        return members, at + 1
    for _ in range(MOST_MEMBERS):
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
    raise BodyError(f"an object of the body has more than {MOST_MEMBERS} members")


def _value_at(text: str, at: int) -> int:
    """Return the position of a value after its name, without a regex for usual spacing."""
    if text[at] != ":":
        at = _past(text, at)
        if text[at] != ":":
            raise JSONDecodeError("no colon", text, at)
    at += 1
    if text[at] == " ":
        at += 1
    return at if text[at] > " " else _past(text, at)


def _name_at(text: str, at: int) -> int:
    """Return the position of the next name after a value."""
    if text[at] != ",":
        raise JSONDecodeError("no comma", text, at)
    at += 1
    if text[at] == " ":
        at += 1
    return at if text[at] > " " else _past(text, at)


def _past(text: str, at: int) -> int:
    """Return the position after whitespace; raise IndexError at the end of the text."""
    end = _whitespace(text, at).end()  # type: ignore[union-attr]
    text[end]
    return end


def _reread(quoted: str) -> str:
    """Return a string that is not ASCII, decoded as UTF-8."""
    return decode_string(quoted.encode("latin-1"))


Steps = Generator[None]
"""Steps up to the next pause."""

_Found = TypeVar("_Found")

_DEEPEST: Final = 900
"""Deepest nesting of brackets; Python's own parser gives up a little later."""
_MOST_MARKS: Final = 1_000_000
"""Most brackets and long strings: half a second of CPU. A million tokens of a conversation have a
hundredth of that."""
_LONGEST_NAME: Final = 8 << 10
"""Longest name at the top level, in bytes of JSON text."""
_A_STEP: Final = 2048
"""Cost of a step, in units of half a microsecond."""
_A_PASS: Final = 8
"""Cost of a match of a regular expression, in those units; every 256 bytes cost one more."""
_DECODED_BYTES: Final = 256 << 10

_between: Final = re.compile(
    rb'(?:[-+.0-9eEtrufalsn,: \t\r\n]{1,512}|"[^"\\\x00-\x1f]{0,128}"){0,256}'
).match
"""Matcher of numbers, words, commas, colons, blanks and short strings: at most 128 KiB."""
_text: Final = re.compile(
    rb'(?:[^"\\\x00-\x1f]{1,1024}|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})){0,256}'
).match
"""Matcher of the inside of a string: at most 256 KiB."""
_blanks: Final = re.compile(rb"[ \t\r\n]{0,65536}").match
_scalar: Final = re.compile(
    rb"-?(?:0|[1-9][0-9]{0,999})(?:\.[0-9]{1,1000})?(?:[eE][+-]?[0-9]{1,10})?|true|false|null"
).match
_OPENING: Final = b"[{"
_PAIRS: Final = {b"]": ord("["), b"}": ord("{")}


def run_steps(steps: Generator[None, None, _Found]) -> _Found:
    """Run steps to their end; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _Found = end.value
            return found


class LongJsonScanner:
    """Scanner of one body; `members` is complete when `steps` has run to its end.

    Args:
        body: Whole body.
        most_marks: Most brackets and long strings.
    """

    def __init__(self, body: bytes, *, most_marks: int = _MOST_MARKS) -> None:
        self._body = body
        self._most_marks = most_marks
        self._at = 0
        self._marks = 0
        self._spent = 0
        self.opening = 0
        """Position of the object's brace."""
        self.members: list[Member] = []

    def steps(self) -> Steps:
        """Scan the body, pausing after each step.

        Raises:
            BodyError: The body is no JSON object in UTF-8, is nested too deeply, or has too many values.
        """
        yield from self._check_encoding()
        yield from self._skip_blanks()
        self.opening = self._at
        if self._here() != b"{":
            raise BodyError("the body is not a JSON object")
        self._at += 1
        yield from self._skip_blanks()
        if self._here() == b"}":
            self._at += 1
        else:
            yield from self._members()
        end = self._at
        yield from self._skip_blanks()
        if self._at != len(self._body):
            raise BodyError(f"the body is not JSON: something follows the object at byte {end}")

    def _members(self) -> Steps:
        for _ in range(MOST_MEMBERS):
            yield from self._member()
            mark = self._here()
            self._at += 1
            if mark == b"}":
                return
            if mark != b",":
                self._fail("no comma", self._at - 1)
            yield from self._skip_blanks()
        raise BodyError(f"an object of the body has more than {MOST_MEMBERS} members")

    def _member(self) -> Steps:
        """Scan one name with its value, and the blanks after them."""
        name_at = self._at
        if self._here() != b'"':
            self._fail("no name", name_at)
        yield from self._string()
        if self._at - name_at > _LONGEST_NAME:
            raise BodyError("a name in the body is too long")
        name = decode_string(self._body[name_at : self._at])
        yield from self._skip_blanks()
        if self._here() != b":":
            self._fail("no colon", self._at)
        self._at += 1
        yield from self._skip_blanks()
        start = self._at
        yield from self._value()
        self.members.append((name, name_at, start, self._at))
        yield from self._skip_blanks()

    def _value(self) -> Steps:
        mark = self._here()
        if mark == b'"':
            yield from self._string()
        elif mark in _OPENING:
            yield from self._container()
        elif found := _scalar(self._body, self._at):
            self._at = found.end()
        else:
            self._fail("no value", self._at)

    def _container(self) -> Steps:
        """Scan a list or an object up to its closing bracket; its inside for structure only."""
        body = self._body
        stack = bytearray()
        while True:
            before = self._at
            self._pass_to(_between(body, before).end())  # type: ignore[union-attr]  # always matches
            mark = self._here()
            if mark == b'"':
                yield from self._string()
                self._count_mark()
            elif mark in _OPENING:
                if len(stack) >= _DEEPEST:
                    raise BodyError("the body is nested too deeply")
                stack += mark
                self._at += 1
                self._count_mark()
            elif mark in _PAIRS:
                if stack.pop() != _PAIRS[mark]:
                    self._fail("another bracket is open", self._at)
                self._at += 1
                if not stack:
                    return
            elif self._at == before:
                self._fail("no value", before)
            if self._spent > _A_STEP:
                self._spent = 0
                yield

    def _string(self) -> Steps:
        """Scan a string, from its first quote to after its last."""
        body = self._body
        start = self._at
        self._at += 1
        while True:
            before = self._at
            self._pass_to(_text(body, before).end())  # type: ignore[union-attr]  # always matches
            mark = self._here()
            if mark == b'"':
                self._at += 1
                return
            if self._at == before:
                why = "an invalid escape" if mark == b"\\" else "a control character"
                self._fail(f"{why} in the string that begins at byte {start}", before)
            if self._spent > _A_STEP:
                self._spent = 0
                yield

    def _skip_blanks(self) -> Steps:
        while self._at < len(self._body):
            before = self._at
            self._pass_to(_blanks(self._body, before).end())  # type: ignore[union-attr]  # always
            if self._at - before < 1 << 16:
                return
            yield

    def _pass_to(self, at: int) -> None:
        self._spent += _A_PASS + ((at - self._at) >> 8)
        self._at = at

    def _count_mark(self) -> None:
        self._marks += 1
        if self._marks > self._most_marks:
            raise BodyError("the body holds too many values: send less at once")

    def _here(self) -> bytes:
        """Return the character at the position reached; raise `BodyError` at the end."""
        mark = self._body[self._at : self._at + 1]
        if not mark:
            raise BodyError("the body is not JSON: it ends too soon")
        return mark

    def _fail(self, why: str, at: int) -> Never:
        raise BodyError(f"the body is not JSON: {why} at byte {at}")

    def _check_encoding(self) -> Steps:
        body = self._body
        if body.isascii():
            return
        pieces = codecs.getincrementaldecoder("utf-8")()
        try:
            for at in range(0, len(body), _DECODED_BYTES):
                pieces.decode(body[at : at + _DECODED_BYTES])
                yield
            pieces.decode(b"", final=True)
        except UnicodeDecodeError as error:
            raise BodyError("the body is not UTF-8") from error
