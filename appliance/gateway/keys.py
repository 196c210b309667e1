"""Inference keys that the supervisor keeps, checked in constant time."""

import logging
from pathlib import Path
from typing import Final

from appliance.model.errors import StoreError
from appliance.model.gateway import Key
from appliance.system.credential_files import (
    KEY_FILE,
    KEY_PREFIX,
    MOST_CHARACTERS,
    StoredKey,
    is_text_of,
    read_keys,
)
from appliance.system.files.regular import Stamp, stamp

_log = logging.getLogger(__name__)

_BEARER: Final = b"bearer "
_PREFIX: Final = KEY_PREFIX.encode()


class KeyRing:
    """Keys of one file, read again when the file changes.

    Text that has not the form of an inference key counts as no key: many clients insist on sending
    some key, and on loopback none is needed.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / KEY_FILE
        self._keys: dict[bytes, StoredKey] = {}
        self._read: Stamp | None = None
        self.refresh()

    @property
    def empty(self) -> bool:
        return not self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def refresh(self) -> None:
        """Read the keys again if their file changed; a damaged file changes nothing."""
        seen = stamp(self._path)
        if seen == self._read:
            return
        self._read = seen
        try:
            self._keys = {key.id.encode(errors="replace"): key for key in read_keys(self._path)}
        except StoreError as error:
            _log.error("the keys cannot be read, and stay unchanged: %s", error)

    def check(self, authorization: bytes | None, api_key: bytes | None) -> Key | None:
        """Return the key of a request; None: a request without a key.

        Args:
            authorization: Header ``Authorization``; None: absent.
            api_key: Header ``x-api-key``; None: absent.

        Raises:
            PermissionError: The request has an inference key that is not in the file.
        """
        given = [text for text in (_bearer(authorization), api_key) if text and _has_key_form(text)]
        found = [self._find(text) for text in given]
        return found[0].key if found else None

    def _find(self, text: bytes) -> StoredKey:
        identity, _, _ = text.removeprefix(_PREFIX).partition(b"_")
        stored = self._keys.get(identity)
        if not is_text_of(stored, text) or stored is None:
            raise PermissionError("the key is not known")
        return stored


def _bearer(authorization: bytes | None) -> bytes | None:
    if authorization is None or authorization[: len(_BEARER)].lower() != _BEARER:
        return None
    return authorization[len(_BEARER) :].strip()


def _has_key_form(text: bytes) -> bool:
    return text.startswith(_PREFIX) and len(text) <= MOST_CHARACTERS
