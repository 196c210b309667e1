"""The control verb `key`: inference keys are made, listed and taken away here.

The text of a key is in one answer, to whoever has it made, and nowhere else.
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from appliance.adapters.key_file import StoredKey
from appliance.domain.errors import ApplianceError, BadRequestError
from appliance.domain.gateway import Key
from appliance.planning.wording import closest
from appliance.protocol.control import Exit

_log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,47}\Z")
_MOST_KEYS: Final = 1000

Message = Mapping[str, Any]


class NoSuchKeyError(ApplianceError):
    """There is no key with this name or id."""


class Keys(Protocol):
    """Where keys are kept."""

    def all(self) -> Sequence[StoredKey]:
        """Every key. Raises `StoreError`."""
        ...

    def add(self, key: Key, now_unix_s: float) -> tuple[str, StoredKey]:
        """Make one; returns its text. Raises `StoreError`."""
        ...

    def remove(self, name: str) -> Sequence[StoredKey]:
        """Take away those with this name or id; returns them. Raises `StoreError`."""
        ...


class KeyDesk:
    """Answers requests about keys.

    Args:
        keys: Where they are kept.
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

    def answer(self, args: Message, peer: str) -> Message:
        """The answer to one request.

        Raises:
            BadRequestError: it makes no sense.
            NoSuchKeyError: what is to be taken away is not there.
            StoreError: the keys cannot be read or written.
            UnknownProfileError: a profile is not applied.
        """
        match args.get("action"):
            case "add":
                return self._add(_key(args), peer)
            case "ls":
                return _done("", keys=[_row(stored) for stored in self._keys.all()])
            case "rm":
                return self._remove(_text(args, "name"), peer)
            case _:
                raise BadRequestError("action is none of add, ls and rm")

    def _add(self, key: Key, peer: str) -> Message:
        self._check_profiles(key.profiles or ())
        present = [stored for stored in self._keys.all() if stored.key.name == key.name]
        if len(self._keys.all()) >= _MOST_KEYS:
            raise BadRequestError(f"there are {_MOST_KEYS} keys already: appliance key rm NAME")
        text, made = self._keys.add(key, self._now_unix_s())
        _log.info("key %s of %s is made by %s", made.id, key.name, peer)
        message = f"{key.name} has a key now; it is shown this once"
        if present:
            old = ", ".join(stored.id for stored in present)
            message = f"{key.name} has another key now; it is shown this once, and {old} holds too"
        return _done(message, key=text, id=made.id)

    def _remove(self, name: str, peer: str) -> Message:
        gone = self._keys.remove(name)
        if not gone:
            raise NoSuchKeyError(self._no_such(name))
        for stored in gone:
            _log.info("key %s of %s is taken away by %s", stored.id, stored.key.name, peer)
        left = {stored.key.name for stored in self._keys.all()}
        who = gone[0].key.name
        message = f"{who} has one key less" if who in left else f"{who} has no key any more"
        if not left:
            message += "; there is no key left, so other machines are not served"
        return _done(message, ids=[stored.id for stored in gone])

    def _no_such(self, name: str) -> str:
        known = [word for k in self._keys.all() for word in (k.key.name, k.id)]
        meant = closest(name, known)
        hint = f'; did you mean "{meant}"?' if meant else ": appliance key ls"
        return f'there is no key "{name[:64]}"{hint}'


def _key(args: Message) -> Key:
    name, profiles = _text(args, "name"), args.get("profiles")
    if not _NAME.match(name):
        raise BadRequestError("a key's name has up to 48 letters, digits and ._@-")
    return Key(name=name, may_switch=args.get("may_switch") is True, profiles=_limits(profiles))


def _limits(profiles: object) -> tuple[str, ...] | None:
    """Return the profiles that a key is limited to; None: all, which only null says."""
    if profiles is None:
        return None
    if not isinstance(profiles, list) or not all(isinstance(p, str) for p in profiles):
        raise BadRequestError("profiles is no list of names")
    if not profiles:
        raise BadRequestError("profiles names no profile: leave it out for a key to all of them")
    return tuple(dict.fromkeys(profiles))


def _text(args: Message, key: str) -> str:
    value = args.get(key)
    if not isinstance(value, str) or not value:
        raise BadRequestError(f"{key} is missing")
    return value


def _row(stored: StoredKey) -> Message:
    return {
        "id": stored.id,
        "name": stored.key.name,
        "may_switch": stored.key.may_switch,
        "profiles": stored.key.profiles,
        "created_unix_s": stored.created_unix_s,
    }


def _done(message: str, **more: object) -> Message:
    return {"event": "result", "exit": Exit.OK, "outcome": "done", "message": message, **more}
