"""Installed unit files, the polkit rule, apply's copies of them, and the lock around it all."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from appliance.adapters.durable_files import read_regular, remove_file, write_file
from appliance.adapters.manifest import MANIFEST, encode, read_manifest
from appliance.domain.errors import ApplianceError, StoreError
from appliance.domain.profile import Catalogue
from appliance.planning.drift import DROP_IN_SUFFIX
from appliance.planning.polkit import RULE_FILE

_PATTERN: Final = "appliance-backend-*.service"


class ApplyBusyError(ApplianceError):
    """Another apply is running: wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitStore:
    """The places that apply writes to. Only root may."""

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
        """Backend units, their drop-ins and the polkit rule by name; None: no regular file."""
        found = {p.name: read_regular(p) for p in sorted(self.unit_dir.glob(_PATTERN))}
        for path in sorted(self.unit_dir.glob(f"{_PATTERN}{DROP_IN_SUFFIX}/*.conf")):
            found[f"{path.parent.name}/{path.name}"] = read_regular(path)
        if self.rule.exists() or self.rule.is_symlink():
            found[RULE_FILE] = read_regular(self.rule)
        return found

    def last_written(self) -> dict[str, str]:
        """Apply's copies of what it wrote, by name."""
        copies = self.applied_dir / "units"
        texts = {p.name: read_regular(p) for p in sorted(copies.glob("*")) if p.name[0] != "."}
        return {name: text for name, text in texts.items() if text is not None}

    def write(self, file: str, text: str) -> None:
        """Install `text` as `file`, and keep a copy to compare with later. Raises `StoreError`."""
        copies = self.applied_dir / "units"
        target = self._path(file)
        for directory in (target.parent, copies):
            _make(directory)
        write_file(target, text)
        write_file(copies / file, text)

    def remove(self, file: str) -> None:
        """Remove `file`, its copy, and the directory of a last drop-in. Raises `StoreError`."""
        path = self._path(file)
        remove_file(path)
        if "/" in file:
            if not any(path.parent.iterdir()):
                path.parent.rmdir()
            return
        copy = self.applied_dir / "units" / file
        if copy.exists():
            remove_file(copy)

    def catalogue(self) -> Catalogue:
        """The profiles as last applied. Raises `StoreError` for a damaged manifest."""
        return read_manifest(self.applied_dir)

    def write_manifest(self, catalogue: Catalogue, version: str) -> bool:
        """Replace the manifest; False: it already said so. Raises `StoreError`."""
        path = self.applied_dir / MANIFEST
        text = encode(catalogue, version)
        if path.exists() and read_regular(path) == text:
            return False
        write_file(path, text)
        return True

    def _path(self, file: str) -> Path:
        return self.rule if file == RULE_FILE else self.unit_dir / file


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
