"""Recorded lists: the options and variables of one release of an engine, and where they were read."""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent / "recorded"
_WIDTH: Final = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRelease:
    """Options and variables that one release of an engine has."""

    engine: str
    """Name of the engine as profiles write it."""
    package: str
    version: str
    """Version of the package."""
    build: str
    """The same in the words of `Flag.since`, by which builds are older or newer than one another."""
    file: str
    """Name of the package's file."""
    sha256: str
    sources: tuple[str, ...]
    """Files in the package that were read."""
    read_on: str
    """Date, as YYYY-MM-DD."""
    options: frozenset[str]
    variables: frozenset[str]
    """Variables of the engine's own that its sources name; empty: they were not read."""


def recorded(engine: str) -> RecordedRelease:
    """Return the recorded release of an engine."""
    document: dict[str, Any] = json.loads(_file(engine).read_text(encoding="utf-8"))
    return RecordedRelease(
        **{
            key: document[key]
            for key in ("engine", "package", "version", "build", "file", "sha256")
        },
        sources=tuple(document["sources"]),
        read_on=document["read_on"],
        options=_names(document["options"]),
        variables=_names(document["variables"]),
    )


def recorded_engines() -> tuple[str, ...]:
    """Return the engines with a recorded release."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.json")))


def record(release: RecordedRelease) -> None:
    """Store a release in place of the one before it."""
    document = {
        "engine": release.engine,
        "package": release.package,
        "version": release.version,
        "build": release.build,
        "file": release.file,
        "sha256": release.sha256,
        "sources": list(release.sources),
        "read_on": release.read_on,
        "options": _lines(release.options),
        "variables": _lines(release.variables),
    }
    _file(release.engine).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _file(engine: str) -> Path:
    return _FOLDER / f"{engine}.json"


def _names(lines: list[str]) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


def _lines(names: frozenset[str]) -> list[str]:
    text = " ".join(sorted(names))
    return textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
