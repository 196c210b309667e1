"""The two files that a boot follows: the committed names, and the hold.

Both are plain text, because a root program that must not fail reads them (launch.boot):

- ``active``: profile names, one a line;
- ``hold``: one line, ``forever`` or the Unix second at which the hold ends.

Written as: temporary file, fsync, rename, fsync of the directory. Without the fsync a power
cut can boot the previous model although the switch said it was done.
"""

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from appliance.domain.errors import StoreError
from appliance.domain.names import is_profile_name
from appliance.domain.operations import FOREVER, HoldUntil


def write_durably(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Replace a file so that a power cut leaves the old or the new text. Raises OSError."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make renames and removals in a directory durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileCommitment:
    """The port `Commitment` on a directory."""

    def __init__(self, directory: Path) -> None:
        self._active = directory / "active"
        self._hold = directory / "hold"

    def committed(self) -> tuple[str, ...]:
        """Names to serve after a boot, sorted. Lines that are no profile name are left out."""
        return tuple(sorted({n for n in _lines(self._active) if is_profile_name(n)}))

    def hold_until(self) -> HoldUntil:
        """The hold that a boot shall keep. A damaged file holds: it was written to hold."""
        lines = _lines(self._hold)
        if not lines:
            return None
        try:
            return float(lines[0])
        except ValueError:
            return FOREVER

    async def commit(self, names: Iterable[str]) -> None:
        """Replace the names. Raises `StoreError`; the old names then still stand."""
        await self._write(self._active, "".join(f"{name}\n" for name in sorted(names)))

    async def set_hold(self, until: HoldUntil) -> None:
        """Replace the hold; None removes it. Raises `StoreError`."""
        if until is None:
            await self._remove(self._hold)
        else:
            text = until if isinstance(until, str) else f"{until:.0f}"
            await self._write(self._hold, f"{text}\n")

    @staticmethod
    async def _write(path: Path, text: str) -> None:
        try:
            await asyncio.to_thread(write_durably, path, text)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error

    @staticmethod
    async def _remove(path: Path) -> None:
        def remove() -> None:
            if path.exists():
                path.unlink()
                sync_directory(path.parent)

        try:
            await asyncio.to_thread(remove)
        except OSError as error:
            raise StoreError(f"cannot remove {path}: {error.strerror}") from error


def _lines(path: Path) -> list[str]:
    """The lines of a small text file; none when there is no file or it is not text."""
    try:
        text = path.read_bytes()[:65536].decode()
    except (OSError, UnicodeDecodeError):
        return []
    return [line.strip() for line in text.splitlines() if line.strip()]
