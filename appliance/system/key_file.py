"""File of inference keys: names, rights and a hash of each; never the key itself."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from appliance.model.gateway import Key
from appliance.system.credential_file import CredentialFile, digest, new_credential
from appliance.wire.typed_json import from_json

KEY_FILE: Final = "keys.json"
KEY_PREFIX: Final = "apl_"
_MODE: Final = 0o640
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
        self._file = _file(directory / KEY_FILE)

    def all(self) -> tuple[StoredKey, ...]:
        """Return every key, the oldest first. Raises `StoreError`."""
        return self._file.read()

    def add(self, key: Key, now_unix_s: float) -> tuple[str, StoredKey]:
        """Make a key; returns its text, which is stored nowhere. Raises `StoreError`."""
        present = self.all()
        identity, text = new_credential(KEY_PREFIX, {stored.id for stored in present})
        stored = StoredKey(
            id=identity, key=key, sha256=digest(text.encode()), created_unix_s=now_unix_s
        )
        self._file.write((*present, stored))
        return text, stored

    def remove(self, name: str) -> tuple[StoredKey, ...]:
        """Remove the keys with this name, or the one with this id; returns them.

        Raises:
            StoreError: the file cannot be read or written; nothing is removed then.
        """
        present = self.all()
        gone = tuple(k for k in present if name in {k.key.name, k.id})
        if gone:
            self._file.write([k for k in present if k not in gone])
        return gone


def read_keys(path: Path) -> tuple[StoredKey, ...]:
    """Return the keys in a file; none when there is no file.

    Raises:
        StoreError: it cannot be read, is damaged, or was written by a newer release.
    """
    return _file(path).read()


def _file(path: Path) -> CredentialFile[StoredKey]:
    return CredentialFile(path, kind="keys", mode=_MODE, encode=_entry, decode=_stored)


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
