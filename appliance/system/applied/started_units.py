"""Record of the forms in which running units were started, beside the supervisor's other runtime files.

A unit whose files are older than its process was started from them. So the supervisor notes a form when
it first sees a process, and the note outlives the supervisor, not a reboot. Apply reads the notes.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.model.json_reader import parse_object
from appliance.model.names import unit_of
from appliance.switch.units.drift import DROP_IN_SUFFIX
from appliance.switch.units.started_form import start_digest
from appliance.system.files.durable import write_file
from appliance.system.files.regular import Stamp, read_small_file, stamp
from appliance.wire.json_values import number_in, object_in, text_in

STARTED_FILE: Final = "started.json"
_MOST_BYTES: Final = 1 << 20
_MOST_UNIT_BYTES: Final = 1 << 18
_MOST_DROP_INS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedForm:
    """Form in which one process was started."""

    started_unix_s: float
    """Start of the process, which tells it from the one before."""
    digest: str
    """Digest of the form; empty: the files had changed since when the process was first seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Present:
    """Form in which a unit would be started now."""

    stamps: tuple[Stamp | None, ...]
    digest: str | None
    """None: the files cannot be read."""
    written_unix_s: float


class StartedUnits:
    """Comparison of running units with their files; files are read again only after a change.

    Args:
        unit_dir: Directory of the installed units.
        record: File of the notes.
    """

    def __init__(self, unit_dir: Path, record: Path) -> None:
        self._unit_dir = unit_dir
        self._record = record
        self._started = read_started(record)
        self._present: dict[str, _Present] = {}

    def outdated(self, started: Mapping[str, float]) -> frozenset[str]:
        """Return the profiles that run in another form than that of their files.

        Args:
            started: Unix seconds at which the process of each running profile began.
        """
        present = {name: self._look(name) for name in started}
        found = {name: self._form(name, at_s, present[name]) for name, at_s in started.items()}
        self._present = present
        if found != self._started:
            self._started = found
            self._keep()
        return frozenset(
            name
            for name, form in found.items()
            if (now := present[name].digest) is not None and now != form.digest
        )

    def _form(self, name: str, at_s: float, present: _Present) -> StartedForm:
        known = self._started.get(name)
        if known is not None and known.started_unix_s == at_s:
            return known
        is_older = present.digest is not None and present.written_unix_s <= at_s
        return StartedForm(started_unix_s=at_s, digest=(present.digest or "") if is_older else "")

    def _look(self, name: str) -> _Present:
        unit = unit_of(name)
        paths = [self._unit_dir / unit, *_drop_ins(self._unit_dir / f"{unit}{DROP_IN_SUFFIX}")]
        stamps = tuple(stamp(path) for path in paths)
        known = self._present.get(name)
        if known is not None and known.stamps == stamps:
            return known
        # A drop-in that was removed has changed its directory alone.
        folder = stamp(self._unit_dir / f"{unit}{DROP_IN_SUFFIX}")
        written_ns = max((seen[1] for seen in (*stamps, folder) if seen is not None), default=0)
        try:
            texts = [read_small_file(path, _MOST_UNIT_BYTES).decode() for path in paths]
        except (OSError, UnicodeDecodeError):
            digest = None
        else:
            digest = start_digest(texts[0], texts[1:])
        return _Present(stamps=stamps, digest=digest, written_unix_s=written_ns / 1e9)

    def _keep(self) -> None:
        document = {
            name: {"started_unix_s": form.started_unix_s, "digest": form.digest}
            for name, form in sorted(self._started.items())
        }
        with contextlib.suppress(StoreError):  # Noted again by the next process of the supervisor.
            write_file(self._record, json.dumps(document))


def read_started(record: Path) -> dict[str, StartedForm]:
    """Return the noted forms by profile; none where the file is missing or damaged."""
    try:
        document = parse_object(read_small_file(record, _MOST_BYTES))
    except (OSError, ValueError):
        return {}
    entries = {name: object_in(document, name) for name in document}
    return {
        name: StartedForm(started_unix_s=at_s, digest=text_in(entry, "digest"))
        for name, entry in entries.items()
        if (at_s := number_in(entry, "started_unix_s")) is not None
    }


def _drop_ins(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - for each of hundreds
    except OSError:
        return []
    return [folder / name for name in names if name.endswith(".conf")][:_MOST_DROP_INS]
