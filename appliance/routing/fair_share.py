"""Fair shares of a full gateway: which connections and requests of which owners give way.

No owner is limited while there is room. After that a newcomer gets some of what the owner with the
largest total has:

===========  ======================================  =========================================
use     of                                      gives way
===========  ======================================  =========================================
IDLE         a connection between two requests       to every owner, the longest idle first
READING      a request that is still coming          to every owner, the slowest first
WORKING      a request that waits or is in exchange  to owners who have less, the newest first
===========  ======================================  =========================================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class ShareUse(IntEnum):
    """Use of a share; the smallest value is evicted first."""

    IDLE = 0
    READING = 1
    WORKING = 2


@dataclass(slots=True)
class Share:
    """Share of one connection or request. Not frozen, because a frozen one is slow to construct."""

    owner: str
    size: int
    use: ShareUse
    order: float = 0.0
    """Order among shares of one use: the smallest is evicted first, then the first in the list."""


def choose_evictions(
    shares: Sequence[Share], newcomer: str, *, least: int, most: int | None = None
) -> list[int]:
    """Return the indices of the shares to evict; empty: the newcomer is refused instead.

    Args:
        shares: All shares, those of the newcomer included.
        newcomer: Owner for whom room is made.
        least: Size that has to come free.
        most: Size to free while no WORKING share has to go, which costs no more than freeing less
            again and again. None: `least`.
    """
    totals: dict[str, int] = {newcomer: 0}
    for share in shares:
        totals[share.owner] = totals.get(share.owner, 0) + share.size
    left = _by_owner(shares)
    freed = 0
    evicted: list[int] = []
    while freed < (most or least):
        at = _choose_next(shares, left, totals, newcomer)
        if at is None or (freed >= least and shares[at].use is ShareUse.WORKING):
            break
        share = shares[at]
        left[share.owner].pop()
        totals[share.owner] -= share.size
        freed += share.size
        evicted.append(at)
    return evicted if freed >= least else []


def _by_owner(shares: Sequence[Share]) -> dict[str, list[int]]:
    """Return the indices of each owner's shares, the next to evict last."""
    ranked = sorted((-share.use, -share.order, -at) for at, share in enumerate(shares))
    found: dict[str, list[int]] = {}
    for _, _, at in ranked:
        found.setdefault(shares[-at].owner, []).append(-at)
    return found


def _choose_next(
    shares: Sequence[Share], left: dict[str, list[int]], totals: dict[str, int], newcomer: str
) -> int | None:
    """Return the index of the next share to evict; None: no owner has more than the newcomer."""
    enough = totals[newcomer]
    for owner in sorted(totals, key=lambda name: -totals[name]):
        if totals[owner] < enough:
            return None
        if left.get(owner):
            at = left[owner][-1]
            if shares[at].use is not ShareUse.WORKING or totals[owner] > enough:
                return at
    return None


def group_of(address: str) -> str:
    """Return the owner of a remote address: the IPv4 address, or the IPv6 network of /64."""
    if ":" not in address:
        return address
    head, gap, tail = address.partition("%")[0].partition("::")
    words = head.split(":") if head else []
    if gap:
        rest = tail.split(":") if tail else []
        words += ["0"] * (8 - len(words) - len(rest)) + rest
    return ":".join(words[:4]) + "::/64"
