"""Problems of a profile, with the place of each."""

from dataclasses import dataclass

Where = tuple[str | int, ...]
"""Place in a document: keys from its top down; an integer is the position in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Problem of a profile that its owner has to fix."""

    where: Where
    """Place of the problem; empty: the file as a whole."""
    text: str
    """Sentence about the problem, without file and line."""
