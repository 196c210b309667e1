"""What `appliance apply` compiled, read by those who act on it: JSON with a format and a version.

Standard library only: `appliance status` and the gateway read such files at every start.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from appliance.adapters.regular_files import read_small_file
from appliance.domain.errors import StoreError

T = TypeVar("T")


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
