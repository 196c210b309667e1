"""Problems of a profile, with the place of each."""

from dataclasses import dataclass

Where = tuple[str | int, ...]
"""Keys from the top of the document down; integers are places in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing to fix."""

    where: Where
    """Empty: the file as a whole."""
    text: str
    """A sentence without file and line."""
