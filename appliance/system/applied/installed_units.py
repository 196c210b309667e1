"""Difference between the installed units of profiles and root's copies of what apply wrote.

Lines are compared as a set, in linear time, and drop-ins of a unit are named; what can be kept of an edit,
and how, is for `sudo appliance apply` to say (`switch.units.drift`). Files are read again only after a
change. The lines go into messages to phones: values that may be secret are left out.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from appliance.model.names import unit_of
from appliance.model.paths import APPLIED_UNITS
from appliance.system.files.regular import OddFileError, Stamp, read_small_file, stamp

_MOST_BYTES: Final = 1 << 18
MOST_LINES: Final = 12
_MOST_CHARACTERS: Final = 200
_SECRET: Final = re.compile(r"environment|key|token|secret|password|credential", re.IGNORECASE)
_Stamps = tuple[Stamp | None, Stamp | None, Stamp | None]


class InstalledUnits:
    """Reader of the difference.

    Args:
        unit_dir: Directory of the installed units.
        applied_dir: Directory of what apply has written.
    """

    def __init__(self, unit_dir: Path, applied_dir: Path) -> None:
        self._unit_dir = unit_dir
        self._copies = applied_dir / APPLIED_UNITS
        self._known: dict[str, tuple[_Stamps, tuple[str, ...] | None]] = {}

    def drift(self, profiles: Iterable[str]) -> dict[str, tuple[str, ...] | None]:
        """Return lines of the difference by profile; empty: none; None: nothing to compare with."""
        found = {name: self._drift(unit_of(name)) for name in profiles}
        self._known = {unit_of(n): self._known[unit_of(n)] for n in found}
        return found

    def _drift(self, unit: str) -> tuple[str, ...] | None:
        installed, copy = self._unit_dir / unit, self._copies / unit
        drop_ins = self._unit_dir / f"{unit}.d"
        seen = stamp(installed), stamp(copy), stamp(drop_ins)
        known = self._known.get(unit)
        if known is None or known[0] != seen:
            lines = None if seen[1] is None else _difference(installed, copy, drop_ins)
            known = self._known[unit] = seen, lines
        return known[1]


def _difference(installed: Path, copy: Path, drop_ins: Path) -> tuple[str, ...] | None:
    try:
        before = _lines(copy)
    except OSError:
        return None
    found: list[str] = []
    with contextlib.suppress(OSError):  # no drop-ins, the usual case
        found += [f"{path.name} in {drop_ins}" for path in sorted(drop_ins.iterdir())]
    try:
        after = _lines(installed)
    except FileNotFoundError:
        found.append(f"{installed} is missing")
    except OddFileError as error:
        found.append(f"{installed} {error.strerror}")
    except OSError:
        return None
    else:
        found += _changed_lines(before, after)
    return tuple(line[:_MOST_CHARACTERS] for line in found[:MOST_LINES])


def _changed_lines(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return lines that have gone and come; blank lines and comments say nothing."""
    old, new = Counter(filter(_matters, before)), Counter(filter(_matters, after))
    gone, come = old - new, new - old
    changed = [f"-{_shown(line)}" for line in gone] + [f"+{_shown(line)}" for line in come]
    if not changed and list(filter(_matters, before)) != list(filter(_matters, after)):
        changed.append("its lines are in another order")
    return changed


def _matters(line: str) -> bool:
    text = line.strip()
    return bool(text) and text[0] not in "#;"


def _shown(line: str) -> str:
    """Return a line; one that may hold a secret without its value."""
    key, equals, value = line.partition("=")
    if not _SECRET.search(line):
        return line
    name = value.strip().strip("\"'").partition("=")[0] if key.strip() == "Environment" else ""
    shown = f"{name}=" if name.isidentifier() else ""
    return f"{key[:_MOST_CHARACTERS]}{equals}{shown}… (value not shown)"


def _lines(path: Path) -> list[str]:
    return read_small_file(path, _MOST_BYTES).decode(errors="replace").splitlines()
