"""Users of a box, in memory, and a desk of tokens for them."""

import os
from pathlib import Path
from typing import Final

from appliance.model.operators import Account
from appliance.supervisor.operator_tokens import TokenDesk
from appliance.system.credential_files import FileTokens
from appliance.system.kernel.processes import user_name

ANA: Final = Account(uid=1000, user="ana", group="ana", is_member=True)
BO: Final = Account(uid=1001, user="bo", group="bo", is_member=True)
GUEST: Final = Account(uid=1002, user="guest", group="guest", is_member=False)
ENGINE: Final = Account(uid=1003, user="model", group="appliance-backend", is_member=True)
ROOT: Final = Account(uid=0, user="root", group="root", is_member=False)
NOW_UNIX_S: Final = 1_700_000_000.0
USERS: Final = (ANA, BO, GUEST, ENGINE, ROOT)


class FakeAccounts:
    """User database that tests change."""

    def __init__(self, *accounts: Account) -> None:
        self.known: dict[str, Account] = {account.user: account for account in accounts}

    def of(self, user: str) -> Account | None:
        """Return a user by name."""
        return self.known.get(user)

    def of_uid(self, uid: int) -> Account | None:
        """Return a user by number."""
        return next((one for one in self.known.values() if one.uid == uid), None)


def present_user() -> Account:
    """Return the user of the tests as an operator, since sockets know the real one."""
    uid = os.geteuid()
    return Account(uid=uid, user=user_name(uid), group="people", is_member=True)


def token_desk(directory: Path) -> TokenDesk:
    """Return a desk for the users of this module, and the one who runs the tests."""
    accounts = FakeAccounts(*USERS, present_user())
    return TokenDesk(FileTokens(directory), accounts.of, lambda: NOW_UNIX_S)
