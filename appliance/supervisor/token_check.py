"""Check of presented tokens: who acts, or why nobody does.

=======================================  =====================================================
a presented text                         is answered with
=======================================  =====================================================
of a token, not expired, of an operator  the operator, with the rights of this moment
altered, of a removed token, any other   one sentence for all of them
of an expired token                      that it has expired: only its owner can have its text
of a user who is no operator any more    that: a token never outlives its user's rights
wrong, the eleventh in a minute of an id that too many came; the right text is answered as ever
=======================================  =====================================================

The secret is too long to guess, so no number of wrong texts is a danger, and none may lock the owner out: an id
is no secret. Only texts with the id of a token that exists are counted. No text that was presented
reaches a log.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from appliance.model.errors import BusyError, PermissionDeniedError, StoreError
from appliance.model.operators import Account, TokenOperator, lapse_of
from appliance.system.credential_files import StoredToken, is_text_of_token, presented_id

_log = logging.getLogger(__name__)

MOST_WRONG: Final = 10
"""Wrong texts of one id within `WRONG_S` after which more of them are told so."""
WRONG_S: Final = 60.0
_LOG_EVERY_S: Final = 60.0
_UNKNOWN: Final = "the token is not known, or was removed: appliance token add NAME"


class PresentedTokens(Protocol):
    """Store of the tokens, as far as checks need it."""

    def all(self) -> Sequence[StoredToken]:
        """Return every token. Raises `StoreError`."""
        ...

    def note_use(self, identity: str, now_unix_s: float) -> None:
        """Keep that a token was used. Raises `StoreError`."""
        ...


class TokenCheck:
    """Check of tokens.

    Args:
        tokens: The store of the tokens.
        account_of_uid: Returns a user of this machine by number; None: there is none.
        now_unix_s: The wall clock.
        monotonic_s: A clock that cannot be set.
    """

    def __init__(
        self,
        tokens: PresentedTokens,
        account_of_uid: Callable[[int], Account | None],
        *,
        now_unix_s: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._tokens = tokens
        self._account_of_uid = account_of_uid
        self._now_unix_s = now_unix_s
        self._monotonic_s = monotonic_s
        self._wrong: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=MOST_WRONG))
        """Times of wrong texts, by the ids of tokens that exist."""
        self._refused = 0
        """Number of refusals since the last line in the log."""
        self._logged_s: float | None = None

    def operator(self, text: str) -> TokenOperator:
        """Return the operator for whom a text stands.

        Raises:
            BusyError: it is wrong, and too many wrong texts with its id came lately.
            PermissionDeniedError: it stands for nobody.
            StoreError: the tokens cannot be read.
        """
        present = {stored.id: stored for stored in self._tokens.all()}
        for identity in self._wrong.keys() - present.keys():
            del self._wrong[identity]
        stored = present.get(presented_id(text) or "")
        if not is_text_of_token(stored, text) or stored is None:
            if stored is not None:
                self._check_attempts(stored)
                self._wrong[stored.id].append(self._monotonic_s())
            raise self._refusal(stored, _UNKNOWN)
        if lapse := self._lapse_of(stored):
            raise self._refusal(stored, lapse)
        self._note_use(stored)
        return TokenOperator(uid=stored.token.uid, user=stored.token.user, token=stored.token.name)

    def is_any_usable(self) -> bool:
        """Tell whether somebody can act by a token at this moment; False also where none can be read."""
        try:
            return any(self._lapse_of(stored) is None for stored in self._tokens.all())
        except StoreError as error:
            _log.warning("%s", error)
            return False

    def _lapse_of(self, stored: StoredToken) -> str | None:
        return lapse_of(stored.token, self._account_of_uid, self._now_unix_s())

    def _check_attempts(self, stored: StoredToken) -> None:
        wrong = self._wrong.get(stored.id)
        since_s = self._monotonic_s() - WRONG_S
        if wrong is not None and len(wrong) == MOST_WRONG and wrong[0] > since_s:
            self._count(stored)
            raise BusyError("too many wrong tokens with this id: try again in a minute")

    def _note_use(self, stored: StoredToken) -> None:
        try:
            self._tokens.note_use(stored.id, self._now_unix_s())
        except StoreError as error:  # a full disk keeps no operator from acting
            _log.warning("the use of token %s could not be kept: %s", stored.id, error)

    def _refusal(self, stored: StoredToken | None, text: str) -> PermissionDeniedError:
        self._count(stored)
        return PermissionDeniedError(text)

    def _count(self, stored: StoredToken | None) -> None:
        """Log a refusal, at most one a minute, with the number of those before it."""
        self._refused += 1
        now_s = self._monotonic_s()
        if self._logged_s is not None and now_s - self._logged_s < _LOG_EVERY_S:
            return
        what = "an unknown token" if stored is None else f"token {stored.id}"
        more = f", and {self._refused - 1} others since the last such line" * (self._refused > 1)
        _log.warning("%s was presented and refused%s", what, more)
        self._refused, self._logged_s = 0, now_s
