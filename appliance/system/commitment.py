"""Files that a boot follows: the committed names, and the hold.

Both are plain text, because a root program that must not fail reads them (launch.boot):

- ``active``: profile names, one a line;
- ``hold``: one line, ``forever`` or the Unix second at which the hold ends.

Both are written durably (files.durable): without the fsync a power cut can boot the previous model
although the switch was reported as done. Before an operation stops anything, its files are written
under other names, so that a full disk refuses the operation in time.
"""

import asyncio
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.model.names import is_profile_name
from appliance.model.operations import FOREVER, HoldUntil
from appliance.switch.goals import Writes
from appliance.system.files.durable import (
    is_reserved,
    is_there,
    put_reserved,
    release_file,
    remove_file,
    reserve_file,
    write_file,
)
from appliance.system.files.regular import CachedFile, OddFileError

_MOST_BYTES: Final = 65536


class FileCommitment:
    """Port `Commitment`, on a directory."""

    def __init__(self, directory: Path) -> None:
        self._active = directory / "active"
        self._hold = directory / "hold"
        # A switch asks 34 times. People may edit or remove the files: their stamps tell.
        self._names = CachedFile(self._active, _MOST_BYTES)
        self._until = CachedFile(self._hold, _MOST_BYTES)

    def committed(self) -> tuple[str, ...]:
        """Return the names to serve after a boot, sorted; lines that are no profile name are left out."""
        try:
            return parse_committed(self._names.content().decode())
        except (OSError, UnicodeDecodeError):
            return ()

    def hold_until(self) -> HoldUntil:
        """Return the hold that a boot keeps. A damaged file is a hold without an end."""
        try:
            return parse_hold(self._until.content().decode(errors="replace"))
        except OddFileError:
            return FOREVER
        except OSError:
            return None

    async def reserve(self, writes: Writes) -> None:
        """Write beside the files the texts that `writes` will put in place. Raises `StoreError`."""
        await asyncio.to_thread(self._reserve, writes)

    async def release(self) -> None:
        """Remove reserved files that were not used; without such files no thread is started."""
        if is_reserved(self._active) or is_reserved(self._hold):
            await asyncio.to_thread(self._release)

    async def commit(self, names: Iterable[str]) -> None:
        """Replace the names. Raises `StoreError`; the old names then still stand."""
        await asyncio.to_thread(_put, self._active, _names_text(names))

    async def set_hold(self, until: HoldUntil) -> None:
        """Replace the hold; None removes it. Raises `StoreError`."""
        if until is not None:
            await asyncio.to_thread(_put, self._hold, _hold_text(until))
        elif is_there(self._hold):  # else no thread is started, and no directory synced (3.7 ms)
            await asyncio.to_thread(remove_file, self._hold)

    def _reserve(self, writes: Writes) -> None:
        try:
            if writes.names is not None:
                reserve_file(self._active, _names_text(writes.names))
            if writes.sets_hold and (writes.hold is not None or self._hold.exists()):
                # Also for a removal: a disk that has become read-only takes neither.
                reserve_file(self._hold, "" if writes.hold is None else _hold_text(writes.hold))
        except StoreError:
            self._release()
            raise

    def _release(self) -> None:
        release_file(self._active)
        release_file(self._hold)


def parse_committed(text: str) -> tuple[str, ...]:
    """Return the names in the file of committed profiles, sorted; other lines are ignored."""
    lines = {line.strip() for line in text.splitlines()}
    return tuple(sorted(line for line in lines if is_profile_name(line)))


def parse_hold(text: str) -> HoldUntil:
    """Parse the hold file: `FOREVER`, or unix seconds; None for an empty file.

    A damaged file holds, as at boot: it was written to hold.
    """
    lines = text.strip().splitlines()
    if not lines:
        return None
    try:
        until = float(lines[0])
    except ValueError:
        return FOREVER
    return until if math.isfinite(until) else FOREVER


def _put(path: Path, text: str) -> None:
    """Replace a file, by the reserved one where that has the same text. Raises `StoreError`."""
    if not put_reserved(path, text):
        write_file(path, text)


def _names_text(names: Iterable[str]) -> str:
    return "".join(f"{name}\n" for name in sorted(names))


def _hold_text(until: float | str) -> str:
    return f"{until}\n" if isinstance(until, str) else f"{until:.0f}\n"
