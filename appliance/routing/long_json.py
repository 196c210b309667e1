"""Scanner of a long JSON object: its members, in short steps and without building values.

The C scanner of the standard library reads a body in one go and makes an object of every value: a
body of 63 MB that is nothing but numbers held up all clients for 2.5 s and took 500 MB. Here the
top level is read as strictly as there. Inside of its values only the structure is read: strings
with their escapes, and brackets that match. Between them only characters are let through that JSON
has there, so that no parser finds a comment or another kind of quote. Whether ``[1 2,,]`` is a
list, the engine decides; where it ends, all parsers agree.

A step takes 1 to 3 ms (the first one 10, for 64 MiB); 64 MiB of numbers take 0.1 s in all, of
escapes or two-byte strings 1.6 s.
"""

import codecs
import re
from collections.abc import Generator
from typing import Final, Never, TypeVar

from appliance.routing.json_scanner import (
    MOST_MEMBERS,
    BodyError,
    Member,
    decode_string,
)

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
