"""The two files that a boot follows: the committed names, and the hold.

Both are plain text, because a root program that must not fail reads them (launch.boot):

- ``active``: profile names, one a line;
- ``hold``: one line, ``forever`` or the Unix second at which the hold ends.

Written durably (durable_files): without the fsync a power cut can boot the previous model
although the switch said it was done.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from appliance.adapters.durable_files import remove_file, write_file
from appliance.domain.operations import HoldUntil
from appliance.planning.status import parse_committed, parse_hold

_MOST_BYTES: Final = 65536


class FileCommitment:
    """The port `Commitment` on a directory."""

    def __init__(self, directory: Path) -> None:
        self._active = directory / "active"
        self._hold = directory / "hold"

    def committed(self) -> tuple[str, ...]:
        """Names to serve after a boot, sorted. Lines that are no profile name are left out."""
        try:
            return parse_committed(_content(self._active).decode())
        except UnicodeDecodeError:
            return ()

    def hold_until(self) -> HoldUntil:
        """The hold that a boot shall keep. A damaged file holds: it was written to hold."""
        return parse_hold(_content(self._hold).decode(errors="replace"))

    async def commit(self, names: Iterable[str]) -> None:
        """Replace the names. Raises `StoreError`; the old names then still stand."""
        text = "".join(f"{name}\n" for name in sorted(names))
        await asyncio.to_thread(write_file, self._active, text)

    async def set_hold(self, until: HoldUntil) -> None:
        """Replace the hold; None removes it. Raises `StoreError`."""
        if until is None:
            await asyncio.to_thread(remove_file, self._hold)
        else:
            text = until if isinstance(until, str) else f"{until:.0f}"
            await asyncio.to_thread(write_file, self._hold, f"{text}\n")


def _content(path: Path) -> bytes:
    """The beginning of a small file; nothing when there is none."""
    try:
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""
