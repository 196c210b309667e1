"""Changes that are not in force: profile files that differ from what was applied, units that run in an older form.

A profile is read by `appliance apply` alone, which takes a schema library. It leaves the faults that it
found (`faults.json`), each with the digest of the file that has it; a file that has changed since is new.

A unit whose files are older than its process was started from them. So the supervisor notes a form when
it first sees a process (`started.json`, beside its other runtime files), and the note outlives the supervisor, not
a reboot. Apply reads the notes.
"""

import contextlib
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.model.json_reader import decode_json
from appliance.model.names import unit_of
from appliance.model.status import ProfileFileRow, ProfileFileState
from appliance.switch.units.drift import DROP_IN_SUFFIX, start_digest
from appliance.system.files.durable import read_regular, write_file
from appliance.system.files.regular import Stamp, read_small_file, stamp
from appliance.wire.typed_json import from_json

FAULTS_FILE: Final = "faults.json"
_SUFFIX: Final = ".toml"
_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 2048
_MOST_ROWS: Final = 20
_UNAPPLIED: Final[ProfileFileState] = "unapplied"
_CHANGED: Final[ProfileFileState] = "changed"
_FAULTY: Final[ProfileFileState] = "faulty"
_REMOVED: Final[ProfileFileState] = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fault:
    """Fault that apply found in a profile's file."""

    sha256: str
    """Digest of the file that has it."""
    text: str


def write_faults(directory: Path, profiles_dir: Path, errors: Mapping[str, str]) -> None:
    """Keep the faults that an apply found, by profile. Raises `StoreError`."""
    document = {
        name: asdict(_Fault(sha256=_digest(profiles_dir / f"{name}{_SUFFIX}"), text=text))
        for name, text in sorted(errors.items())
    }
    path, text = directory / FAULTS_FILE, json.dumps(document, indent=1) + "\n"
    before = read_regular(path)
    if before != text and (errors or before is not None):
        write_file(path, text)


class ProfileDirectory:
    """Reader of the difference; lists the directory again only after a change.

    Args:
        profiles_dir: Directory of the profiles.
        applied_dir: Directory of what apply has written.
    """

    def __init__(self, profiles_dir: Path, applied_dir: Path) -> None:
        self._profiles_dir = profiles_dir
        self._faults_path = applied_dir / FAULTS_FILE
        self._listed: tuple[Stamp | None, frozenset[str] | None] = (None, None)
        self._faults: tuple[Stamp | None, Mapping[str, _Fault]] = (None, {})
        self._digests: dict[str, tuple[Stamp | None, str]] = {}

    def rows(self, applied: Collection[str], edited: Collection[str]) -> list[ProfileFileRow]:
        """Return the files that are not in force, sorted by name, at most twenty.

        Args:
            applied: Names of the applied profiles.
            edited: Those whose file has changed since.
        """
        present, faults = self._names(), self._read_faults()
        if present is None:
            return []
        names = sorted({*(present - frozenset(applied)), *edited, *(set(applied) - present)})
        rows: list[ProfileFileRow] = []
        for name in names[:_MOST_ROWS]:
            text = self._fault(name, faults) if name in present else ""
            present_state = _CHANGED if name in applied else _UNAPPLIED
            state = _FAULTY if text else present_state if name in present else _REMOVED
            file = f"{self._profiles_dir / name}{_SUFFIX}"
            rows.append(ProfileFileRow(name=name, file=file, state=state, text=text))
        return rows

    def _names(self) -> frozenset[str] | None:
        """Return the names of the files; None: the directory cannot be read."""
        seen = stamp(self._profiles_dir)
        if seen is None or self._listed[0] != seen:
            self._listed = seen, self._list()
        return self._listed[1]

    def _list(self) -> frozenset[str] | None:
        try:
            with os.scandir(self._profiles_dir) as entries:
                names = [entry.name for _, entry in zip(range(_MOST_FILES), entries, strict=False)]
        except OSError:
            return None
        stems = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
        return frozenset(stem for stem in stems if not stem.startswith("."))

    def _read_faults(self) -> Mapping[str, _Fault]:
        seen = stamp(self._faults_path)
        if seen is None:
            return {}
        if self._faults[0] != seen:
            try:
                document = decode_json(read_small_file(self._faults_path, _MOST_BYTES))
                self._faults = seen, from_json(dict[str, _Fault], document)
            except (OSError, ValueError):
                self._faults = seen, {}
        return self._faults[1]

    def _fault(self, name: str, faults: Mapping[str, _Fault]) -> str:
        """Return the fault that apply found in a file that is still the same; empty: none."""
        fault = faults.get(name)
        if fault is None:
            return ""
        path = self._profiles_dir / f"{name}{_SUFFIX}"
        seen = stamp(path)
        known = self._digests.get(name)
        if known is None or known[0] != seen:
            known = self._digests[name] = seen, _digest(path)
        return fault.text if known[1] == fault.sha256 else ""


def _digest(path: Path) -> str:
    """Return the digest of a file; empty: it cannot be read."""
    try:
        return sha256(read_small_file(path, _MOST_BYTES, follow_links=True)).hexdigest()
    except OSError:
        return ""


# --- running units -------------------------------------------------------------------

STARTED_FILE: Final = "started.json"
_MOST_RECORD_BYTES: Final = 1 << 20
_MOST_UNIT_BYTES: Final = 1 << 18
_MOST_DROP_INS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedForm:
    """Form in which one process was started."""

    started_unix_s: float
    """Start of the process, by which it differs from the one before."""
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
        document = {name: asdict(form) for name, form in sorted(self._started.items())}
        with contextlib.suppress(StoreError):  # Noted again by the next process of the supervisor.
            write_file(self._record, json.dumps(document))


def read_started(record: Path) -> dict[str, StartedForm]:
    """Return the noted forms by profile; none where the file is missing or damaged."""
    try:
        document = decode_json(read_small_file(record, _MOST_RECORD_BYTES))
        return from_json(dict[str, StartedForm], document)
    except (OSError, ValueError):
        return {}


def _drop_ins(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - for each of hundreds
    except OSError:
        return []
    return [folder / name for name in names if name.endswith(".conf")][:_MOST_DROP_INS]
