"""File of the targets of alerts, for root alone.

::

    heartbeat_url = "https://hc-ping.com/…"

    [[target]]
    name = "phone"
    url = "ntfys://ntfy.example/topic"
    min_severity = "warning"

The notifier reads it at each start, so nothing here costs what pydantic does. An error says what is wrong
at which line, and never shows a value.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from appliance.model.alerts import Severity
from appliance.model.spec import Where
from appliance.model.targets import (
    MOST_TARGETS,
    Target,
    Targets,
    TargetStanding,
    check_name,
    check_web_address,
    kind_of,
)
from appliance.model.value_types import WrongValueError
from appliance.system.toml.file import Document, Fault, FaultyFileError, parse_document

TARGET_KEYS: Final[Mapping[str, str]] = {
    "name": "name of the target: small letters, digits, dashes and underscores",
    "url": "address with its secrets: of an ntfy topic, or one that apprise knows",
    "min_severity": "least severe alerts of which it is told: `critical`, `warning` or `info` (`info`)",
    "click": "address that a tap on a message opens",
    "box_silent": (
        "whether it keeps the message that the box is silent (`true`, at ntfy.sh `false`); "
        "ntfy from 2.16 on can"
    ),
}
"""Descriptions of the keys of ``[[target]]``."""
HEARTBEAT_KEY: Final = "heartbeat_url"
_TABLE: Final = "target"


def parse_targets(content: bytes) -> Targets:
    """Return the targets in the file's content. Raises `FaultyFileError`, which shows no value."""
    document = parse_document(content)
    reader = _TargetsReader(document)
    targets = reader.targets()
    if reader.faults:
        raise FaultyFileError(reader.faults)
    return targets


def standing_of(target: Target) -> TargetStanding:
    """Return a target as everybody may know it."""
    return TargetStanding(
        name=target.name, kind=kind_of(target.url), min_severity=target.min_severity
    )


class _TargetsReader:
    """Reader of a parsed file, which collects all faults."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.faults: list[Fault] = []

    def targets(self) -> Targets:
        table = self._document.table
        self._check_keys(table, (), {HEARTBEAT_KEY, _TABLE})
        heartbeat = self._checked(table, (HEARTBEAT_KEY,), "", check_web_address)
        rows = table.get(_TABLE, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            self._add((_TABLE,), f"{_TABLE} is no list of tables: write [[{_TABLE}]]")
            rows = []
        if len(rows) > MOST_TARGETS:
            self._add((_TABLE,), f"more than {MOST_TARGETS} targets")
        found = [self._target(row, number) for number, row in enumerate(rows[:MOST_TARGETS])]
        names: set[str] = set()
        for number, target in enumerate(found):
            if target.name in names:
                self._add((_TABLE, number, "name"), "the name of another target")
            names |= {target.name} if target.name else set()
        return Targets(targets=tuple(found), heartbeat_url=heartbeat)

    def _target(self, row: Mapping[str, Any], number: int) -> Target:
        where: Where = (_TABLE, number)
        self._check_keys(row, where, TARGET_KEYS.keys())
        severity = self._checked(row, (*where, "min_severity"), Severity.INFO.value, _severity)
        silent = row.get("box_silent")
        if silent is not None and not isinstance(silent, bool):
            self._add((*where, "box_silent"), "box_silent is neither true nor false")
            silent = None
        return Target(
            name=self._checked(row, (*where, "name"), None, check_name),
            url=self._checked(row, (*where, "url"), None, _address),
            min_severity=Severity(severity) if severity else Severity.INFO,
            click_url=self._checked(row, (*where, "click"), "", check_web_address),
            box_silent=silent,
        )

    def _checked(
        self,
        row: Mapping[str, Any],
        where: Where,
        default: str | None,
        check: Callable[[str], str],
    ) -> str:
        """Return a text that was checked, or one that is empty and a fault; no default: it is needed."""
        key = str(where[-1])
        value = row.get(key, default)
        if value is None:
            self._add(where[:-1], f"a target has no {key}")
        elif not isinstance(value, str):
            self._add(where, f"{key} is no text in quotes")
        elif value != default:
            try:
                return check(value)
            except WrongValueError as error:
                self._add(where, f"{key} {error}")
        else:
            return value
        return ""

    def _check_keys(self, row: Mapping[str, Any], where: Where, known: Iterable[str]) -> None:
        for key in row.keys() - set(known):
            self._add((*where, key), f"unknown key: {', '.join(sorted(known))} are the keys")

    def _add(self, where: Where, text: str) -> None:
        self.faults.append(Fault(line=self._document.line(where), text=text))


def _address(url: str) -> str:
    kind_of(url)
    return url


def _severity(text: str) -> str:
    if text not in set(Severity):
        raise WrongValueError(f"is none of {', '.join(Severity)}")
    return text
