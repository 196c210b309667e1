"""Operators, the tokens with which they act from elsewhere than the command line, and names of credentials.

A token is no user: it stands for one, with that user's rights as they are when it is presented, and
never for more.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from appliance.model.errors import BadRequestError
from appliance.model.names import OPERATORS_GROUP, is_engine
from appliance.model.wording import closest, short

_ROOT_UID = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """User of this machine."""

    uid: int
    user: str
    group: str
    """Primary group."""
    is_member: bool
    """Whether the user is in the group of operators, by the user database of this moment."""

    @property
    def is_operator(self) -> bool:
        """Tell whether the control socket is open to this user, as its mode and the supervisor decide."""
        may_connect = self.uid == _ROOT_UID or self.is_member
        return may_connect and not is_engine(self.uid, self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorToken:
    """Token of an operator, without its text."""

    name: str
    """Name of what uses it, such as ``phone``."""
    uid: int
    user: str
    """Name that `uid` had when the token was made: another user may get a number that became free."""
    expires_unix_s: float | None = None
    """Time from which on it is refused; None: it does not expire."""


def lapse_of(
    token: OperatorToken, account_of_uid: Callable[[int], Account | None], now_unix_s: float
) -> str | None:
    """Return why nobody acts by a token, as a sentence; None: its operator does.

    Args:
        token: Token that was not removed.
        account_of_uid: Returns a user of this machine by number; None: there is none.
        now_unix_s: The wall clock.
    """
    if token.expires_unix_s is not None and now_unix_s >= token.expires_unix_s:
        return "the token has expired: appliance token add NAME"
    account = account_of_uid(token.uid)
    if account is None or account.user != token.user:
        return f"the token's user {token.user} is gone"
    if not account.is_operator:
        return f"the token's user {token.user} is not in {OPERATORS_GROUP} any more"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenOperator:
    """Operator for whom a token was presented and accepted."""

    uid: int
    user: str
    token: str
    """Name of the token."""

    def __str__(self) -> str:
        """Return the text for logs and records: "ana (token phone)"."""
        return f"{self.user} (token {self.token})"


_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,47}\Z")


def check_credential_name(kind: str, name: str) -> None:
    """Check a name that a client proposes; it stands in logs, tables and sentences.

    Args:
        kind: Word for what has the name: "key".
        name: The name.

    Raises:
        BadRequestError: it cannot be one.
    """
    if not _NAME.match(name):
        raise BadRequestError(f"a {kind}'s name has up to 48 letters, digits and ._@-")


def no_such_credential(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence for a name or id that none has, with a suggestion where one is close.

    Args:
        kind: Word for it, which is also the verb that lists them.
        name: The name or id that was given.
        known: Names and ids of all.
    """
    meant = closest(name, known)
    hint = f'; did you mean "{meant}"?' if meant else f": appliance {kind} ls"
    return f'there is no {kind} "{short(name)}"{hint}'
