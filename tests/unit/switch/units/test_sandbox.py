"""Users and groups of a backend's processes."""

import re

import pytest

from appliance.switch.units.sandbox import Identity, identity_of, own_user
from tests.fakes.unit_specs import made

STRICT_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}\Z")
"""Pattern of a dynamic user's name in systemd (user-util.c, valid_user_group_name)."""


def test_a_user_that_is_named_exists_beforehand() -> None:
    """A named user is used as it is, with the engines' group, and the devices' groups for a GPU."""
    assert identity_of(made("a", user="ana", gpus="all")) == Identity(
        user="ana", dynamic=False, group="appliance-backend", further_groups=("render", "video")
    )


def test_a_profile_without_one_has_a_user_to_itself() -> None:
    """Systemd makes the user at the start; without GPUs it is in no further group."""
    assert identity_of(made("smol", user="")) == Identity(
        user="apl-smol", dynamic=True, group="appliance-backend"
    )


@pytest.mark.parametrize(
    "name", ["a", "gateway", "0.5b", "a" * 27, "a" * 28, "q.4" * 16, "x-" * 24]
)
def test_every_profile_name_gives_a_name_that_systemd_takes(name: str) -> None:
    """Long names and dots are folded, and the prefix is none of our daemons'."""
    assert STRICT_USER.match(own_user(name))
    assert not own_user(name).startswith("appliance-")


def test_names_that_begin_alike_give_different_users() -> None:
    """Neither a cut nor a dot makes one user of two profiles."""
    names = ["a" * 47 + "b", "a" * 47 + "c", "a.b", "a-b", "a_b"]
    assert len({own_user(name) for name in names}) == len(names)
