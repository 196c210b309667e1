r"""Structure of regular expressions: whether one can take longer than its text explains.

An expression goes back where it can take the same text in two ways and what follows fails. Two
forms give it that choice, and are looked for in the parsed expression:

- one repetition behind another that takes some of the same characters, with nothing between the
  two that neither takes: ``[ \t]*([^\r\n]*?)[ \t]*\Z``
- a repetition of something that ends as it may go on: ``(a*)*``, ``(?:a|ab?)+``

Repetitions that are bounded by a small number, possessive ones and atomic groups are harmless.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from re import _constants as ops  # type: ignore[attr-defined]  # the only way to a parsed expression
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

Item = tuple[Any, Any]
"""Item of a parsed expression: its kind, and its parts."""

_ALPHABET: Final = "".join(map(chr, range(256)))
"""Characters to try a set on; what is above is one character, as far as our expressions go."""
_SMALL: Final = 64
"""Repetitions up to here count as bounded."""
_REPEATS: Final = (ops.MAX_REPEAT, ops.MIN_REPEAT)
_NOTHING: Final[frozenset[str]] = frozenset()
_Open = tuple[frozenset[str], ...]


def faults(pattern: re.Pattern[str] | re.Pattern[bytes]) -> list[str]:
    """Return what makes an expression slow, a phrase each."""
    search = _Search(flags=pattern.flags)
    search.sequence(list(parser.parse(pattern.pattern, pattern.flags)), ())
    return search.found


@dataclass(slots=True, kw_only=True)
class _Search:
    """A walk through an expression in the order in which it takes a text.

    Each step is given the repetitions that are open: that could have taken what comes next, too.
    """

    flags: int
    found: list[str] = field(default_factory=list)

    def sequence(self, items: Iterable[Item], before: _Open) -> _Open:
        """Walk through items one after another; returns what is open behind them."""
        for op, parts in _flat(items):
            before = self._item(op, parts, before)
        return before

    def _item(self, op: Any, parts: Any, before: _Open) -> _Open:
        if op is ops.BRANCH:
            return tuple(chars for one in parts[1] for chars in self.sequence(one, before))
        if op in _REPEATS:
            return self._repetition(parts, before)
        for inner in _inner(op, parts):
            self.sequence(inner, ())
        if _may_be_empty(op, parts):
            return before
        # Whatever stands here has to be met: it ends the repetitions that cannot take it.
        chars = _characters(op, parts, self.flags)
        return tuple(other for other in before if chars & other)

    def _repetition(self, parts: Any, before: _Open) -> _Open:
        least, most, body = parts
        items = list(_flat(body))
        skipped = () if least else before
        if most == 1:
            return *self.sequence(items, before), *skipped
        if not _is_long(parts):
            return *self.sequence(items, self.sequence(items, before)), *skipped
        if len(items) == 1 and items[0][0] is ops.BRANCH:
            self._alternatives(items[0][1][1])
        if len(items) > 1 or items[0][0] in {ops.BRANCH, *_REPEATS}:
            # One turn after another is a sequence, too.
            return *self.sequence(items, self.sequence(items, before)), *skipped
        chars = _characters(*items[0], self.flags)
        if any(chars & other for other in before):
            self.found.append("a repetition continues another")
        return *skipped, chars

    def _alternatives(self, alternatives: Iterable[Iterable[Item]]) -> None:
        firsts = [_first(one, self.flags) for one in alternatives]
        if any(a & b for at, a in enumerate(firsts) for b in firsts[at + 1 :]):
            self.found.append("alternatives that are repeated begin alike")


def _flat(items: Iterable[Item]) -> Iterator[Item]:
    """Items, with those of plain groups in their place."""
    for op, parts in items:
        if op is ops.SUBPATTERN:
            yield from _flat(list(parts[3]))
        else:
            yield op, parts


def _inner(op: Any, parts: Any) -> Iterable[Iterable[Item]]:
    if op is ops.BRANCH:
        return [list(one) for one in parts[1]]
    if op in _REPEATS or op is ops.POSSESSIVE_REPEAT:
        return [list(parts[2])]
    if op in {ops.ASSERT, ops.ASSERT_NOT}:
        return [list(parts[1])]
    return [list(parts)] if op is ops.ATOMIC_GROUP else []


def _is_long(parts: Any) -> bool:
    most = parts[1]
    return most is ops.MAXREPEAT or int(most) > _SMALL


def _may_be_empty(op: Any, parts: Any) -> bool:
    if op in _REPEATS or op is ops.POSSESSIVE_REPEAT:
        return parts[0] == 0 or all(_may_be_empty(*item) for item in parts[2])
    if op is ops.SUBPATTERN:
        return all(_may_be_empty(*item) for item in parts[3])
    if op is ops.BRANCH:
        return any(all(_may_be_empty(*item) for item in one) for one in parts[1])
    if op is ops.ATOMIC_GROUP:
        return all(_may_be_empty(*item) for item in parts)
    return op in {ops.AT, ops.ASSERT, ops.ASSERT_NOT}


def _characters(op: Any, parts: Any, flags: int) -> frozenset[str]:
    """Every character that can be somewhere in what an item takes."""
    if op in {ops.LITERAL, ops.NOT_LITERAL, ops.ANY, ops.IN}:
        return _taken(op, parts, flags)
    if op in {ops.AT, ops.ASSERT, ops.ASSERT_NOT}:
        return _NOTHING
    inner: list[Item] = [item for one in _inner(op, parts) for item in one]
    if op is ops.SUBPATTERN:
        inner = list(parts[3])
    return _NOTHING.union(*(_characters(*item, flags) for item in inner))


def _first(items: Iterable[Item], flags: int) -> frozenset[str]:
    """Every character that a sequence can begin with."""
    found = _NOTHING
    for op, parts in _flat(items):
        if op is ops.BRANCH:
            found = found.union(*(_first(one, flags) for one in parts[1]))
        elif op in _REPEATS or op is ops.POSSESSIVE_REPEAT:
            found |= _first(parts[2], flags)
        elif op is ops.ATOMIC_GROUP:
            found |= _first(parts, flags)
        else:
            found |= _characters(op, parts, flags)
        if not _may_be_empty(op, parts):
            break
    return found


def _taken(op: Any, parts: Any, flags: int) -> frozenset[str]:
    """The characters that one item takes, found by trying them all."""
    item = parser.SubPattern(parser.State(), [(op, parts)])
    item.state.str = ""
    item.state.flags = flags
    compiled = re._compiler.compile(item, flags & ~re.VERBOSE)  # type: ignore[attr-defined]
    return frozenset(c for c in _ALPHABET if compiled.fullmatch(c))
