"""The kernel lock per claimed device: at most one backend can hold it.

A lease is an flock(2) on a file that root created and the engine's user may only read. It is
taken by the wrapper, survives its exec into the engine, is inherited by the engine's workers
and dropped by the kernel with the last of them, however they end.

Between the gate's look and the wrapper's lock another process may have had the device, if two gates
looked at the same moment. So a gate that admits writes its profile into the files of its claim, and
then looks at the locks once more. A wrapper that finds a later admission there has lost its own.
"""

from __future__ import annotations

import fcntl
import os
import time

from appliance.domain.names import BACKEND_GROUP, is_lease_name
from appliance.launch.program import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o755
_TAKE_TIMEOUT_S = 0.2
"""A gate that looks at a lease has it for microseconds. Whoever has it for longer owned the device since
our own gate looked, and its memory may not be back."""
_TAKE_PAUSE_S = 0.01
_MARK_BYTES = 64
"""More than ``exclusive``, a blank and a profile's name; written and read in one call."""


class Lease:
    """One lock that a backend takes: the device's name, how it is taken, and its file."""

    __slots__ = ("exclusive", "name", "path")

    def __init__(self, name: str, *, exclusive: bool, directory: str) -> None:
        self.name = name
        self.exclusive = exclusive
        self.path = f"{directory}/{name}"

    def create(self) -> None:
        """Make sure that the file is there, for root and the engines' group. Raises OSError."""
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
        """Take the lock; None: another process would not let go. Raises OSError."""
        deadline_s = time.monotonic() + _TAKE_TIMEOUT_S
        while (descriptor := self.try_lock()) is None:
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(_TAKE_PAUSE_S)
        return descriptor

    def mark(self, profile: str) -> None:
        """Write that `profile` is admitted, in place of who was before. Raises OSError."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, self._marked(profile), 0)
        finally:
            os.close(descriptor)

    def is_lost(self, descriptor: int, profile: str) -> bool:
        """Whether a profile that excludes `profile` was admitted after it.

        Nothing is written where no gate has ever run.

        Args:
            descriptor: It holds the lock.
            profile: Who has been admitted, too.
        """
        found = os.pread(descriptor, _MARK_BYTES, 0)
        if self.exclusive:
            return found not in {b"", self._marked(profile)}
        return found.startswith(b"exclusive ")

    def _marked(self, profile: str) -> bytes:
        how = "exclusive" if self.exclusive else "shared"
        return f"{how} {profile}".ljust(_MARK_BYTES - 1).encode() + b"\n"

    def is_free(self) -> bool:
        """Whether the lock could be taken now; takes and drops it. Raises OSError."""
        descriptor = self.try_lock()
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def parse(words: Iterable[str], directory: str) -> tuple[Lease, ...]:
    """Leases written as ``gpu-all:exclusive`` or ``gpu-0:shared``. Raises `UsageError`."""
    leases: list[Lease] = []
    for word in words:
        name, _, how = word.partition(":")
        if not is_lease_name(name) or how not in {"exclusive", "shared"}:
            raise UsageError(f"not a lease: {word}")
        leases.append(Lease(name, exclusive=how == "exclusive", directory=directory))
    return tuple(leases)


def _group_id() -> int | None:
    """The engines' group; None: not root, or no such group (a machine that only runs tests)."""
    if os.geteuid() != 0:
        return None
    import grp  # noqa: PLC0415

    try:
        return grp.getgrnam(BACKEND_GROUP).gr_gid
    except KeyError:
        return None
