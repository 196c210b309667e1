"""Files of units: those of systemd's load path, read without systemd, and those that apply writes.

Where systemd looks for them: systemd.unit(5), unit file load path. What apply writes is the units of profiles, the
polkit rule, its own copies of them and the manifest, under apply's lock.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.model.errors import ApplianceError, StoreError
from appliance.model.gateway import Configuration
from appliance.model.names import build_unit_of, profile_of_build
from appliance.model.paths import BUILDS
from appliance.model.profile import Catalogue
from appliance.switch.units.daemon_drop_ins import DAEMON_FILES, RULE_FILE
from appliance.switch.units.drift import DROP_IN_SUFFIX
from appliance.system.applied.manifest import (
    GATEWAY_FILE,
    MANIFEST,
    Recovered,
    copy_of,
    encode_configuration,
    encode_manifest,
    recover_configuration,
    recover_manifest,
)
from appliance.system.files.durable import (
    read_regular,
    remove_files,
    write_file,
    write_files,
)
from appliance.system.files.regular import read_small_file

DIRECTORIES: Final = (
    Path("/etc/systemd/system"),
    Path("/run/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
    Path("/lib/systemd/system"),
)
"""Directories of system units; the first that has a unit counts."""
_GENERATED: Final = tuple(
    Path(f"/run/systemd/{name}") for name in ("generator", "generator.early", "generator.late")
)
_WITH_FILES: Final = (".path", ".service", ".socket", ".target", ".timer")
"""Kinds of units that always have a file; others come from the kernel, a mount table or other units."""
_MOST_BYTES: Final = 256 << 10
_MOST_DROP_INS: Final = 64


def unit_file_text(name: str, directories: Sequence[Path] = DIRECTORIES) -> str | None:
    """Return the text of a unit, its drop-ins after it; None: there is no such unit.

    Args:
        name: Name with its suffix, without a directory; of an instance also that of its template.
        directories: Where to look.

    Raises:
        StoreError: a file cannot be read.
    """
    template = _template_of(name)
    for candidate in filter(None, (name, template)):
        for directory in directories:
            text = _text(directory / candidate)
            if text is not None:
                drop_ins = (_text(path) for path in _drop_ins(candidate, directories))
                return "\n".join([text, *filter(None, drop_ins)])
    return None


def lacks_file(name: str, directories: Sequence[Path] = (*DIRECTORIES, *_GENERATED)) -> bool:
    """Tell whether no unit of this name can be there; False also where there is no systemd at all."""
    if not name.endswith(_WITH_FILES) or not any(map(Path.is_dir, directories)):
        return False
    names = [candidate for candidate in (name, _template_of(name)) if candidate]
    return not any(os.path.lexists(path / one) for path in directories for one in names)


def _template_of(name: str) -> str:
    """Return ``vllm@.service`` of ``vllm@qwen.service``; empty: it is no instance."""
    stem, at, rest = name.partition("@")
    suffix = rest.rpartition(".")[2]
    return f"{stem}@.{suffix}" if at else ""


def _drop_ins(name: str, directories: Sequence[Path]) -> Iterator[Path]:
    """Yield drop-ins in systemd's order: by their names, the first directory's of each name."""
    found: dict[str, Path] = {}
    for directory in directories:
        for path in (directory / f"{name}.d").glob("*.conf"):
            found.setdefault(path.name, path)
    for _, path in sorted(found.items())[:_MOST_DROP_INS]:
        yield path


def _text(path: Path) -> str | None:
    try:
        return read_small_file(path, _MOST_BYTES, follow_links=True).decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


# --- files that apply writes ---------------------------------------------------------

_PATTERN: Final = "appliance-backend-*.service"
_BUILDS: Final = build_unit_of("*")
_SLASH: Final = "@@"
"""Character in place of a slash in a copy's name; no unit's name contains it."""


class ApplyBusyError(ApplianceError):
    """Refusal because another apply is running."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStore:
    """Store of the files that apply writes; only root may write them."""

    unit_dir: Path
    rule: Path
    applied_dir: Path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that keeps two applies apart.

        Raises:
            ApplyBusyError: another process holds it.
            StoreError: the directory cannot be made or opened.
        """
        try:
            self.applied_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self.applied_dir / "lock", flags, 0o600)
        except OSError as error:
            raise StoreError(f"cannot write {self.applied_dir}: {error.strerror}") from error
        try:
            _lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def installed(self) -> dict[str, str | None]:
        """Return every file that apply may have written, by name; None: no regular file.

        Drop-ins of backends are included, of any author.
        """
        found = {p.name: read_regular(p) for p in sorted(self.unit_dir.glob(_PATTERN))}
        for path in sorted(self.unit_dir.glob(f"{_PATTERN}{DROP_IN_SUFFIX}/*.conf")):
            found[f"{path.parent.name}/{path.name}"] = read_regular(path)
        for file in (*sorted(DAEMON_FILES), RULE_FILE):
            path = self._path(file)
            if path.exists() or path.is_symlink():
                found[file] = read_regular(path)
        return found

    def last_written(self) -> dict[str, str]:
        """Return apply's copies of the files that it wrote, by name."""
        copies = self.applied_dir / "units"
        texts = {p.name: read_regular(p) for p in sorted(copies.glob("*")) if p.name[0] != "."}
        return {name.replace(_SLASH, "/"): t for name, t in texts.items() if t is not None}

    def write(self, texts: Mapping[str, str]) -> None:
        """Install texts by file, and keep copies to compare with later. Raises `StoreError`.

        The copies follow when every file is there: a file that differs from its copy is either new, or was
        edited by hand.
        """
        for place in (self._path, self._copy):
            placed = {place(file): text for file, text in texts.items()}
            for directory in dict.fromkeys(path.parent for path in placed):
                _make(directory)
            write_files(placed)

    def remove(self, files: Sequence[str]) -> None:
        """Remove files, their copies, and the directories of last drop-ins. Raises `StoreError`."""
        remove_files([self._path(file) for file in files])
        for directory in {self._path(file).parent for file in files if "/" in file}:
            if not any(directory.iterdir()):
                directory.rmdir()
        remove_files([copy for file in files if (copy := self._copy(file)).exists()])

    def replace_build_units(self, texts: Mapping[str, str]) -> bool:
        """Install the units that ask engines, and no others; returns whether one changed.

        A person's edit of one is not kept: the unit follows that of the backend. Records of profiles
        that are gone go with their units.

        Args:
            texts: Text by file name.

        Raises:
            StoreError: a file cannot be written or removed.
        """
        present = {p.name: read_regular(p) for p in self.unit_dir.glob(_BUILDS)}
        changed = {
            self.unit_dir / file: text
            for file, text in texts.items()
            if _unnamed(present.get(file) or "") != _unnamed(text)
        }
        gone = sorted(present.keys() - texts.keys())
        records = self.applied_dir / BUILDS
        _make(records)
        write_files(changed)
        remove_files([self.unit_dir / file for file in gone])
        asked = {profile_of_build(file) for file in texts}
        remove_files([p for p in records.glob("*.json") if p.stem not in asked])
        return bool(changed or gone)

    def catalogue(self) -> Recovered[Catalogue]:
        """Return the profiles as last applied. Raises `StoreError` for a damaged manifest."""
        return recover_manifest(self.applied_dir)

    def configuration(self) -> Recovered[Configuration]:
        """Return the gateway's configuration as last applied. Raises `StoreError` for a damaged file."""
        return recover_configuration(self.applied_dir)

    def write_configuration(self, configuration: Configuration, version: str) -> None:
        """Replace the gateway's configuration. Raises `StoreError`."""
        _write_twice(self.applied_dir / GATEWAY_FILE, encode_configuration(configuration, version))

    def write_manifest(self, catalogue: Catalogue, version: str) -> bool:
        """Replace the manifest; False: it was the same. Raises `StoreError`."""
        return _write_twice(self.applied_dir / MANIFEST, encode_manifest(catalogue, version))

    def _copy(self, file: str) -> Path:
        return self.applied_dir / "units" / file.replace("/", _SLASH)

    def _path(self, file: str) -> Path:
        return self.rule if file == RULE_FILE else self.unit_dir / file


def _unnamed(text: str) -> str:
    """Return a text without its first line, which names the release."""
    return text.partition("\n")[2]


def _write_twice(path: Path, text: str) -> bool:
    """Write a file and its copy where they differ; returns whether the file did."""
    changed = read_regular(path) != text
    # The file is written first: between the two writes the copy has what was applied last.
    for target in (path, copy_of(path)):
        if read_regular(target) != text:
            write_file(target, text)
    return changed


def _make(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {directory}: {error.strerror}") from error


def _lock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ApplyBusyError("another appliance apply is running: try again soon") from error
