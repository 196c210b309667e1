"""File of inference keys: names, rights and a hash of each; never the key itself.

A key is ``apl_<id>_<secret>``. The secret has 192 random bits, too many to guess from one round
of SHA-256.
"""

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from appliance.adapters.files.durable import read_regular, write_file
from appliance.domain.errors import StoreError
from appliance.domain.gateway import Key
from appliance.protocol.json_dataclasses import from_json

KEY_FILE: Final = "keys.json"
KEY_PREFIX: Final = "apl_"
_FORMAT: Final = 1
_MODE: Final = 0o640
_ID_BYTES: Final = 4
_SECRET_BYTES: Final = 24
_KEY_FIELDS: Final = tuple(field.name for field in fields(Key))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """Stored form of a key."""

    id: str
    """Part of the key's text that is no secret."""
    key: Key
    sha256: str
    """SHA-256 of the whole text, in hexadecimal."""
    created_unix_s: float


class FileKeys:
    """Store of the keys in a directory. One process writes it: the supervisor."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / KEY_FILE

    def all(self) -> tuple[StoredKey, ...]:
        """Return every key, the oldest first. Raises `StoreError`."""
        return read_keys(self._path)

    def add(self, key: Key, now_unix_s: float) -> tuple[str, StoredKey]:
        """Make a key; returns its text, which is stored nowhere. Raises `StoreError`."""
        present = self.all()
        identity = _new_id({stored.id for stored in present})
        text = f"{KEY_PREFIX}{identity}_{os.urandom(_SECRET_BYTES).hex()}"
        stored = StoredKey(
            id=identity, key=key, sha256=digest(text.encode()), created_unix_s=now_unix_s
        )
        self._write((*present, stored))
        return text, stored

    def remove(self, name: str) -> tuple[StoredKey, ...]:
        """Remove the keys with this name, or the one with this id; returns them.

        Raises:
            StoreError: the file cannot be read or written; nothing is removed then.
        """
        present = self.all()
        gone = tuple(k for k in present if name in {k.key.name, k.id})
        if gone:
            self._write([k for k in present if k not in gone])
        return gone

    def _write(self, keys: Sequence[StoredKey]) -> None:
        document = {"format": _FORMAT, "keys": [_entry(key) for key in keys]}
        write_file(self._path, json.dumps(document, indent=1) + "\n", mode=_MODE)


def _new_id(taken: Collection[str]) -> str:
    while (identity := os.urandom(_ID_BYTES).hex()) in taken:
        pass
    return identity


def digest(text: bytes) -> str:
    """Return the hash that is stored of a key's text."""
    return sha256(text).hexdigest()


def read_keys(path: Path) -> tuple[StoredKey, ...]:
    """Return the keys in a file; none when there is no file.

    Raises:
        StoreError: it cannot be read, is damaged, or was written by a newer release.
    """
    if not path.exists() and not path.is_symlink():
        return ()
    content = read_regular(path)
    if content is None:
        raise StoreError(f"{path} is no regular file: remove it")
    try:
        document = json.loads(content)
        if document["format"] != _FORMAT:
            raise StoreError(f"{path} was written by another release of the appliance")
        return tuple(_stored(entry) for entry in document["keys"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: remove it, and make new keys") from error


def _entry(stored: StoredKey) -> Mapping[str, object]:
    key = stored.key
    return {
        "id": stored.id,
        "name": key.name,
        "sha256": stored.sha256,
        "may_switch": key.may_switch,
        "profiles": None if key.profiles is None else list(key.profiles),
        "created_unix_s": stored.created_unix_s,
    }


def _stored(entry: Mapping[str, Any]) -> StoredKey:
    # A right that is missing means damage, and is never the default.
    key = {name: entry[name] for name in _KEY_FIELDS}
    return from_json(StoredKey, {**entry, "key": key})
