"""Forms of shell text: commands, assignments, and words with what they refer to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """Text that stands for itself."""

    text: str
    quoted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Reference to a variable: ``$NAME``, ``${NAME}``, ``${NAME:-default}``, ``${NAME[@]}``."""

    name: str
    quoted: bool
    is_list: bool = False
    """Whether all elements of an array are meant."""
    default: "Word | None" = None
    """Value where the variable is not set or empty; None: none is given."""
    text: str
    """The reference as it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque:
    """Part whose value only a shell could tell."""

    text: str
    reason: str


WordPart = Literal | Reference | Opaque


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """Word of a command, as it was written."""

    parts: tuple[WordPart, ...]

    def plain(self) -> str | None:
        """Return the word's text; None: it refers to something."""
        texts = [part.text for part in self.parts if isinstance(part, Literal)]
        return "".join(texts) if len(texts) == len(self.parts) else None

    def is_keyword(self, text: str) -> bool:
        """Tell whether the word is `text`, without quotes."""
        return self.parts == (Literal(text=text, quoted=False),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """Assignment before a command or instead of one."""

    name: str
    appends: bool
    value: Word | tuple[Word, ...]
    """Value; several words for an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleCommand:
    """Command without the operators around it."""

    line: int
    """Line on which the command begins, from 1."""
    assignments: tuple[Assignment, ...]
    words: tuple[Word, ...]
    redirections: tuple[str, ...]
    end: str
    """Operator that ends the command, such as ``|`` or ``&&``; a line's end is ``\\n``."""
