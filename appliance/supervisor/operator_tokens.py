"""Verb `token` of the control protocol: make, list and remove operators' tokens.

====================  ==========================================================================
a token for           may be made by
====================  ==========================================================================
oneself               every operator, on the control socket
another operator      root alone: nobody else may act as another operator
somebody else         nobody: a token gives no right that its user lacks
====================  ==========================================================================

Every operator may remove every token, by its id: one that was lost has to be refused at once, whoever sees
the loss. The text of a token is in one answer, to the one who makes it, and nowhere else.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from appliance.model.errors import BadRequestError, NotFoundError, PermissionDeniedError
from appliance.model.names import OPERATORS_GROUP
from appliance.model.operations import Outcome
from appliance.model.operators import (
    Account,
    OperatorToken,
    check_credential_name,
    no_such_credential,
)
from appliance.model.wording import joined, short
from appliance.supervisor.access_policy import Requester
from appliance.system.credential_files import StoredToken
from appliance.wire.control_requests import (
    AddTokenRequest,
    ListTokensRequest,
    RemoveTokenRequest,
    TokenRequest,
)
from appliance.wire.conversation import ResultEvent
from appliance.wire.json_values import Json

_log = logging.getLogger(__name__)

MOST_TOKENS: Final = 100
_ROOT_UID: Final = 0


class NoSuchTokenError(NotFoundError):
    """Error: no token has this name or id."""


class Tokens(Protocol):
    """Store of the tokens."""

    def all(self) -> Sequence[StoredToken]:
        """Return every token. Raises `StoreError`."""
        ...

    def add(self, token: OperatorToken, by: str, now_unix_s: float) -> tuple[str, StoredToken]:
        """Make a token; returns its text. Raises `StoreError`."""
        ...

    def remove(self, ids: frozenset[str]) -> None:
        """Remove the tokens with these ids. Raises `StoreError`."""
        ...


class TokenDesk:
    """Handler of requests about tokens.

    Args:
        tokens: The store of the tokens.
        account_of: Returns a user of this machine by name; None: there is none.
        now_unix_s: The wall clock.
    """

    def __init__(
        self,
        tokens: Tokens,
        account_of: Callable[[str], Account | None],
        now_unix_s: Callable[[], float],
    ) -> None:
        self._tokens = tokens
        self._account_of = account_of
        self._now_unix_s = now_unix_s

    def answer(self, request: TokenRequest, by: Requester) -> ResultEvent:
        """Return the answer to one request.

        Raises:
            BadRequestError: the request makes no sense.
            NoSuchTokenError: the token to remove does not exist.
            PermissionDeniedError: only root may make a token for another operator.
            StoreError: the tokens cannot be read or written.
        """
        match request:
            case AddTokenRequest():
                return self._add(request, by)
            case ListTokensRequest():
                now = self._now_unix_s()
                return _done("", tokens=[_row(stored, now) for stored in self._tokens.all()])
            case RemoveTokenRequest(name):
                return self._remove(name, by)

    def _add(self, request: AddTokenRequest, by: Requester) -> ResultEvent:
        check_credential_name("token", request.name)
        if request.for_s is not None and request.for_s <= 0:
            raise BadRequestError("a token is valid for some time, or until it is removed")
        account = self._operator(request.user, by)
        present = self._tokens.all()
        if len(present) >= MOST_TOKENS:
            raise BadRequestError(f"there are {MOST_TOKENS} tokens already: appliance token rm ID")
        now = self._now_unix_s()
        token = OperatorToken(
            name=request.name,
            uid=account.uid,
            user=account.user,
            expires_unix_s=None if request.for_s is None else now + request.for_s,
        )
        text, made = self._tokens.add(token, str(by), now)
        _log.info("token %s (%s) of %s was made by %s", made.id, token.name, token.user, by)
        message = f"the token {token.name} acts as {token.user}, and is shown only this once"
        same = [s.id for s in present if (s.token.name, s.token.uid) == (token.name, token.uid)]
        if same:
            verb = "remain" if same[1:] else "remains"
            message += f"; {joined(same)} of this name {verb} valid too"
        return _done(message, token=text, id=made.id)

    def _operator(self, user: str | None, by: Requester) -> Account:
        """Return the account that a new token stands for."""
        if user is not None and user != by.user and by.uid != _ROOT_UID:
            raise PermissionDeniedError(
                f"only root may make a token for another operator: sudo appliance token add NAME"
                f" --user {short(user)}"
            )
        name = by.user if user is None else user
        account = self._account_of(name)
        if account is None:
            raise BadRequestError(f'there is no user "{short(name)}" on this machine')
        if not account.is_operator:
            raise BadRequestError(
                f"{account.user} is no operator: sudo usermod -aG {OPERATORS_GROUP} {account.user}"
            )
        return account

    def _remove(self, name: str, by: Requester) -> ResultEvent:
        present = self._tokens.all()
        gone = [s for s in present if s.id == name]
        gone = gone or [s for s in present if (s.token.name, s.token.uid) == (name, by.uid)]
        if not gone:
            raise NoSuchTokenError(_no_such(name, present))
        self._tokens.remove(frozenset(stored.id for stored in gone))
        for stored in gone:
            token = stored.token
            _log.info(
                "token %s (%s) of %s was removed by %s", stored.id, token.name, token.user, by
            )
        ids = [stored.id for stored in gone]
        what = f"the token {gone[0].token.name} ({joined(ids)}) of {gone[0].token.user}"
        return _done(f"{what} is refused from now on", ids=ids)


def _no_such(name: str, present: Sequence[StoredToken]) -> str:
    """Return the sentence for a token that is not there, or is another operator's."""
    others = [stored for stored in present if stored.token.name == name]
    if others:
        owners = joined([f"{stored.token.user} ({stored.id})" for stored in others])
        return f"{name} is a token of {owners}: appliance token rm ID"
    known = [word for stored in present for word in (stored.token.name, stored.id)]
    return no_such_credential("token", name, known)


def _row(stored: StoredToken, now_unix_s: float) -> Json:
    expires = stored.token.expires_unix_s
    return {
        "id": stored.id,
        "name": stored.token.name,
        "user": stored.token.user,
        "created_unix_s": stored.created_unix_s,
        "created_by": stored.created_by,
        "expires_unix_s": expires,
        "expired": expires is not None and now_unix_s >= expires,
        "used_unix_s": stored.used_unix_s,
    }


def _done(message: str, **more: object) -> ResultEvent:
    return ResultEvent(outcome=Outcome.DONE, message=message, details=more)
