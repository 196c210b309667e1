"""Leases: kernel locks for claimed devices, so that at most one backend can hold each.

A lease is an flock(2) on a file that root created and the engine's user may only read. The
wrapper takes the lease before its exec; the engine's workers inherit it, and the kernel drops it
with the last of them, however they end.

Between a gate's check and its wrapper's lock another backend may have had the device, if two gates
checked at the same moment. So a gate that admits writes its profile into the files of its claim,
and then checks the locks once more. A wrapper that finds a later admission there has lost its own.
"""

from __future__ import annotations

import fcntl
import os
import time

from appliance.launch.program import UsageError
from appliance.model.names import BACKEND_GROUP, is_lease_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o755
_TAKE_TIMEOUT_S = 0.2
"""Time to take a lease. A gate that checks a lease holds it for microseconds. A process that holds
it for longer has taken the device since our own gate checked, and its memory may not be back."""
_TAKE_PAUSE_S = 0.01
_MARK_BYTES = 64
"""Bytes of a mark: more than ``exclusive``, a blank and a profile's name; written and read in one
call."""


class LeaseLock:
    """Lock of one device: its name, whether it is exclusive, and its file."""

    __slots__ = ("exclusive", "name", "path")

    def __init__(self, name: str, *, exclusive: bool, directory: str) -> None:
        self.name = name
        self.exclusive = exclusive
        self.path = f"{directory}/{name}"

    def create(self) -> None:
        """Create the file unless it exists, for root and the engines' group. Raises OSError."""
        os.makedirs(os.path.dirname(self.path), mode=_DIRECTORY_MODE, exist_ok=True)
        flags = os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, _FILE_MODE)
        except FileExistsError:
            return
        try:
            if (group := _group_id()) is not None:
                os.fchown(descriptor, 0, group)
            os.fchmod(descriptor, _FILE_MODE)  # whatever the umask
        finally:
            os.close(descriptor)

    def try_lock(self) -> int | None:
        """Take the lock without waiting. Raises OSError when the file cannot be opened.

        Returns:
            The descriptor that holds it, closed by an exec; None: another process has it.
        """
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        how = fcntl.LOCK_EX if self.exclusive else fcntl.LOCK_SH
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def take(self) -> int | None:
        """Take the lock; None: another process still holds it. Raises OSError."""
        deadline_s = time.monotonic() + _TAKE_TIMEOUT_S
        while (descriptor := self.try_lock()) is None:
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(_TAKE_PAUSE_S)
        return descriptor

    def mark(self, profile: str) -> None:
        """Record `profile` as admitted, in place of the last one. Raises OSError."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, self._marked(profile), 0)
        finally:
            os.close(descriptor)

    def is_lost(self, descriptor: int, profile: str) -> bool:
        """Tell whether a profile that excludes `profile` was admitted after it.

        Nothing is written where no gate has ever run.

        Args:
            descriptor: Of the file, with the lock.
            profile: Name of a profile that was admitted.
        """
        found = os.pread(descriptor, _MARK_BYTES, 0)
        if self.exclusive:
            return found not in {b"", self._marked(profile)}
        return found.startswith(b"exclusive ")

    def _marked(self, profile: str) -> bytes:
        how = "exclusive" if self.exclusive else "shared"
        return f"{how} {profile}".ljust(_MARK_BYTES - 1).encode() + b"\n"

    def is_free(self) -> bool:
        """Tell whether the lock could be taken now; takes and releases it. Raises OSError."""
        descriptor = self.try_lock()
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def parse(words: Iterable[str], directory: str) -> tuple[LeaseLock, ...]:
    """Return leases written as ``gpu-all:exclusive`` or ``gpu-0:shared``. Raises `UsageError`."""
    leases: list[LeaseLock] = []
    for word in words:
        name, _, how = word.partition(":")
        if not is_lease_name(name) or how not in {"exclusive", "shared"}:
            raise UsageError(f"not a lease: {word}")
        leases.append(LeaseLock(name, exclusive=how == "exclusive", directory=directory))
    return tuple(leases)


def _group_id() -> int | None:
    """Return the engines' group; None: not root, or no such group (a machine for tests only)."""
    if os.geteuid() != 0:
        return None
    import grp  # noqa: PLC0415

    try:
        return grp.getgrnam(BACKEND_GROUP).gr_gid
    except KeyError:
        return None
