"""Operators, and the tokens with which they act from elsewhere than the command line.

A token is no user: it stands for one, with that user's rights as they are when it is presented, and
never for more.
"""

from collections.abc import Callable
from dataclasses import dataclass

from appliance.model.names import OPERATORS_GROUP, is_engine

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
