r"""Search for a regular expression in a text, in time proportional to the length of the text.

Python's `re` can take exponential time where an expression of an operator meets an unlucky answer.
Here an expression becomes a nondeterministic automaton of at most `_MOST_NODES` nodes, of which all
paths are followed at once (Thompson 1968). The syntax is the common part of `re` and RE2: literals,
``.``, ``[a-z]``, ``[^a-z]``, ``\d \w \s`` and their opposites, ``\n \r \t``, groups ``( )`` and
``(?: )``, ``|``, ``* + ? {m} {m,} {m,n}``, ``^`` and ``$`` for the ends of the whole text, and
``(?i)`` at the beginning. What else `re` knows is refused. ``.`` matches every character but a line
feed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_MOST_NODES: Final = 200
_MOST_CHARACTERS: Final = 500
_MOST_DEPTH: Final = 20
_MOST_STEPS_KEPT: Final = 4096
"""Limit of remembered steps; then all are forgotten."""
_IGNORE_CASE: Final = "(?i)"
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}
_Test = Callable[[str], bool]


class PatternError(ValueError):
    """Error for an expression that is malformed, too long, or beyond the syntax; a phrase."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Node that takes one character."""

    takes: _Test
    then: int


@dataclass(frozen=True, slots=True)
class _Fork:
    """Node that takes nothing and leads to others; none: the expression has matched."""

    then: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Edge:
    """Node that is passed at one end of the text only."""

    at_begin: bool
    then: int


_Node = _Step | _Fork | _Edge
_MATCHED: Final = 0
"""Index of the node that ends the expression."""


class TextPattern:
    """Compiled expression."""

    def __init__(self, nodes: Sequence[_Node], first: int, *, ignores_case: bool) -> None:
        self._nodes = nodes
        self._first = first
        self._ignores_case = ignores_case
        self._next: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def is_in(self, text: str) -> bool:
        """Tell whether any part of the text matches."""
        if self._ignores_case:
            text = text.lower()
        begin = self._reached([self._first], at_begin=True, at_end=not text)
        fresh = self._reached([self._first])
        now = begin
        for index, character in enumerate(text):
            if _MATCHED in now:
                return True
            if index == len(text) - 1:
                taken = self._taken(now, character)
                return _MATCHED in self._reached([*taken, self._first], at_end=True)
            key = (now, character)
            if key not in self._next:
                if len(self._next) >= _MOST_STEPS_KEPT:
                    self._next.clear()
                self._next[key] = self._reached(self._taken(now, character)) | fresh
            now = self._next[key]
        return _MATCHED in now

    def _taken(self, now: Iterable[int], character: str) -> list[int]:
        nodes = (self._nodes[index] for index in now)
        return [node.then for node in nodes if isinstance(node, _Step) and node.takes(character)]

    def _reached(
        self, indexes: Iterable[int], *, at_begin: bool = False, at_end: bool = False
    ) -> frozenset[int]:
        """Return all nodes that are reached without taking a character."""
        found: set[int] = set()
        left = list(indexes)
        while left:
            index = left.pop()
            if index in found:
                continue
            found.add(index)
            node = self._nodes[index]
            if isinstance(node, _Fork):
                left += node.then
            elif isinstance(node, _Edge) and (at_begin if node.at_begin else at_end):
                left.append(node.then)
        return frozenset(found)


def compile_pattern(text: str) -> TextPattern:
    """Return the compiled expression. Raises `PatternError`."""
    if len(text) > _MOST_CHARACTERS:
        raise PatternError(f"longer than {_MOST_CHARACTERS} characters")
    ignores_case = text.startswith(_IGNORE_CASE)
    source = text.removeprefix(_IGNORE_CASE)
    return _Compiler(source, ignores_case=ignores_case).compiled()


# An expression is parsed to functions that add its nodes before a node that follows; so a
# repetition can add what it repeats as often as it must.
_Build = Callable[[int], int]


class _Compiler:
    """Parser of one expression, which adds its nodes."""

    def __init__(self, text: str, *, ignores_case: bool) -> None:
        self._text = text
        self._ignores_case = ignores_case
        self._at = 0
        self._copies = 0
        self._depth = 0
        self._nodes: list[_Node] = [_Fork(())]

    def compiled(self) -> TextPattern:
        build = self._alternatives()
        if self._at < len(self._text):
            raise PatternError('")" without "("')
        return TextPattern(self._nodes, build(_MATCHED), ignores_case=self._ignores_case)

    def _add(self, node: _Node) -> int:
        if len(self._nodes) >= _MOST_NODES:
            raise PatternError(f"more than {_MOST_NODES} steps: repeat less")
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1 : self._at]

    def _take_literal(self) -> str:
        """Take a character as it is compared with the text."""
        return self._take().lower() if self._ignores_case else self._take()

    def _takes(self, text: str) -> bool:
        """Take a text if it comes next."""
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _alternatives(self) -> _Build:
        branches = [self._sequence()]
        while self._takes("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return lambda then: self._add(_Fork(tuple(branch(then) for branch in branches)))

    def _sequence(self) -> _Build:
        parts: list[_Build] = []
        while self._peek() not in {"", "|", ")"}:
            parts.append(self._repeated(self._atom()))

        def build(then: int) -> int:
            for part in reversed(parts):
                then = part(then)
            return then

        return build

    def _atom(self) -> _Build:
        character = self._take()
        if character == "(":
            return self._group()
        if character in {"^", "$"}:
            return lambda then: self._add(_Edge(character == "^", then))
        if character in {"*", "+", "?", "{"}:
            raise PatternError(f'nothing to repeat before "{character}"')
        takes = self._test(character)
        return lambda then: self._add(_Step(takes, then))

    def _group(self) -> _Build:
        if self._peek() == "?" and not self._takes("?:"):
            raise PatternError('of groups with "?" only (?: ) is known, and (?i) at the beginning')
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise PatternError(f"nested more than {_MOST_DEPTH} deep")
        inner = self._alternatives()
        if not self._takes(")"):
            raise PatternError('"(" without ")"')
        self._depth -= 1
        return inner

    def _test(self, character: str) -> _Test:
        if character == ".":
            return lambda found: found != "\n"
        if character == "[":
            return self._set()
        if character == "\\":
            return self._escape()
        literal = character.lower() if self._ignores_case else character
        return lambda found: found == literal

    def _escape(self) -> _Test:
        letter = self._take()
        if letter in _CLASSES:
            return _CLASSES[letter]
        if letter in _ESCAPES or (letter and not letter.isalnum()):
            literal = _ESCAPES.get(letter, letter)
            return lambda found: found == literal
        raise PatternError(f'"\\{letter}" is not known here')

    def _set(self) -> _Test:
        negated = self._takes("^")
        tests = [self._member()]  # "]" is a literal there.
        while not self._takes("]"):
            tests.append(self._member())
        return lambda found: any(test(found) for test in tests) != negated

    def _member(self) -> _Test:
        """Parse a character, a class or a range of a set."""
        first = self._take_literal()
        if first == "":
            raise PatternError('"[" without "]"')
        if first == "\\":
            return self._escape()
        if self._peek() != "-" or self._text[self._at + 1 : self._at + 2] in {"", "]"}:
            return lambda found: found == first
        self._take()
        last = self._take_literal()
        if last == "\\" or last < first:
            raise PatternError(f'"{first}-{last}" is no range')
        return lambda found: first <= found <= last

    def _repeated(self, atom: _Build) -> _Build:
        least, most = self._counts()
        if (least, most) == (1, 1):
            return atom
        self._takes("?")  # How much a repetition takes first does not matter to a search.
        if self._peek() in {"*", "+", "?", "{"}:
            raise PatternError(f'nothing to repeat before "{self._peek()}"')

        def build(then: int) -> int:
            if most is None:
                loop = self._add(_Fork(()))
                self._nodes[loop] = _Fork((atom(loop), then))
                then = loop
            else:
                end = then
                for _ in range(most - least):
                    self._count_copy()
                    then = self._add(_Fork((atom(then), end)))
            for _ in range(least):
                self._count_copy()
                then = atom(then)
            return then

        return build

    def _count_copy(self) -> None:
        """Bound the copies of repeated parts, which may be empty and add no node."""
        self._copies += 1
        if self._copies > _MOST_NODES:
            raise PatternError(f"more than {_MOST_NODES} steps: repeat less")

    def _counts(self) -> tuple[int, int | None]:
        """Parse how often the part before is repeated; None: without limit."""
        if self._takes("*"):
            return 0, None
        if self._takes("+"):
            return 1, None
        if self._takes("?"):
            return 0, 1
        if not self._takes("{"):
            return 1, 1
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at : max(end, 0)].partition(",")
        if end < 0 or not _is_count(low) or not (_is_count(high) or high == ""):
            raise PatternError('"{" begins {m}, {m,} or {m,n}')
        self._at = end + 1
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if most is not None and most < least:
            raise PatternError(f"{{{low},{high}}} is no range")
        return least, most


def _is_count(text: str) -> bool:
    return 0 < len(text) <= len(str(_MOST_NODES)) and text.isascii() and text.isdigit()


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _not(test: _Test) -> _Test:
    return lambda character: not test(character)


_CLASSES: Final[dict[str, _Test]] = {
    "d": str.isdecimal,
    "D": _not(str.isdecimal),
    "w": _is_word,
    "W": _not(_is_word),
    "s": str.isspace,
    "S": _not(str.isspace),
}
