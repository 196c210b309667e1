"""The table of docs/explanation/architecture.md: which files change to add a thing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path("docs/explanation/architecture.md")
THINGS = ("engine", "verb", "setting", "gateway setting", "profile key")
_HEADING = "## What changes to add a thing"
_GENERATED = "generated"
_ROW = re.compile(r"^\| *([^|]+?) *\| *`([^`|]+)`[^|]*\| *([^|]+?) *\|", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One row."""

    thing: str
    """One of `THINGS`."""
    file: str
    """Path from the root."""
    generated: bool
    """A program writes the file."""


def changes(page: str) -> Sequence[Change]:
    """The rows of the table in a page."""
    section = page.partition(f"{_HEADING}\n")[2].partition("\n## ")[0]
    return [
        Change(thing=thing, file=file, generated=author == _GENERATED)
        for thing, file, author in _ROW.findall(section)
    ]


def by_hand(rows: Sequence[Change], thing: str) -> int:
    """Return how many files a person changes to add a thing."""
    return len({row.file for row in rows if row.thing == thing and not row.generated})
