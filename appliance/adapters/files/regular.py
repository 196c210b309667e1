"""Small files that another user may have put something else in the place of.

A pipe must not make its reader wait, nor a device, a link or a huge file lead it elsewhere.
Standard library only, and little of it: the quick verbs read files too.
"""

import errno
import os
import stat

Path = str | os.PathLike[str]

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class OddFileError(OSError):
    """There is something, but no small regular file.

    `strerror` is a phrase; `errno` is EFBIG for a file that is too large, else EINVAL.
    """


def open_regular(path: Path, *, follow_links: bool = False) -> int:
    """Open a regular file to read it; the descriptor.

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


def read_small_file(path: Path, most_bytes: int, *, follow_links: bool = False) -> bytes:
    """The whole content of a regular file of at most `most_bytes`.

    Raises:
        OddFileError: it is something else, or larger.
        OSError: it is missing, or cannot be read.
    """
    descriptor = open_regular(path, follow_links=follow_links)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        content = b""
        while len(content) <= most_bytes and (more := file.read(most_bytes + 1 - len(content))):
            content += more
    if len(content) > most_bytes:
        raise OddFileError(errno.EFBIG, f"is larger than {most_bytes} bytes", os.fspath(path))
    return content


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
