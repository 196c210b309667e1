"""Small text files that a service user can write, read by a program of root's.

Nothing in them is trusted, and neither is what they are: a link leads nowhere, a pipe makes
nobody wait, a huge file fills no memory.
"""

from __future__ import annotations

import errno
import os
import stat

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Unreadable(Exception):  # noqa: N818
    """There is something, but no small regular text file; `str()` says what."""


def read_text(path: str, most_bytes: int, *, owner: int | None = None) -> str | None:
    """The whole text of an ASCII file; None: there is none.

    Args:
        path: Of the file.
        most_bytes: It may have.
        owner: The only user, beside root, who may have written it; None: anybody.

    Raises:
        Unreadable: it is a link, a pipe, a directory, too large, not text, or forbidden.
    """
    # Without O_NONBLOCK the open of a FIFO would wait for a writer, and a boot with it.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise Unreadable(f"{path}: {reason}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"{path}: not a regular file")
        if owner is not None and (status.st_uid not in {0, owner} or status.st_mode & _OTHERS):
            raise Unreadable(f"{path}: others than user {owner} can write it")
        content = os.read(descriptor, most_bytes + 1)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > most_bytes:
        raise Unreadable(f"{path}: larger than {most_bytes} bytes")
    try:
        return content.decode("ascii")
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path}: not a text file") from error
