"""Records of what engines' programs say about their own builds; `appliance.wire.build_record` has the format.

Standard library only, and little of it: the wrapper reads a record before a start. A record that
cannot be read is as if absent.
"""

from __future__ import annotations

import os

from appliance.system.files.regular import read_small_file, stamp
from appliance.wire.build_record import MAX_BYTES, BuildRecord, decoded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from appliance.model.engine_build import EngineBuild
    from appliance.model.profile import Applied, Catalogue


def read_record(path: str) -> BuildRecord | None:
    """Return a record; None: there is none that can be read."""
    try:
        return decoded(read_small_file(path, MAX_BYTES))
    except OSError:
        return None


def is_current(record: BuildRecord, program: str) -> bool | None:
    """Tell whether an answer is of `program` as it is now; None: this process may not look."""
    if not record.stamps or record.program != program:
        return False
    now = {path: stamp(path) for path in record.stamps}
    known = {path: seen for path, seen in now.items() if seen is not None}
    if any(record.stamps[path] != seen for path, seen in known.items()):
        return False
    hidden = any(then is not None and path not in known for path, then in record.stamps.items())
    return None if hidden else True


def current_build(path: str, program: str, *, certain: bool = False) -> EngineBuild | None:
    """Return the build in a record whose files have not changed.

    Args:
        path: Of the record.
        program: Path of the program that is meant.
        certain: Only if this process can see that; else also where it may not look.

    Returns:
        None: the program was not run for an answer since its last change.
    """
    record = read_record(path)
    if record is None:
        return None
    current = is_current(record, program)
    return record.build if current or (current is None and not certain) else None


class CurrentBuilds:
    """Current builds of engines, for one command: each record is read once.

    A profile whose program has answered for another profile has that build: all ask it the same.

    Args:
        directory: Of the records.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._known: dict[tuple[str, str], EngineBuild | None] = {}
        self._others: dict[str, list[str]] | None = None
        """Paths of the records by program; None: they were not needed yet."""

    def of(self, applied: Applied) -> EngineBuild | None:
        """Return the build of a profile's engine; None: its program was not run for an answer since its files changed."""
        key = applied.name, applied.binary
        if key not in self._known:
            path = f"{self._directory}/{applied.name}.json"
            others = (current_build(other, applied.binary) for other in self._told(applied.binary))
            build = current_build(path, applied.binary)
            self._known[key] = build or next(filter(None, others), None)
        return self._known[key]

    def _told(self, program: str) -> list[str]:
        """Return the paths of the records of a program."""
        if self._others is None:
            self._others = {}
            for path in _records(self._directory):
                if (record := read_record(path)) is not None:
                    self._others.setdefault(record.program, []).append(path)
        return self._others.get(program, [])


def _records(directory: str) -> list[str]:
    try:
        return sorted(f"{directory}/{name}" for name in os.listdir(directory))  # noqa: PTH208
    except OSError:
        return []


def current_builds(catalogue: Catalogue, directory: str) -> dict[str, EngineBuild]:
    """Return the builds of the profiles' engines, as far as they are known, by profile."""
    builds = CurrentBuilds(directory)
    found = {name: builds.of(applied) for name, applied in catalogue.items()}
    return {name: build for name, build in found.items() if build is not None}
