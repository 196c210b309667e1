"""Shares of the places on a socket: nobody who takes all that he can get shuts others out."""

from appliance.protocol.connection_quota import ASSURED, ConnectionQuota

ROOT, ANA, BOB = 0, 1000, 1001


def taken(quota: ConnectionQuota, uid: int) -> int:
    """Connections that a user gets who asks without an end."""
    count = 0
    while count < 1000 and quota.admit(uid):
        count += 1
    return count


def test_a_user_has_a_cap_and_a_place_comes_back() -> None:
    """More than `per_user` are refused until one of the user's own has left."""
    quota = ConnectionQuota(per_user=64, total=256)
    assert taken(quota, ANA) == 64
    assert quota.leave(ANA) == 63
    assert quota.admit(ANA)
    assert not quota.admit(ANA)


def test_a_newcomer_is_served_beside_many_greedy_users() -> None:
    """However many users take all they can get, others have a few connections each, and so has root."""
    quota = ConnectionQuota(per_user=64, total=256)
    greedy = [taken(quota, uid) for uid in range(2000, 2010)]
    assert greedy[:3] == [64, 64, 32]
    assert set(greedy[3:]) == {ASSURED}
    assert quota.admit(BOB)
    assert taken(quota, ROOT) >= 32


def test_root_takes_every_place_and_gives_it_back() -> None:
    """Root has no share but the whole; what it leaves is everybody's."""
    quota = ConnectionQuota(per_user=2, total=16)
    assert taken(quota, ROOT) == 16
    assert not quota.admit(ANA)
    for left in range(15, -1, -1):
        assert quota.leave(ROOT) == left
    assert taken(quota, ANA) == 2
