"""Users of this machine: found by name and number, with what makes an operator."""

import os
import pwd

import pytest

from appliance.system.user_accounts import account_of, account_of_uid


def test_root_is_an_operator() -> None:
    """Every socket is open to root, without any group."""
    root = account_of("root")
    assert root is not None
    assert (root.uid, root.group, root.is_operator) == (0, "root", True)
    assert account_of_uid(0) == root


def test_the_user_of_the_tests_is_found_both_ways() -> None:
    """By name and by number it is the same account."""
    name = pwd.getpwuid(os.geteuid()).pw_name
    assert account_of(name) == account_of_uid(os.geteuid())


@pytest.mark.parametrize("name", ["", "nobody-has-this-name", "a\0b", "\udcff", "x" * 100_000])
def test_a_name_that_nobody_has(name: str) -> None:
    """Any bytes that a client sends are answered with None."""
    assert account_of(name) is None


def test_a_number_that_nobody_has() -> None:
    """Nor one that is no number of a user."""
    assert account_of_uid(3_999_999_999) is None
    assert account_of_uid(2**70) is None


def test_a_daemon_is_no_operator() -> None:
    """The user `daemon` of every Debian is in no group of ours."""
    daemon = account_of("daemon")
    assert daemon is not None
    assert not daemon.is_operator
