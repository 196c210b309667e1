"""Fair shares of a full gateway."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.routing.fair_share import Share, ShareUse, choose_evictions, group_of

IDLE, READING, WORKING = ShareUse


def test_the_owner_with_the_most_gives_way() -> None:
    """An idle connection gives way before one that reads, the longest idle first."""
    shares = [
        Share("few", 1, IDLE, 0.0),
        Share("many", 1, WORKING),
        Share("many", 1, READING, 1.0),
        Share("many", 1, IDLE, 9.0),
        Share("many", 1, IDLE, 8.0),
    ]
    assert choose_evictions(shares, "new", least=1) == [4]
    assert choose_evictions(shares, "new", least=3) == [4, 3, 2]
    assert choose_evictions(shares, "few", least=1) == [4]


def test_an_owner_makes_room_for_itself() -> None:
    """Of its own READING shares the slowest gives way, and of equals the oldest."""
    shares = [
        Share("one", 1, READING, 5.0),
        Share("one", 1, READING, 0.0),
        Share("one", 1, WORKING),
    ]
    assert choose_evictions(shares, "one", least=1) == [1]
    assert choose_evictions([Share("one", 1, IDLE)] * 3, "one", least=1) == [0]
    assert choose_evictions(shares[2:], "one", least=1) == []


def test_work_gives_way_only_to_those_who_have_less() -> None:
    """The newest request gives way, so that what has run long is finished."""
    shares = [Share("many", 1, WORKING, -n) for n in range(4)]
    shares += [Share("few", 1, WORKING, -n) for n in range(4, 6)]
    assert choose_evictions(shares, "new", least=1) == [3]
    assert choose_evictions(shares, "few", least=1) == [3]
    assert choose_evictions(shares, "many", least=1) == []


def test_more_is_freed_than_needed_while_that_costs_nobody_work() -> None:
    """As long as only idle shares go, up to `most` is freed."""
    shares = [Share("many", 1, IDLE, 0.0), Share("many", 1, IDLE, 1.0), Share("many", 1, WORKING)]
    assert choose_evictions(shares, "new", least=1, most=8) == [0, 1]


def test_nobody_gives_way_in_vain() -> None:
    """Where too little would come free, no share gives way."""
    shares = [Share("a", 5, READING), Share("b", 3, WORKING)]
    assert choose_evictions(shares, "new", least=9) == []
    assert choose_evictions(shares, "new", least=6) == [0, 1]
    assert choose_evictions([], "new", least=1) == []


@given(
    st.lists(
        st.builds(
            Share,
            owner=st.sampled_from("abc"),
            size=st.integers(1, 9),
            use=st.sampled_from(ShareUse),
            order=st.floats(-9, 9),
        ),
        max_size=12,
    ),
    st.sampled_from("abc"),
    st.integers(1, 20),
)
def test_no_owner_loses_work_to_one_who_has_more(
    shares: list[Share], newcomer: str, least: int
) -> None:
    """An owner that gives way has at least as much as the newcomer; for a WORKING share, more."""
    totals = {name: sum(s.size for s in shares if s.owner == name) for name in "abc"}
    own = totals[newcomer]
    gone = choose_evictions(shares, newcomer, least=least)
    assert len(set(gone)) == len(gone)
    for at in gone:
        share = shares[at]
        if share.owner != newcomer:
            assert totals[share.owner] >= min(own, totals[newcomer])
            assert share.use is not WORKING or totals[share.owner] > totals[newcomer]
        else:
            assert share.use is not WORKING
        totals[share.owner] -= share.size


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8::6", "2001:db8:0:0::/64"),
        ("fe80::1%eth0", "fe80:0:0:0::/64"),
        ("::ffff", "0:0:0:0::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
    ],
)
def test_one_owner_beyond_this_machine(address: str, group: str) -> None:
    """Addresses of one IPv6 network of /64 are one owner."""
    assert group_of(address) == group
