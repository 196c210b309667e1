"""Bounded reading of a TOML file: size, encoding, depth, and the lines of its keys."""

import errno
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from appliance.model.plain_text import abridged
from appliance.model.spec import Where
from appliance.system.files.regular import OddFileError, read_small_file

_TOKEN: Final = re.compile(
    r'(?P<string>"""(?:[^\\]|\\.)*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\[^\n])*"?'
    r"|'[^'\n]*'?)"
    r"|(?P<comment>\#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<mark>[=\[\]{},.])"
    r"|(?P<space>[ \t\r]+)"
    r"|(?P<bare>[^\s=\[\]{},.\"'\#]+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_SILENT: Final = frozenset({"comment", "space"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Token of a TOML document: a word, a mark or the end of a line."""

    kind: str
    """Kind of the token: ``string``, ``bare``, ``mark``, ``newline`` or ``other``."""
    text: str
    line: int
    """Line where the token begins, from 1."""


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of `text`, without comments and spaces."""
    line = 1
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        if kind not in _SILENT:
            yield Token(kind=kind, text=match[0], line=line)
        line += match[0].count("\n")


def too_deep(found: Iterable[Token], limit: int) -> Token | None:
    """Return the first token more than `limit` levels down, in brackets or in a dotted key; None: none.

    `tomllib` needs time that grows with the square of a dotted key's length, and a stack that
    grows with the brackets: both are bounded before it parses the text.
    """
    brackets = dots = 0
    for token in found:
        if token.text in {"[", "{"}:
            brackets += 1
        elif token.text in {"]", "}"}:
            brackets -= 1
        if token.text == ".":
            dots += 1
        elif token.kind in {"mark", "newline"}:
            dots = 0
        if max(brackets, dots) > limit:
            return token
    return None


def key_lines(text: str) -> Mapping[Where, int]:
    """Return the line of every key and array element of a valid document; the first line counts."""
    reader = _TokenReader(rest=list(reversed(list(tokens(text)))))
    try:
        reader.document()
    except IndexError:
        return reader.lines  # Not valid TOML: return the lines found so far.
    return reader.lines


@dataclass(slots=True)
class _TokenReader:
    rest: list[Token]
    """Tokens still to be read, the next one last."""
    lines: dict[Where, int] = field(default_factory=dict)
    _tables: dict[Where, int] = field(default_factory=dict)
    """Number of the last table of each array of tables."""

    def document(self) -> None:
        header: Where = ()
        while self.rest:
            token = self.rest[-1]
            if token.text == "[":
                header = self._header()
            elif token.kind in {"bare", "string"}:
                self._pair(header)
            else:
                self.rest.pop()

    def _header(self) -> Where:
        """Read ``[a.b]``, or ``[[a.b]]``, whose tables are numbered from 0."""
        brackets, line = 0, self.rest[-1].line
        while self.rest[-1].text == "[":
            self.rest.pop()
            brackets += 1
        where = self._key(())
        if brackets == len("[["):
            number = self._tables[where] = self._tables.get(where, -1) + 1
            where = (*where, number)
            self.lines.setdefault(where, line)
        return where

    def _pair(self, parent: Where) -> None:
        where = self._key(parent)
        while self.rest[-1].text == "=":
            self.rest.pop()
        self._value(where)

    def _key(self, parent: Where) -> Where:
        """Read ``a."b".c``; every prefix of the key is a table that begins here."""
        where = parent
        while self.rest[-1].kind in {"bare", "string"} or self.rest[-1].text == ".":
            token = self.rest.pop()
            if token.text != ".":
                where = (*where, _name(token))
                self.lines.setdefault(where, token.line)
        return where

    def _value(self, where: Where) -> None:
        match self.rest[-1].text:
            case "[":
                self._array(where)
            case "{":
                self._inline_table(where)
            case _:
                self._scalar()

    def _array(self, where: Where) -> None:
        self.rest.pop()
        place = 0
        for token in self._until("]"):
            if token.text == ",":
                self.rest.pop()
                place += 1
                continue
            self.lines.setdefault((*where, place), token.line)
            self._value((*where, place))

    def _inline_table(self, where: Where) -> None:
        self.rest.pop()
        for token in self._until("}"):
            if token.kind in {"bare", "string"}:
                self._pair(where)
            else:
                self.rest.pop()

    def _until(self, end: str) -> Iterator[Token]:
        """Yield the next tokens without line ends, up to `end`, which is consumed."""
        while self.rest[-1].text != end:
            if self.rest[-1].kind == "newline":
                self.rest.pop()
            else:
                yield self.rest[-1]
        self.rest.pop()

    def _scalar(self) -> None:
        """Read a string, a number or a date; numbers contain dots."""
        self.rest.pop()
        while self.rest and (self.rest[-1].kind in {"bare", "other"} or self.rest[-1].text == "."):
            self.rest.pop()


def _name(token: Token) -> str:
    if token.kind != "string":
        return token.text
    try:
        return next(iter(tomllib.loads(f"{token.text} = 0")))
    except (tomllib.TOMLDecodeError, StopIteration):
        return token.text


# --- documents -----------------------------------------------------------------------

MAX_BYTES: Final = 256 << 10
_TOO_LARGE: Final = f"larger than {MAX_BYTES >> 10} KiB: this is no file of settings"
_MAX_DEPTH: Final = 8
_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fault of a file: a sentence, and its line."""

    line: int | None
    """Line of the fault, from 1; None: the file as a whole."""
    text: str

    def __post_init__(self) -> None:
        """Cut the sentence: a key, a value or a table's name in it may be as long as the file."""
        object.__setattr__(self, "text", abridged(self.text))


class FaultyFileError(Exception):
    """File that cannot be used; the error carries all its faults."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__("; ".join(f.text for f in self.faults))


def fault_lines(file: str, faults: Iterable[Fault]) -> str:
    """Return ``file:line: text`` for each fault, in the order of the file, without control characters."""
    ordered = sorted(faults, key=lambda f: (f.line is None, f.line or 0, f.text))
    places = (f"{file}:" if f.line is None else f"{file}:{f.line}:" for f in ordered)
    lines = (f"{place} {f.text}" for place, f in zip(places, ordered, strict=True))
    return "\n".join(map(_printable, lines))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


@dataclass(frozen=True, kw_only=True)
class Document:
    """Parsed file with the lines of its keys."""

    text: str
    table: Mapping[str, Any]
    sha256: str
    """SHA-256 of the file's bytes, in hexadecimal."""

    @cached_property
    def _lines(self) -> Mapping[Where, int]:
        return key_lines(self.text)

    def line(self, where: Where) -> int:
        """Return the line of the innermost known key on the way to `where`; 1: no known key."""
        for length in range(len(where), 0, -1):
            if (line := self._lines.get(where[:length])) is not None:
                return line
        return 1


def read_document(path: Path) -> Document:
    """Read and parse a file.

    Raises:
        FaultyFileError: it cannot be read, or is not TOML.
    """
    content = read_content(path)
    text = decoded_text(content).replace("\r\n", "\n")
    return Document(text=text, table=_parsed(text), sha256=sha256(content).hexdigest())


def parse_document(content: bytes) -> Document:
    """Parse the content of a file. Raises `FaultyFileError`."""
    if len(content) > MAX_BYTES:
        raise _faulty(_TOO_LARGE)
    text = decoded_text(content).replace("\r\n", "\n")
    return Document(text=text, table=_parsed(text), sha256=sha256(content).hexdigest())


def _faulty(text: str, line: int | None = None) -> FaultyFileError:
    return FaultyFileError([Fault(line=line, text=text)])


def read_content(path: Path) -> bytes:
    """Return the content of a small file that a person has written. Raises `FaultyFileError`."""
    try:
        return read_small_file(path, MAX_BYTES, follow_links=True)
    except OddFileError as error:
        text = _TOO_LARGE if error.errno == errno.EFBIG else str(error.strerror)
        raise _faulty(text) from error
    except OSError as error:
        reason = "a loop of symbolic links" if error.errno == errno.ELOOP else str(error.strerror)
        raise _faulty(f"cannot be read: {reason}") from error
    except ValueError as error:
        raise _faulty("cannot be read: its name is not a file name") from error


def decoded_text(content: bytes) -> str:
    """Return the text of a file. Raises `FaultyFileError` if it is none."""
    if (place := content.find(b"\0")) >= 0:
        raise _faulty("contains a NUL byte: this is not text", _line_at(content, place))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = _line_at(content, error.start)
        raise _faulty("is not UTF-8 text: save it as UTF-8", line) from error


def _line_at(content: bytes, place: int) -> int:
    return content.count(b"\n", 0, place) + 1


def _parsed(text: str) -> Mapping[str, Any]:
    deep = too_deep(tokens(text), _MAX_DEPTH)
    if deep is not None:
        raise _faulty(f"nests deeper than {_MAX_DEPTH} levels", deep.line)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _reworded(str(error), text)
        raise _faulty(message, line) from error
    except (ValueError, OverflowError, RecursionError) as error:
        raise _faulty("contains a number that no program can hold") from error


def _reworded(message: str, text: str) -> tuple[str, int]:
    match = _PLACE.search(message)
    fact = message[: match.start()] if match else message
    line = int(match[1]) if match and match[1] else text.rstrip("\n").count("\n") + 1
    if fact == "Cannot overwrite a value":
        return "a key is given twice: remove one of them", line
    if fact.startswith("Cannot declare "):
        return "a table is given twice: join the two", line
    return f"not TOML: {fact[:1].lower()}{fact[1:]}", line
