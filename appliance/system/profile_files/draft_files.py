"""Drafts of profiles as files: TOML with comments, and what the profile's rules refuse taken out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from appliance.profiles.foreign.profile_draft import (
    DraftArgument,
    ProfileDraft,
    without_argument,
    without_key,
)
from appliance.profiles.foreign.server_command import Disposition, DispositionKind, PartKind
from appliance.system.profile_files.draft_text import (
    after_value,
    assignment,
    comment_lines,
    short_line,
    toml_value,
)
from appliance.system.profile_files.loading import profile_faults
from appliance.system.toml.file import Fault

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
    """Return a draft as a valid profile: what the rules refuse is taken out, and told."""
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
