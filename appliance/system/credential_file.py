"""File of credentials that this box has given out: what each is for, and its hash; never its text.

A credential is ``<prefix><id>_<secret>``. The secret has 192 random bits, too many to guess from one round
of SHA-256. One process writes a file: the supervisor.
"""

import hmac
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from appliance.model.errors import StoreError
from appliance.model.json_reader import decode_json
from appliance.system.files.durable import read_regular, write_file

MOST_CHARACTERS: Final = 256
"""Longest text that is hashed."""
_FORMAT: Final = 1
_ID_BYTES: Final = 4
_SECRET_BYTES: Final = 24


class StoredCredential(Protocol):
    """Stored form of a credential."""

    @property
    def id(self) -> str:
        """Return the part of the text that is no secret."""
        ...

    @property
    def sha256(self) -> str:
        """Return the SHA-256 of the whole text, in hexadecimal."""
        ...


StoredT = TypeVar("StoredT", bound=StoredCredential)


class CredentialFile(Generic[StoredT]):
    """File of one kind of credentials.

    Args:
        path: The file.
        kind: Word for several of them, which is also the file's key: "keys".
        mode: Mode of the file.
        encode: Makes the JSON object of one, all its fields.
        decode: Reads such an object; raises `ValueError`, `TypeError` or `KeyError` for damage.
    """

    def __init__(
        self,
        path: Path,
        *,
        kind: str,
        mode: int,
        encode: Callable[[StoredT], Mapping[str, object]],
        decode: Callable[[Mapping[str, Any]], StoredT],
    ) -> None:
        self._path = path
        self._kind = kind
        self._mode = mode
        self._encode = encode
        self._decode = decode

    def read(self) -> tuple[StoredT, ...]:
        """Return all credentials, the oldest first; none when there is no file.

        Raises:
            StoreError: it cannot be read, is damaged, or was written by a newer release.
        """
        path = self._path
        if not path.exists() and not path.is_symlink():
            return ()
        content = read_regular(path)
        if content is None:
            raise StoreError(f"{path} is no regular file: remove it")
        try:
            document = decode_json(content)
            if document["format"] != _FORMAT:
                raise StoreError(f"{path} was written by another release of the appliance")
            return tuple(self._decode(entry) for entry in document[self._kind])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(f"{path} is damaged: remove it, and make new {self._kind}") from error

    def write(self, stored: Sequence[StoredT]) -> None:
        """Replace all credentials. Raises `StoreError`; the file is then as it was."""
        document = {"format": _FORMAT, self._kind: [self._encode(one) for one in stored]}
        write_file(self._path, json.dumps(document, indent=1) + "\n", mode=self._mode)


def new_credential(prefix: str, taken: Collection[str]) -> tuple[str, str]:
    """Return the id and the text of a new credential; `taken` are the ids of others."""
    while (identity := os.urandom(_ID_BYTES).hex()) in taken:
        pass
    return identity, f"{prefix}{identity}_{os.urandom(_SECRET_BYTES).hex()}"


def credential_id(prefix: str, text: str) -> str | None:
    """Return the id in a presented text; None: it has not the form of a credential."""
    if not text.startswith(prefix) or len(text) > MOST_CHARACTERS or not text.isascii():
        return None
    return text.removeprefix(prefix).partition("_")[0]


def digest(text: bytes) -> str:
    """Return the hash that is stored of a credential's text."""
    return sha256(text).hexdigest()


_NO_DIGEST: Final = digest(b"")


def is_text_of(stored: StoredCredential | None, text: bytes) -> bool:
    """Tell in constant time whether a text is that of a credential.

    Args:
        stored: Credential with the id of the text; None: there is none, which takes as long as a wrong
            secret.
        text: Presented text.
    """
    is_right = hmac.compare_digest(digest(text), stored.sha256 if stored else _NO_DIGEST)
    return stored is not None and is_right
