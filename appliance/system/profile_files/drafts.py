"""Text of profiles that are made: from a draft, or as a copy of another profile with other values.

Keys have comments after them or above them. What the profile's rules refuse is taken out of a draft; in a copy,
comments, order and spacing stay.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, InlineTable
from tomlkit.toml_document import TOMLDocument

from appliance.model.errors import ProfileError
from appliance.model.wording import printable
from appliance.profiles.foreign.profile_draft import (
    DraftArgument,
    DraftKey,
    ProfileDraft,
    without_argument,
    without_key,
)
from appliance.profiles.foreign.server_command import Disposition, DispositionKind, PartKind
from appliance.profiles.proposing.example_changes import KeyChange
from appliance.system.profile_files.loading import profile_faults
from appliance.system.toml.file import Fault, FaultyFileError, parse_document

_WIDTH: Final = 100
_MOST_COMMENT: Final = 300


def keys_text(keys: Iterable[DraftKey]) -> str:
    """Return keys as the text of a file; those of one table stand together."""
    lines: list[str] = []
    table = ""
    for key in keys:
        if key.table != table:
            table = key.table
            lines += ["", f"[{table}]"]
        lines.append(assignment(key))
    return "".join(f"{line}\n" for line in lines)


def assignment(key: DraftKey) -> str:
    """Return a key with its value, and its comment after them."""
    name = tomlkit.key(key.key).as_string()
    if key.table == "unit":
        name = tomlkit.key(key.key.split(".")).as_string()
    return f"{name} = {toml_value(key.value)}{after_value(key.comment)}"


def after_value(text: str) -> str:
    """Return a comment that follows a value; empty: there is none."""
    return f"  # {short_line(text)}" if text else ""


def short_line(text: str) -> str:
    """Return a text on one line, cut."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= _MOST_COMMENT else f"{line[:_MOST_COMMENT]}…"


def toml_value(value: Any) -> str:
    """Return a value as TOML; a table inside a value is an inline one."""
    if isinstance(value, Mapping):
        pairs = (f"{tomlkit.key(str(k)).as_string()} = {toml_value(v)}" for k, v in value.items())
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml_value, value))}]"
    text: str = tomlkit.item(value).as_string()
    return text


def comment_lines(text: str) -> Iterator[str]:
    """Yield a text as lines of comments."""
    line = "#"
    for word in printable(text).split(" "):
        if len(line) + len(word) >= _WIDTH and line != "#":
            yield line
            line = "#  "
        line += f" {word}"
    yield line


# --- drafts --------------------------------------------------------------------------

_MOST_ROUNDS: Final = 64
"""Most keys that are taken out of one draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftFile:
    """Draft that has been checked, and its text."""

    draft: ProfileDraft
    text: str
    faults: tuple[Fault, ...] = ()
    """Faults for which it is no valid profile, whatever is taken out; empty: it is one."""
    places: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """Kind and index of the part on a line, from 1: ``key`` or ``argument``."""


@dataclass(slots=True)
class _Text:
    lines: list[str] = field(default_factory=list)
    places: dict[int, tuple[str, int]] = field(default_factory=dict)
    """Kind and index of what stands on a line, from 1: ``key`` or ``argument``."""

    def add(self, line: str = "", place: tuple[str, int] | None = None) -> None:
        self.lines.append(line)
        if place is not None:
            self.places[len(self.lines)] = place


def checked_file(draft: ProfileDraft) -> DraftFile:
    """Return a draft as a valid profile: what the rules refuse is taken out, and reported as taken out."""
    file = _checked(draft)
    for _ in range(_MOST_ROUNDS):
        smaller = next(_smaller(file), None)
        if smaller is None:
            return file
        file = _checked(smaller)
    return file


def _checked(draft: ProfileDraft) -> DraftFile:
    text = _rendered(draft)
    content = "\n".join(text.lines) + "\n"
    faults = profile_faults(draft.name, content.encode())
    return DraftFile(draft=draft, text=content, faults=faults, places=text.places)


def _smaller(file: DraftFile) -> Iterator[ProfileDraft]:
    """Yield the draft without what one of its faults is about; nothing: no fault is about a part."""
    for fault in file.faults:
        place = file.places.get(fault.line or 0)
        if place is not None:
            kind, index = place
            take = without_key if kind == "key" else without_argument
            yield take(file.draft, index, fault.text)


def _rendered(draft: ProfileDraft) -> _Text:
    text = _Text()
    for line in comment_lines(f"Imported from {draft.origin}: {_summary(draft)}"):
        text.add(line)
    table = ""
    is_extra_due = bool(draft.extra_args)
    for index, key in enumerate(draft.keys):
        if key.table != table:
            if is_extra_due:
                _add_arguments(text, draft.extra_args)
                is_extra_due = False
            table = key.table
            text.add()
            text.add(f"[{table}]")
        text.add(assignment(key), ("key", index))
    if is_extra_due:
        _add_arguments(text, draft.extra_args)
    _add_ledger(text, draft)
    return text


def _summary(draft: ProfileDraft) -> str:
    options = [d for d in draft.dispositions if d.part is PartKind.OPTION]
    dropped = sum(d.outcome is DispositionKind.DROPPED for d in options)
    changed = sum(d.outcome is DispositionKind.CHANGED for d in options)
    kept = len(options) - dropped
    return f"{kept} of {len(options)} options kept, {changed} of them in another form."


def _add_arguments(text: _Text, arguments: Sequence[DraftArgument]) -> None:
    text.add("extra_args = [")
    for index, argument in enumerate(arguments):
        words = ", ".join(map(toml_value, argument.words))
        text.add(f"  {words},{after_value(argument.comment)}", ("argument", index))
    text.add("]")


def _add_ledger(text: _Text, draft: ProfileDraft) -> None:
    """Add what became of every part of the source."""
    text.add()
    carried = [d.text for d in draft.of(DispositionKind.CARRIED)]
    if carried:
        for line in comment_lines(f"Carried: {'; '.join(map(short_line, carried))}"):
            text.add(line)
    for outcome in (DispositionKind.CHANGED, DispositionKind.DROPPED):
        for disposition in draft.of(outcome):
            for line in comment_lines(f"{outcome.capitalize()}: {ledger_line(disposition)}"):
                text.add(line)


def ledger_line(disposition: Disposition) -> str:
    """Return a part of the source with its reason, on one line."""
    reason = f": {disposition.reason}" if disposition.reason else ""
    return short_line(f"{short_line(disposition.text)}{reason}")


# --- copies with other values --------------------------------------------------------

_MOST_PARTS: Final = 3
_VALUE: Final = "value"


def change_of(text: str) -> KeyChange | None:
    """Return the change that ``KEY=VALUE`` means; None: it is not of that form.

    A value that is not TOML is a text: ``model=/m.gguf`` needs no quotation marks.
    """
    key, equals, value = text.partition("=")
    where = tuple(part.strip() for part in key.split("."))
    if not equals or not all(where) or len(where) > _MOST_PARTS:
        return None
    return KeyChange(where=where, value=_parsed(value.strip()))


def _parsed(text: str) -> object:
    try:
        table = parse_document(f"{_VALUE} = {text}".encode()).table
    except (FaultyFileError, UnicodeEncodeError):
        return text
    return table[_VALUE] if set(table) == {_VALUE} else text


def changed(text: str, changes: Iterable[KeyChange]) -> str:
    """Return a profile's text with other values.

    Raises:
        ProfileError: the text is not TOML, or a key stands below one that is no table.
    """
    try:
        document = tomlkit.parse(text)
        for change in changes:
            _apply(document, change)
        return tomlkit.dumps(document)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise ProfileError(f"the profile cannot be changed: {error}") from error


def _apply(document: TOMLDocument, change: KeyChange) -> None:
    *way, key = change.where
    table: Any = document
    for name in way:
        if name not in table:
            if change.value is None:
                return
            table[name] = tomlkit.table()
        table = table[name]
        if not isinstance(table, AbstractTable | InlineTable):
            raise ProfileError(f"{'.'.join(change.where)}: {name} is no table")
    if change.value is None:
        if key in table:
            table.remove(key)
        return
    table[key] = tomlkit.value(toml_value(change.value))
    if change.comment is not None:
        trivia = table[key].trivia
        trivia.comment = f"# {printable(change.comment)}" if change.comment else ""
        trivia.comment_ws = "  " if change.comment else ""


def paths_in(table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the absolute paths among a profile's values, each with the way to its key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            for way, path in paths_in(value):
                yield (key, *way), path
        for item in (
            value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        ):
            if isinstance(item, str) and item.startswith("/"):
                yield (key,), item
