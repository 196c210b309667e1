"""Record of an engine's build: a JSON file for each profile.

The unit that asks the program writes the file (launch.ask_build): as the engine's user, into a
descriptor that systemd opened, in a directory where only root makes files. What the file says came
from a program of somebody else, so that every part is checked and bounded. The stamps tell whether
the program was changed since.
"""

from __future__ import annotations

from appliance.model.engine_build import EngineBuild, is_option
from appliance.model.json_reader import decode_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Stamps = Mapping[str, Sequence[int] | None]
    """Stamps of the files that an answer depends on, by path; None: there was no such file."""

MAX_BYTES = 256 << 10
"""Largest file in bytes."""
MOST_OPTIONS = 2000
MOST_VALUES = 64
_MOST_FILES = 16
_MOST_CHARACTERS = 200
_LAST_UNIX_S = 1e11
_FORMAT = 1
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, OverflowError)


class BuildRecord:
    """Answer of a program, and the stamps of the files that gave it."""

    __slots__ = ("build", "program", "stamps")

    def __init__(self, *, program: str, build: EngineBuild, stamps: Stamps) -> None:
        self.program = program
        """Path of the program as the profile has it."""
        self.build = build
        self.stamps = stamps


def encoded(record: BuildRecord) -> str:
    """Return the text of a file."""
    import json  # noqa: PLC0415 - 5 ms, which most starts do not pay

    build = record.build
    document = {
        "format": _FORMAT,
        "program": record.program,
        "version": build.version,
        "asked_unix_s": build.asked_unix_s,
        "is_complete": build.is_complete,
        "problem": build.problem,
        "stamps": {path: stamp and [*stamp] for path, stamp in record.stamps.items()},
        "options": {name: values and [*values] for name, values in build.options.items()},
        "removed": dict(build.removed),
    }
    return json.dumps(document, separators=(",", ":")) + "\n"


def decoded(content: str | bytes) -> BuildRecord | None:
    """Return the record in a file's content; None: it is damaged, or of another release."""
    try:
        document = decode_json(content)
        if document["format"] != _FORMAT:
            return None
        return BuildRecord(
            program=_path(document["program"]),
            build=EngineBuild(
                version=_text(document["version"]),
                asked_unix_s=_moment(document["asked_unix_s"]),
                is_complete=document["is_complete"] is not False,
                problem=_text(document["problem"]),
                options=_options(document["options"]),
                removed={
                    _option(name): _text(text)
                    for name, text in _table(document["removed"], MOST_OPTIONS).items()
                },
            ),
            stamps={
                path: None if stamp is None else tuple(map(int, _listed(stamp)))
                for path, stamp in _table(document["stamps"], _MOST_FILES).items()
            },
        )
    except _DAMAGE:
        return None


def _options(document: object) -> dict[str, tuple[str, ...] | None]:
    return {
        _option(name): None if values is None else tuple(map(_text, _listed(values)))
        for name, values in _table(document, MOST_OPTIONS).items()
    }


def _table(value: object, most: int) -> Mapping[str, object]:
    if not isinstance(value, dict) or len(value) > most:
        raise TypeError("not a table, or too large")
    return value


def _listed(value: object) -> Sequence[str]:
    if not isinstance(value, list) or len(value) > MOST_VALUES:
        raise TypeError("not a list, or too long")
    return value


def _option(name: str) -> str:
    if not is_option(name):
        raise ValueError("not an option")
    return _text(name)


def _text(value: object) -> str:
    """Return a text that may be shown: cut, and without control characters."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    cut = value[:_MOST_CHARACTERS]
    return cut if cut.isprintable() else "".join(c for c in cut if c.isprintable())


def _path(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a path")
    return value


def _moment(value: float) -> float:
    """Return Unix seconds. Raises ValueError for what is no moment of a clock."""
    if not 0 <= value < _LAST_UNIX_S:
        raise ValueError("not a moment")
    return float(value)
