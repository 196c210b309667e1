"""Variables of a configuration, and the words that references to them make.

Values are the literals that the configuration itself assigns. What it does not assign is unknown, unless
the reference names a default: no variable of this process counts.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from appliance.profiles.foreign.server_command import MAX_CHARACTERS, Argument, ImportFaultError
from appliance.profiles.foreign.shell_syntax import (
    Assignment,
    Literal,
    Opaque,
    Reference,
    Word,
    WordPart,
)
from appliance.profiles.foreign.shell_words import template_of

_POSITIONAL: Final = frozenset("0123456789@*#")
_PLACES: Final = {"HOME": "~", "PWD": "."}
"""Variables that every shell has, as paths that are located later."""


class Variables:
    """Variables as far as a configuration has been read; a later assignment replaces an earlier one.

    Args:
        values: Variables that are set from the beginning.
    """

    def __init__(self, values: Mapping[str, Argument] | None = None) -> None:
        places = {name: Argument(text=text) for name, text in _PLACES.items()}
        self._values: dict[str, tuple[Argument, ...]] = {
            name: (value,) for name, value in {**places, **(values or {})}.items()
        }
        self._made_characters = 0

    def assign(self, assignment: Assignment) -> None:
        """Record an assignment; a value that changes is noted where it is used."""
        given = assignment.value
        value: tuple[Argument, ...]
        value = (self.joined(given),) if isinstance(given, Word) else tuple(self.expand(given))
        before = self._values.get(assignment.name)
        if assignment.appends and before is not None:
            value = _appended(before, value, is_list=not isinstance(given, Word))
        elif before is not None and before != value and len(value) == 1:
            note = f"{assignment.name} is assigned more than once: the last value was taken"
            value = (_noted(value[0], note),)
        self._values[assignment.name] = value

    def snapshot(self, names: Iterable[str]) -> dict[str, Argument]:
        """Return variables that have one value, of those with these names."""
        return {n: self._values[n][0] for n in names if len(self._values.get(n, ())) == 1}

    def expand(self, words: Iterable[Word]) -> Iterator[Argument]:
        """Yield the arguments that words make: a list or an unquoted value may make several."""
        for word in words:
            yield from self._fields(word)

    def joined(self, word: Word) -> Argument:
        """Return the one argument that a word makes where none is split."""
        return _join(list(self._pieces(word.parts)))

    def _fields(self, word: Word) -> Iterator[Argument]:
        current: list[Argument] = []
        is_field = False
        for part in word.parts:
            if not isinstance(part, Reference) or (part.quoted and not part.is_list):
                current += self._pieces((part,))
                is_field = True
                continue
            values = self._of(part)
            if not part.quoted:
                values = [piece for value in values for piece in _split(value)]
            for place, value in enumerate(values):
                if place:
                    yield _join(current)
                    current = []
                current.append(value)
                is_field = True
        if is_field:
            yield _join(current)

    def _pieces(self, parts: Iterable[WordPart]) -> Iterator[Argument]:
        for part in parts:
            if isinstance(part, Literal):
                yield self._counted(Argument(text=part.text))
            elif isinstance(part, Opaque):
                note = f"{part.text}: {part.reason}"
                yield Argument(text=part.text, is_known=False, note=note)
            else:
                yield _join(self._of(part), " ")

    def _of(self, reference: Reference) -> list[Argument]:
        """Return the values that a reference stands for."""
        values = self._values.get(reference.name)
        if values is not None and (reference.default is None or any(v.text for v in values)):
            used = values if reference.is_list else values[:1]
            return [self._counted(value) for value in used]
        if reference.default is not None:
            found = _join(list(self._pieces(reference.default.parts)))
            if not found.is_known or not found.text:
                return [found]
            return [_noted(found, f"{reference.name} is not set here: its default was taken")]
        if reference.name in _POSITIONAL:
            note = f"{reference.text}: what the script is started with is not known"
        else:
            note = f"{reference.text}: the file does not set {reference.name}"
        return [Argument(text=reference.text, is_known=False, note=note)]

    def _counted(self, value: Argument) -> Argument:
        """Return `value`; the text that variables make is bounded as a whole."""
        self._made_characters += len(value.text) + 1
        if self._made_characters > MAX_CHARACTERS:
            raise ImportFaultError(
                f"its variables make more than {MAX_CHARACTERS >> 10} KiB of text"
            )
        return value


def _appended(
    before: tuple[Argument, ...], more: tuple[Argument, ...], *, is_list: bool
) -> tuple[Argument, ...]:
    if is_list:
        return (*before, *more)
    return (*before[:-1], _join([*before[-1:], *more]))


def _noted(value: Argument, note: str) -> Argument:
    notes = [value.note, note] if value.note and note not in value.note else [note]
    return Argument(text=value.text, is_known=value.is_known, note="; ".join(notes))


def _split(value: Argument) -> list[Argument]:
    if not value.is_known:
        return [value]
    return [Argument(text=text, note=value.note) for text in value.text.split()]


def _join(pieces: list[Argument], between: str = "") -> Argument:
    """Return the argument that several make together: unknown if one of them is."""
    if len(pieces) == 1:
        return pieces[0]
    notes = dict.fromkeys(piece.note for piece in pieces if piece.note)
    return Argument(
        text=between.join(piece.text for piece in pieces),
        is_known=all(piece.is_known for piece in pieces),
        note="; ".join(notes),
    )


def interpolated(text: str, variables: Variables) -> Argument:
    """Return a value of a compose file, in which ``$NAME`` and ``${NAME:-default}`` are replaced.

    ``$$`` is a dollar sign; nothing else is special. Raises `ImportFaultError`.
    """
    return variables.joined(template_of(text))
