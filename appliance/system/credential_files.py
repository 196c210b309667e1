"""Files of the credentials that this box has given out, inference keys and operators' tokens.

A file says what each credential is for, and has its hash; never its text. A credential is
``<prefix><id>_<secret>``. The secret has 192 random bits, too many to guess from one round of SHA-256. One process
writes both files: the supervisor. The time of a token's last use is written at most every `USE_EVERY_S` for each:
an operator looks for tokens that are not used, and no request waits for a disk.
"""

import hmac
import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from appliance.model.errors import StoreError
from appliance.model.gateway import Key
from appliance.model.json_reader import decode_json
from appliance.model.operators import OperatorToken
from appliance.system.files.durable import read_regular, write_file
from appliance.wire.typed_json import from_json

MOST_CHARACTERS: Final = 256
"""Longest text that is hashed."""
_FORMAT: Final = 1
_ID_BYTES: Final = 4
_SECRET_BYTES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCredential:
    """Stored form of a credential."""

    id: str
    """Part of the credential's text that is no secret."""
    sha256: str
    """SHA-256 of the whole text, in hexadecimal."""
    created_unix_s: float


StoredT = TypeVar("StoredT", bound=StoredCredential)


class CredentialFile(Generic[StoredT]):
    """File of one kind of credentials.

    Args:
        path: The file.
        stored: Their stored form.
        subject: Its field that says what a credential is for: "key". The file has the fields of that value
            beside the others, and all credentials under the plural.
        of: Type of that field.
        mode: Mode of the file.
    """

    def __init__(
        self,
        path: Path,
        stored: type[StoredT],
        *,
        subject: str,
        of: type[Key | OperatorToken],
        mode: int,
    ) -> None:
        self._path = path
        self._stored = stored
        self._subject = subject
        self._plural = f"{subject}s"
        self._names = tuple(field.name for field in fields(of))
        self._mode = mode

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
            return tuple(map(self._decoded, document[self._plural]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(
                f"{path} is damaged: remove it, and make new {self._plural}"
            ) from error

    def write(self, stored: Sequence[StoredT]) -> None:
        """Replace all credentials. Raises `StoreError`; the file is then as it was."""
        document = {"format": _FORMAT, self._plural: [self._encoded(one) for one in stored]}
        write_file(self._path, json.dumps(document, indent=1) + "\n", mode=self._mode)

    def _encoded(self, stored: StoredT) -> Mapping[str, object]:
        entry = asdict(stored)
        subject = entry.pop(self._subject)
        return {"id": entry.pop("id"), **subject, **entry}

    def _decoded(self, entry: Mapping[str, Any]) -> StoredT:
        # A right or an expiry that is missing means damage, and is never the default.
        subject = {name: entry[name] for name in self._names}
        return from_json(self._stored, {**entry, self._subject: subject})


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


# --- inference keys ------------------------------------------------------------------

KEY_FILE: Final = "keys.json"
KEY_PREFIX: Final = "apl_"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey(StoredCredential):
    """Stored form of a key."""

    key: Key


class FileKeys:
    """Store of the keys in a directory. One process writes it: the supervisor."""

    def __init__(self, directory: Path) -> None:
        self._file = _key_file(directory / KEY_FILE)

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
    return _key_file(path).read()


def _key_file(path: Path) -> CredentialFile[StoredKey]:
    return CredentialFile(path, StoredKey, subject="key", of=Key, mode=0o640)


# --- operators' tokens ---------------------------------------------------------------

TOKEN_FILE: Final = "tokens.json"  # noqa: S105 - a name
TOKEN_PREFIX: Final = "apt_"  # noqa: S105 - not a secret
USE_EVERY_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken(StoredCredential):
    """Stored form of a token."""

    token: OperatorToken
    created_by: str
    """Requester that made it, for people."""
    used_unix_s: float | None = None
    """Time of a use, at most `USE_EVERY_S` before the last one; None: never used."""


class FileTokens:
    """Store of the tokens in a directory. One process writes it: the supervisor."""

    def __init__(self, directory: Path) -> None:
        self._file = CredentialFile(
            directory / TOKEN_FILE, StoredToken, subject="token", of=OperatorToken, mode=0o600
        )

    def all(self) -> tuple[StoredToken, ...]:
        """Return every token, the oldest first. Raises `StoreError`."""
        return self._file.read()

    def add(self, token: OperatorToken, by: str, now_unix_s: float) -> tuple[str, StoredToken]:
        """Make a token; returns its text, which is stored nowhere. Raises `StoreError`."""
        present = self.all()
        identity, text = new_credential(TOKEN_PREFIX, {stored.id for stored in present})
        stored = StoredToken(
            id=identity,
            token=token,
            sha256=digest(text.encode()),
            created_unix_s=now_unix_s,
            created_by=by,
        )
        self._file.write((*present, stored))
        return text, stored

    def remove(self, ids: frozenset[str]) -> None:
        """Remove the tokens with these ids. Raises `StoreError`; nothing is removed then."""
        self._file.write([stored for stored in self.all() if stored.id not in ids])

    def note_use(self, identity: str, now_unix_s: float) -> None:
        """Keep that a token was used, unless a use shortly before is on record. Raises `StoreError`."""
        present = self.all()
        stored = next((one for one in present if one.id == identity), None)
        if stored is None:
            return
        age_s = USE_EVERY_S if stored.used_unix_s is None else now_unix_s - stored.used_unix_s
        if 0 <= age_s < USE_EVERY_S:
            return
        used = replace(stored, used_unix_s=now_unix_s)
        self._file.write([used if one.id == identity else one for one in present])


def presented_id(text: str) -> str | None:
    """Return the id in the text of a token; None: it has not the form of one."""
    return credential_id(TOKEN_PREFIX, text)


def is_text_of_token(stored: StoredToken | None, text: str) -> bool:
    """Tell in constant time whether a text is that of a token; None: no token has its id."""
    return is_text_of(stored, text[: MOST_CHARACTERS + 1].encode(errors="replace"))
