"""Verb `key` of the control protocol: make, list and remove inference keys.

The text of a key is in one answer, to the operator who makes it, and nowhere else.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from appliance.model.errors import BadRequestError, NotFoundError
from appliance.model.gateway import Key
from appliance.model.journal_events import JournalEvent, JournalField, event_fields
from appliance.model.operations import Outcome
from appliance.model.operators import check_credential_name, no_such_credential
from appliance.supervisor.access_policy import Requester
from appliance.system.credential_files import StoredKey
from appliance.wire.control_requests import (
    AddKeyRequest,
    KeyRequest,
    ListKeysRequest,
    RemoveKeyRequest,
)
from appliance.wire.conversation import ResultEvent
from appliance.wire.json_values import Json

_log = logging.getLogger(__name__)

_MOST_KEYS: Final = 1000


class NoSuchKeyError(NotFoundError):
    """Error: no key has this name or id."""


class Keys(Protocol):
    """Store of the keys."""

    def all(self) -> Sequence[StoredKey]:
        """Return every key. Raises `StoreError`."""
        ...

    def add(self, key: Key, now_unix_s: float) -> tuple[str, StoredKey]:
        """Make a key; returns its text. Raises `StoreError`."""
        ...

    def remove(self, name: str) -> Sequence[StoredKey]:
        """Remove the keys with this name or id; returns them. Raises `StoreError`."""
        ...


class KeyDesk:
    """Handler of requests about keys.

    Args:
        keys: The store of the keys.
        check_profiles: Raises for a name that is no profile's.
        now_unix_s: The wall clock.
    """

    def __init__(
        self,
        keys: Keys,
        check_profiles: Callable[[Sequence[str]], None],
        now_unix_s: Callable[[], float],
    ) -> None:
        self._keys = keys
        self._check_profiles = check_profiles
        self._now_unix_s = now_unix_s

    def answer(self, request: KeyRequest, by: Requester) -> ResultEvent:
        """Return the answer to one request.

        Raises:
            BadRequestError: the request makes no sense.
            NoSuchKeyError: the key to remove does not exist.
            StoreError: the keys cannot be read or written.
            UnknownProfileError: a profile is not applied.
        """
        match request:
            case AddKeyRequest():
                return self._add(request, by)
            case ListKeysRequest():
                return _done("", keys=[_row(stored) for stored in self._keys.all()])
            case RemoveKeyRequest(name):
                return self._remove(name, by)

    def _add(self, request: AddKeyRequest, by: Requester) -> ResultEvent:
        check_credential_name("key", request.name)
        if request.profiles == ():
            raise BadRequestError(
                "profiles names no profile: leave it out for a key to all of them"
            )
        key = Key(name=request.name, may_switch=request.may_switch, profiles=request.profiles)
        self._check_profiles(key.profiles or ())
        present = [stored for stored in self._keys.all() if stored.key.name == key.name]
        if len(self._keys.all()) >= _MOST_KEYS:
            raise BadRequestError(f"there are {_MOST_KEYS} keys already: appliance key rm NAME")
        text, made = self._keys.add(key, self._now_unix_s())
        _log.info("key %s of %s was made by %s", made.id, key.name, by, extra=_changed(by))
        message = f"{key.name} has a key now, shown only this once"
        if present:
            old = ", ".join(stored.id for stored in present)
            message = (
                f"{key.name} has another key now, shown only this once; {old} remains valid too"
            )
        return _done(message, key=text, id=made.id)

    def _remove(self, name: str, by: Requester) -> ResultEvent:
        gone = self._keys.remove(name)
        if not gone:
            raise NoSuchKeyError(self._no_such(name))
        for stored in gone:
            text = "key %s of %s was removed by %s"
            _log.info(text, stored.id, stored.key.name, by, extra=_changed(by))
        left = {stored.key.name for stored in self._keys.all()}
        who = gone[0].key.name
        message = f"{who} has one key less" if who in left else f"{who} has no key any more"
        if not left:
            message += "; no key is left, so other machines are not served"
        return _done(message, ids=[stored.id for stored in gone])

    def _no_such(self, name: str) -> str:
        known = [word for k in self._keys.all() for word in (k.key.name, k.id)]
        return no_such_credential("key", name, known)


def _changed(by: Requester) -> dict[str, object]:
    return event_fields(JournalEvent.KEYS_CHANGED, others=((JournalField.REQUESTER, by),))


def _row(stored: StoredKey) -> Json:
    return {
        "id": stored.id,
        "name": stored.key.name,
        "may_switch": stored.key.may_switch,
        "profiles": stored.key.profiles,
        "created_unix_s": stored.created_unix_s,
    }


def _done(message: str, **more: object) -> ResultEvent:
    return ResultEvent(outcome=Outcome.DONE, message=message, details=more)
