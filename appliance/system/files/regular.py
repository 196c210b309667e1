"""Small files in places that another user can write, and stamps that tell whether they changed.

A pipe in place of a file must not make its reader wait, nor a device, a link or a huge file lead
it elsewhere. Standard library only, and little of it: the gate and the quick verbs read files too.
"""

import errno
import os
import stat

Path = str | os.PathLike[str]
Stamp = tuple[int, int, int, int]
"""Stamp of a file: inode, times of change and size."""

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UntrustedFileError(Exception):
    """Path without a small regular text file, or with another user's; `str()` says which."""


class OddFileError(OSError):
    """Path of something that is no small regular file.

    `strerror` is a phrase; `errno` is EFBIG for a file that is too large, else EINVAL.
    """


def open_regular(path: Path, *, follow_links: bool = False) -> int:
    """Open a regular file to read it, and return the descriptor.

    Args:
        path: Of the file.
        follow_links: Whether its last part may be a symbolic link.

    Raises:
        OddFileError: it is something else.
        OSError: it is missing, or cannot be opened.
    """
    # Without O_NONBLOCK the open of a pipe would wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | (0 if follow_links else os.O_NOFOLLOW))
    except OSError as error:
        if error.errno == errno.ENXIO or (error.errno == errno.ELOOP and not follow_links):
            mode = os.stat(path, follow_symlinks=follow_links).st_mode  # noqa: PTH116
            raise _odd(mode, path) from error
        raise
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _odd(mode, path)
    return descriptor


def read_small_file(
    path: Path, most_bytes: int, *, follow_links: bool = False, owner: int | None = None
) -> bytes:
    """Return the whole content of a regular file of at most `most_bytes`.

    Args:
        path: Of the file.
        most_bytes: More is an error.
        follow_links: Whether its last part may be a symbolic link.
        owner: The only user, beside root, who may have written it; None: anybody.

    Raises:
        OddFileError: it is something else, larger, or may be another user's.
        OSError: it is missing, or cannot be read.
    """
    descriptor = open_regular(path, follow_links=follow_links)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if owner is not None:
            _check_owner(os.fstat(descriptor), owner, path)
        content = b""
        while len(content) <= most_bytes and (more := file.read(most_bytes + 1 - len(content))):
            content += more
    if len(content) > most_bytes:
        raise OddFileError(errno.EFBIG, f"is larger than {most_bytes} bytes", os.fspath(path))
    return content


def _check_owner(status: os.stat_result, owner: int, path: Path) -> None:
    if status.st_uid not in {0, owner} or status.st_mode & _OTHERS:
        raise OddFileError(errno.EINVAL, f"can be written by others than user {owner}", path)


def read_untrusted_text(path: str, most_bytes: int, *, owner: int | None = None) -> str | None:
    """Return the whole text of an ASCII file that a service user can write; None: no file.

    Args:
        path: Of the file.
        most_bytes: More is an error.
        owner: The only user, beside root, who may have written it; None: anybody.

    Raises:
        UntrustedFileError: it is a link, a pipe, a directory, too large, not text, or forbidden.
    """
    try:
        return read_small_file(path, most_bytes, owner=owner).decode("ascii")
    except FileNotFoundError:
        return None
    except OddFileError as error:
        raise UntrustedFileError(f"{path} {error.strerror}") from error
    except OSError as error:
        raise UntrustedFileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UntrustedFileError(f"{path} is not a text file") from error


def replace_volatile(path: Path, new: Path, text: str, *, mode: int | None = None) -> None:
    """Replace `path` by way of the file `new`; a power cut may lose both.

    Args:
        path: Of the file.
        new: In the same directory. What lies there, from a killed process, is removed.
        text: The new content.
        mode: Permissions, whatever the umask; None: as the umask has them.

    Raises:
        OSError: it could not be written; what was there still is.
    """
    try:  # noqa: SIM105 - contextlib takes 2 ms
        os.unlink(new)  # noqa: PTH108 - pathlib takes 3 ms
    except FileNotFoundError:
        pass
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        if mode is not None:
            os.fchmod(descriptor, mode)
        file.write(text)
    os.replace(new, path)  # noqa: PTH105


def _odd(mode: int, path: Path) -> OddFileError:
    kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "something else")
    return OddFileError(errno.EINVAL, f"is {kind}, not a file", os.fspath(path))


def stamp(path: str | Path) -> Stamp | None:
    """Return the stamp of a file, which a change or replacement alters; None: no access."""
    try:
        seen = os.stat(path)  # noqa: PTH116 - once a second, and pathlib adds nothing
    except OSError:
        return None
    return seen.st_ino, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size


class CachedFile:
    """Content of a small file that is read often; read again only when the file has changed.

    Args:
        path: Of the file.
        most_bytes: A larger file is not read.
    """

    def __init__(self, path: Path, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._read: tuple[Stamp, bytes] | None = None

    def content(self) -> bytes:
        """Return the file's present content. Raises the errors of `read_small_file`."""
        # Before the reading: a file that is replaced meanwhile is read once more.
        seen = stamp(self._path)
        if self._read is not None and self._read[0] == seen:
            return self._read[1]
        content = read_small_file(self._path, self._most_bytes)
        self._read = None if seen is None else (seen, content)
        return content
