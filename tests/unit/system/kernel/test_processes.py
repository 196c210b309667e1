"""Names of users and groups, as every program of ours shows them."""

import os

from appliance.system.kernel.processes import group_name, user_name

NOBODYS = 4_000_000_000


def test_users_and_groups_have_names() -> None:
    """Root's user and group have theirs; an id without a name is shown as its number."""
    assert (user_name(0), group_name(0)) == ("root", "root")
    assert (user_name(NOBODYS), group_name(NOBODYS)) == (str(NOBODYS), str(NOBODYS))
    assert user_name(os.getuid())
