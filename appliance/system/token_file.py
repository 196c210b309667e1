"""File of operators' tokens: whose each is, and a hash of it; never the token itself.

When a token was used last is written at most every `USE_EVERY_S` for each: an operator looks for tokens
that nobody uses, and no request is to wait for a disk.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from appliance.model.operators import OperatorToken
from appliance.system.credential_file import (
    MOST_CHARACTERS,
    CredentialFile,
    credential_id,
    digest,
    is_text_of,
    new_credential,
)
from appliance.wire.typed_json import from_json

TOKEN_FILE: Final = "tokens.json"  # noqa: S105 - a name
TOKEN_PREFIX: Final = "apt_"  # noqa: S105 - not a secret
USE_EVERY_S: Final = 600.0
_MODE: Final = 0o600
_TOKEN_FIELDS: Final = tuple(field.name for field in fields(OperatorToken))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    """Stored form of a token."""

    id: str
    """Part of the token's text that is no secret."""
    token: OperatorToken
    sha256: str
    """SHA-256 of the whole text, in hexadecimal."""
    created_unix_s: float
    created_by: str
    """Requester that made it, for people."""
    used_unix_s: float | None = None
    """Time of a use, at most `USE_EVERY_S` before the last one; None: never used."""


class FileTokens:
    """Store of the tokens in a directory. One process writes it: the supervisor."""

    def __init__(self, directory: Path) -> None:
        self._file: CredentialFile[StoredToken] = CredentialFile(
            directory / TOKEN_FILE, kind="tokens", mode=_MODE, encode=_entry, decode=_stored
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


def _entry(stored: StoredToken) -> Mapping[str, object]:
    token = {name: getattr(stored.token, name) for name in _TOKEN_FIELDS}
    return {
        "id": stored.id,
        **token,
        "sha256": stored.sha256,
        "created_unix_s": stored.created_unix_s,
        "created_by": stored.created_by,
        "used_unix_s": stored.used_unix_s,
    }


def _stored(entry: Mapping[str, Any]) -> StoredToken:
    # An expiry that is missing means damage, and is never the default.
    token = {name: entry[name] for name in _TOKEN_FIELDS}
    return from_json(StoredToken, {**entry, "token": token})
