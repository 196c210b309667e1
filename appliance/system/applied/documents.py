"""Files that `appliance apply` compiled: JSON with a format and a version, each with a copy.

Apply writes each file twice. The copy is read where the file itself is damaged or missing, so that
what was applied last holds until the next apply writes both anew.

Standard library only: `appliance status` and the gateway read such files at every start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from appliance.model.errors import StoreError
from appliance.model.json_reader import decode_json
from appliance.system.files.regular import read_small_file

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Generic[T]):
    """Content that was applied last, and the damage of its file."""

    content: T
    damage: str | None = None
    """Sentence for root that says why the copy was read; None: the file itself was read."""


def copy_of(path: Path) -> Path:
    """Return the path of the copy of an applied file."""
    return path.with_name(f"{path.name}.copy")


def recover(
    path: Path, most_bytes: int, decode: Callable[[bytes, str], T], nothing: T
) -> Recovered[T]:
    """Return the content of a file, or else of its copy.

    Args:
        path: Of the file.
        most_bytes: A larger file is damaged.
        decode: Decodes bytes of the file, given its name for errors; may raise `StoreError`.
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
        pass  # Report the damage of the file itself, which root has to repair.
    raise damage


def read_applied(path: Path, most_bytes: int) -> bytes | None:
    """Return a file's content; None: nothing was ever applied.

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
    """Return what `build` makes of the document in a file.

    Args:
        content: Of the file.
        where: Name of the file for errors.
        newest: The newest format that is known.
        build: Builds the content; ValueError, TypeError, KeyError or AttributeError mean damage.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    try:
        document = decode_json(content)
        if document["format"] > newest:
            raise StoreError(
                f"{where} was written by appliance {document['version']}, which is newer:"
                " sudo appliance apply"
            )
        return build(document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreError(f"{where} is damaged ({error}): sudo appliance apply") from error
