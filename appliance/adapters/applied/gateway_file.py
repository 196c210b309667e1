"""gateway.json: what `appliance apply` compiled for the gateway, beside the manifest.

Standard library only: the gateway reads it at every start.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from appliance.adapters.applied.documents import Recovered, copy_of, decoded, recover
from appliance.adapters.files.regular import Stamp, stamp
from appliance.domain.errors import StoreError
from appliance.domain.gateway import Configuration, Limits

GATEWAY_FILE: Final = "gateway.json"
_FORMAT: Final = 1
_MAX_BYTES: Final = 1 << 20
_LISTS: Final = frozenset({"addresses", "interfaces", "allow_paths", "names", "origins"})


def recover_configuration(directory: Path) -> Recovered[Configuration]:
    """Return the configuration that was applied last; the defaults when nothing ever was.

    Raises:
        StoreError: the file and its copy cannot be read, are damaged, or were written by a newer
            release.
    """
    return recover(directory / GATEWAY_FILE, _MAX_BYTES, decode, Configuration())


class DamageWatch:
    """Watch on the file and its copy, for frequent callers: it reads them only when they have changed.

    Args:
        directory: Where apply writes them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: tuple[tuple[Stamp | None, Stamp | None], str | None] | None = None

    def damage(self) -> str | None:
        """Return what root should know about them; None: nothing."""
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
    """Return the configuration in a file's text; what an older release did not write has its default.

    Raises:
        StoreError: it is damaged, or of a newer release.
    """
    return decoded(content, where, _FORMAT, _configuration)


def encode(configuration: Configuration, version: str) -> str:
    """Return the file's text: equal configurations give equal texts."""
    document = {"format": _FORMAT, "version": version, **asdict(configuration)}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _configuration(document: Mapping[str, Any]) -> Configuration:
    limits = _known(Limits(), document.get("limits", {}))
    return Configuration(**_known(Configuration(), document) | {"limits": Limits(**limits)})


def _known(default: Configuration | Limits, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `default` that `entry` has, checked to be of their type."""
    found = {}
    for name in (f.name for f in fields(default) if f.name in entry and f.name != "limits"):
        found[name] = _like(getattr(default, name), entry[name], name)
    return found


def _like(default: object, value: Any, name: str) -> object:
    if name in _LISTS:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise TypeError(f"{name} is no list of texts")
        return tuple(value)
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if type(value) is not type(default):
        raise TypeError(f"{name} is no {type(default).__name__}")
    return value
