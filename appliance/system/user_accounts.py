"""Users of this machine, from its user database (nsswitch.conf(5))."""

import grp
import os
import pwd

from appliance.model.names import OPERATORS_GROUP
from appliance.model.operators import Account
from appliance.system.kernel.processes import group_name


def account_of(user: str) -> Account | None:
    """Return a user by name; None: there is none, or no user can have such a name."""
    try:
        return _account(pwd.getpwnam(user))
    except (KeyError, ValueError):  # of a NUL or a surrogate
        return None


def account_of_uid(uid: int) -> Account | None:
    """Return a user by number; None: there is none."""
    try:
        return _account(pwd.getpwuid(uid))
    except (KeyError, OverflowError):
        return None


def _account(entry: pwd.struct_passwd) -> Account:
    return Account(
        uid=entry.pw_uid,
        user=entry.pw_name,
        group=group_name(entry.pw_gid),
        is_member=_operators_gid() in os.getgrouplist(entry.pw_name, entry.pw_gid),
    )


def _operators_gid() -> int | None:
    try:
        return grp.getgrnam(OPERATORS_GROUP).gr_gid
    except KeyError:
        return None
