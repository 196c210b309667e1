"""What `appliance apply` compiled, read by those who act on it: JSON with a format and a version.

Apply writes each file twice. The copy is read where the file itself is damaged or missing, so that
what was applied last holds until the next apply writes both anew.

Standard library only: `appliance status` and the gateway read such files at every start.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from appliance.adapters.files.regular import read_small_file
from appliance.domain.errors import StoreError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Generic[T]):
    """What was applied last."""

    content: T
    damage: str | None = None
    """Why it was read from the copy, as a sentence for root; None: it was not."""


def copy_of(path: Path) -> Path:
    """Return where the copy of an applied file lies."""
    return path.with_name(f"{path.name}.copy")


def recover(
    path: Path, most_bytes: int, decode: Callable[[bytes, str], T], nothing: T
) -> Recovered[T]:
    """Return what a file says, or what its copy says.

    Args:
        path: Of the file.
        most_bytes: Of it that are read.
        decode: Makes its content of its bytes and of what to call it; may raise `StoreError`.
        nothing: Its content while nothing was ever applied.

    Raises:
        StoreError: both are damaged; the error tells of the file.
    """
    copy = copy_of(path)
    try:
        content = read_applied(path, most_bytes)
        if content is not None:
            return Recovered(content=decode(content, str(path)))
        if not copy.exists():
            return Recovered(content=nothing)
        damage = StoreError(f"{path} is missing: sudo appliance apply")
    except StoreError as error:
        damage = error
    try:
        content = read_applied(copy, most_bytes)
        if content is not None:
            return Recovered(
                content=decode(content, str(copy)), damage=f"{damage}; its copy is used"
            )
    except StoreError:
        pass  # what is wrong with the file itself is what has to be mended
    raise damage


def read_applied(path: Path, most_bytes: int) -> bytes | None:
    """A file's content; None: nothing was ever applied.

    Raises:
        StoreError: it cannot be read, is no file or is larger than `most_bytes`.
    """
    try:
        return read_small_file(path, most_bytes)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error


def decoded(content: bytes | str, where: str, newest: int, build: Callable[[Any], T]) -> T:
    """What `build` makes of a file's document.

    Args:
        content: Of the file.
        where: What to call it.
        newest: The newest format that is known.
        build: May raise ValueError, TypeError, KeyError or AttributeError: it is damaged.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    try:
        document = json.loads(content)
        if document["format"] > newest:
            raise StoreError(
                f"{where} was written by appliance {document['version']}, which is newer:"
                " sudo appliance apply"
            )
        return build(document)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"{where} is damaged ({error}): sudo appliance apply") from error
