"""Files that survive a power cut: the old text or the new one, never half of either."""

import os
from pathlib import Path
from tempfile import mkstemp

from appliance.domain.errors import StoreError

MAX_BYTES = 1 << 20
"""No file of ours comes near this; a larger one is not ours."""


def write_file(
    path: Path, text: str, *, mode: int = 0o644, like: os.stat_result | None = None
) -> None:
    """Replace `path`: temporary file, fsync, rename, fsync of the directory.

    Args:
        path: Its directory must exist. A symbolic link is replaced, not followed.
        text: The new content.
        mode: Permissions, whatever the umask.
        like: Take owner and permissions from this instead.

    Raises:
        StoreError: it could not be written; what was there still is.
    """
    temporary = ""
    try:
        descriptor, temporary = mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode(errors="surrogateescape"))
            os.fchmod(file.fileno(), mode if like is None else like.st_mode & 0o7777)
            if like is not None and (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), like.st_uid, like.st_gid)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
        sync_directory(path.parent)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def remove_file(path: Path) -> None:
    """Remove `path` durably; fine when it is gone already. Raises `StoreError`."""
    try:
        path.unlink(missing_ok=True)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreError(f"cannot remove {path}: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Make renames and removals in `directory` durable. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_regular(path: Path) -> str | None:
    """The text of a regular file; None for a link, a directory, a device or a huge file.

    Bytes that are not UTF-8 survive a round trip through `write_file`.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
