"""gateway.json: what `appliance apply` compiled for the gateway, beside the manifest.

Standard library only: the gateway reads it at every start.
"""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.model.gateway import Configuration
from appliance.system.applied.documents import Recovered, copy_of, decoded, recover
from appliance.system.files.regular import Stamp, stamp
from appliance.wire.typed_json import from_json

GATEWAY_FILE: Final = "gateway.json"
_FORMAT: Final = 1
_MAX_BYTES: Final = 1 << 20


def recover_configuration(directory: Path) -> Recovered[Configuration]:
    """Return the configuration that was applied last; the defaults when nothing ever was.

    Raises:
        StoreError: the file and its copy cannot be read, are damaged, or were written by a newer
            release.
    """
    return recover(directory / GATEWAY_FILE, _MAX_BYTES, decode, Configuration())


class DamageWatch:
    """Watch on the file and its copy, for frequent callers; reads only when a file has changed.

    Args:
        directory: Where apply writes them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: tuple[tuple[Stamp | None, Stamp | None], str | None] | None = None

    def damage(self) -> str | None:
        """Return what root should know about the two files; None: nothing."""
        path = self._directory / GATEWAY_FILE
        seen = stamp(path), stamp(copy_of(path))
        if self._known is None or self._known[0] != seen:
            self._known = seen, _damage(self._directory)
        return self._known[1]


def _damage(directory: Path) -> str | None:
    try:
        return recover_configuration(directory).damage
    except StoreError as error:
        return str(error)


def decode(content: bytes | str, where: str = GATEWAY_FILE) -> Configuration:
    """Return the configuration in a file's text; keys that it lacks have their defaults.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    return decoded(content, where, _FORMAT, partial(from_json, Configuration))


def encode(configuration: Configuration, version: str) -> str:
    """Return the file's text: equal configurations give equal texts."""
    document = {"format": _FORMAT, "version": version, **asdict(configuration)}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
