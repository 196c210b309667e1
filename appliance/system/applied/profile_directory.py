"""Directory of profiles, compared with what was applied, without reading any profile as one.

A profile is read by `appliance apply` alone, which takes a schema library. It leaves the faults that it
found (`faults.json`), each with the digest of the file that has it; a file that has changed since is new.
"""

import json
import os
from collections.abc import Collection, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from appliance.model.json_reader import parse_object
from appliance.status.document import ProfileFileRow, ProfileFileState
from appliance.system.files.durable import read_regular, write_file
from appliance.system.files.regular import Stamp, read_small_file, stamp
from appliance.wire.json_values import Json, object_in, text_in

FAULTS_FILE: Final = "faults.json"
_SUFFIX: Final = ".toml"
_MOST_BYTES: Final = 1 << 20
_MOST_FILES: Final = 2048
_MOST_ROWS: Final = 20
_UNAPPLIED: Final[ProfileFileState] = "unapplied"
_CHANGED: Final[ProfileFileState] = "changed"
_FAULTY: Final[ProfileFileState] = "faulty"
_REMOVED: Final[ProfileFileState] = "removed"


def write_faults(directory: Path, profiles_dir: Path, errors: Mapping[str, str]) -> None:
    """Keep the faults that an apply found, by profile. Raises `StoreError`."""
    document = {
        name: {"sha256": _digest(profiles_dir / f"{name}{_SUFFIX}"), "text": text}
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
        self._faults: tuple[Stamp | None, Json] = (None, {})
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

    def _read_faults(self) -> Json:
        seen = stamp(self._faults_path)
        if seen is None:
            return {}
        if self._faults[0] != seen:
            try:
                self._faults = seen, parse_object(read_small_file(self._faults_path, _MOST_BYTES))
            except (OSError, ValueError):
                self._faults = seen, {}
        return self._faults[1]

    def _fault(self, name: str, faults: Json) -> str:
        """Return the fault that apply found in a file that is still the same; empty: none."""
        entry = object_in(faults, name)
        if not entry:
            return ""
        path = self._profiles_dir / f"{name}{_SUFFIX}"
        seen = stamp(path)
        known = self._digests.get(name)
        if known is None or known[0] != seen:
            known = self._digests[name] = seen, _digest(path)
        return text_in(entry, "text") if known[1] == text_in(entry, "sha256") else ""


def _digest(path: Path) -> str:
    """Return the digest of a file; empty: it cannot be read."""
    try:
        return sha256(read_small_file(path, _MOST_BYTES, follow_links=True)).hexdigest()
    except OSError:
        return ""
