"""Durable files: after a power cut a file has the old text or the new one, never a mix."""

import contextlib
import errno
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.system.files.regular import OddFileError, open_regular, read_small_file

MAX_BYTES = 1 << 20
"""Limit far above the size of any file of ours."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SYNCED_AT_ONCE: Final = 16
"""Files that are synced at the same time, which a journaling file system puts in one commit: 200 files of 3 KB on ext4
took 1.1 s one after the other and 0.1 s so."""
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def write_file(
    path: Path, text: str, *, mode: int = 0o644, like: os.stat_result | None = None
) -> None:
    """Replace `path`: temporary file, fsync, rename, fsync of the directory.

    Args:
        path: Its directory must exist. A symbolic link is replaced, not followed; a directory in
            its place is moved aside, under a name that begins with a dot.
        text: The new content.
        mode: Permissions, whatever the umask.
        like: Take owner and permissions from this instead.

    Raises:
        StoreError: it could not be written; what was there still is.
    """
    temporary = _beside(path)
    try:
        _write_new(temporary, text, mode, like)
        _sync(temporary)
        _put(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise _not_written(path, error) from error


def write_files(texts: Mapping[Path, str], *, mode: int = 0o644) -> None:
    """Replace many files, each as `write_file` does; all are on the disk before the first is renamed.

    Args:
        texts: New contents by path.
        mode: Permissions of every file.

    Raises:
        StoreError: one could not be written: none is changed, unless it was the renaming that failed.
    """
    if not texts:
        return
    temporaries = {path: _beside(path) for path in texts}
    path = Path()
    try:
        for path, text in texts.items():
            _write_new(temporaries[path], text, mode, None)
        _sync_all(temporaries.values())
        for path, temporary in temporaries.items():
            _put(temporary, path)
        for directory in dict.fromkeys(path.parent for path in texts):
            sync_directory(directory)
    except OSError as error:
        for temporary in temporaries.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise _not_written(path, error) from error


def write_new_files(texts: Mapping[Path, str], *, mode: int = 0o644) -> None:
    """Write many files where nothing is yet: all of them, or none.

    Args:
        texts: Contents by path.
        mode: Permissions of every file.

    Raises:
        StoreError: one is there already, or could not be written; nothing is left behind.
    """
    temporaries = {path: _beside(path) for path in texts}
    path, linked = Path(), []
    try:
        for path, text in texts.items():
            _write_new(temporaries[path], text, mode, None)
        _sync_all(temporaries.values())
        for path, temporary in temporaries.items():
            path.hardlink_to(temporary)  # fails where anything is, unlike a rename
            linked.append(path)
        for directory in dict.fromkeys(path.parent for path in texts):
            sync_directory(directory)
    except OSError as error:
        for done in linked:
            with contextlib.suppress(OSError):
                done.unlink(missing_ok=True)
        raise _not_written(path, error) from error
    finally:
        for temporary in temporaries.values():
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Return a new name for the text of `path` until it is there."""
    # Not made by the module tempfile, which loads shutil and three compressors: 0.5 MiB in every
    # process that imports this module.
    return path.with_name(f".{path.name}.{_random_suffix()}")


def _write_new(path: Path, text: str, mode: int, like: os.stat_result | None) -> None:
    with os.fdopen(os.open(path, _CREATE, 0o600), "wb") as file:
        file.write(text.encode(errors="surrogateescape"))
        os.fchmod(file.fileno(), mode if like is None else like.st_mode & 0o7777)
        if like is not None and (like.st_uid, like.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(file.fileno(), like.st_uid, like.st_gid)


def _sync(path: Path, kind: int = os.O_NOFOLLOW) -> None:
    """Write a file of ours to the disk, whose permissions may be for reading alone; `kind`: as open(2) takes it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | kind)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_all(paths: Iterable[Path]) -> None:
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - apply alone writes many

    with ThreadPoolExecutor(_SYNCED_AT_ONCE) as threads:
        list(threads.map(_sync, paths))


def reserve_file(path: Path, text: str) -> None:
    """Write `text` beside `path` for `put_reserved`, so that only a rename remains to be done.

    Raises:
        StoreError: there is no room, or the directory takes no files; nothing is kept.
    """
    reserved = _reserved(path)
    try:
        reserved.unlink(missing_ok=True)
        with os.fdopen(os.open(reserved, _CREATE, 0o600), "wb") as file:
            file.write(text.encode())
            os.fchmod(file.fileno(), 0o644)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        release_file(path)
        raise _not_written(path, error) from error


def put_reserved(path: Path, text: str) -> bool:
    """Replace `path` by the text reserved for it; False: the reserved file does not have `text`.

    Another process may have reserved it, and may have died before it was on the disk.
    """
    reserved = _reserved(path)
    try:
        with os.fdopen(open_regular(reserved), "rb") as file:
            if file.read(MAX_BYTES) != text.encode():
                return False
            os.fsync(file.fileno())
        reserved.replace(path)
        sync_directory(path.parent)
    except OSError:
        return False
    return True


def is_reserved(path: Path) -> bool:
    """Tell whether anything was reserved for `path` and not put there."""
    return is_there(_reserved(path))


def is_there(path: Path) -> bool:
    """Tell whether there is anything at `path`, also a link that leads nowhere."""
    return os.path.lexists(path)


def release_file(path: Path) -> None:
    """Remove the file that was reserved for `path`, if any."""
    with contextlib.suppress(OSError):
        _reserved(path).unlink(missing_ok=True)


def _reserved(path: Path) -> Path:
    """Return a fixed name, so that the file of a killed process is found and replaced."""
    return path.with_name(f".{path.name}.reserved")


def _not_written(path: Path, error: OSError) -> StoreError:
    advice = f": make room, see df -h {path.parent}" if error.errno in _NO_ROOM else ""
    return StoreError(f"cannot write {path}: {error.strerror}{advice}")


def _put(temporary: Path, path: Path) -> None:
    """Rename a file to `path`, whatever `path` is."""
    try:
        temporary.replace(path)
    except IsADirectoryError:
        aside = path.with_name(f".{path.name}.directory-{_random_suffix()}")
        aside.mkdir(0o700)
        path.replace(aside)
        temporary.replace(path)


def _random_suffix() -> str:
    return os.urandom(6).hex()


def remove_file(path: Path) -> None:
    """Remove `path` durably, if it exists. Raises `StoreError`."""
    remove_files([path])


def remove_files(paths: Iterable[Path]) -> None:
    """Remove many files durably, those that exist. Raises `StoreError`."""
    path, directories = Path(), dict[Path, None]()
    try:
        for path in paths:
            path.unlink(missing_ok=True)
            directories[path.parent] = None
        for path in directories:
            sync_directory(path)
    except OSError as error:
        raise StoreError(f"cannot remove {path}: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Make renames and removals in `directory` durable. Raises OSError."""
    _sync(directory, os.O_DIRECTORY)


def read_regular(path: Path) -> str | None:
    """Return the text of a regular file; None: it is missing, a link, a directory, a device or huge.

    Bytes that are not UTF-8 survive a round trip through `write_file`.

    Raises:
        StoreError: it cannot be read.
    """
    try:
        return read_small_file(path, MAX_BYTES).decode(errors="surrogateescape")
    except (FileNotFoundError, OddFileError):
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
