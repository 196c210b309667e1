"""Who gives way when the gateway is full: of the owner who has the most, what is of least use.

Nobody is limited while there is room. A newcomer gets some of what the greediest owner has:

===========  ======================================  =================================
use          what it is                              gives way
===========  ======================================  =================================
IDLE         a connection between two requests       to everybody, the longest idle first
READING      a request that is still coming          to everybody, the slowest first
WORKING      a request that waits or is answered     to owners who have less, the newest first
===========  ======================================  =================================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Use(IntEnum):
    """What a share is used for."""

    IDLE = 0
    READING = 1
    WORKING = 2


@dataclass(slots=True)
class Share:
    """What one connection or request takes. Not frozen only because that makes it slow to make."""

    owner: str
    size: int
    use: Use
    order: float = 0.0
    """Among those of the same use, the smallest gives way first; then those that come first."""


def giving_way(
    shares: Sequence[Share], newcomer: str, *, least: int, most: int | None = None
) -> list[int]:
    """The places of the shares that give way; empty: the newcomer has to.

    Args:
        shares: All of them; those of the newcomer too.
        newcomer: The owner for whom room is made.
        least: The size that has to come free.
        most: While nothing that is being worked on has to go: free so much, because that costs no
            more than freeing less again and again. None: `least`.
    """
    totals: dict[str, int] = {newcomer: 0}
    for share in shares:
        totals[share.owner] = totals.get(share.owner, 0) + share.size
    left = _by_owner(shares)
    freed = 0
    gone: list[int] = []
    while freed < (most or least):
        at = _next(shares, left, totals, newcomer)
        if at is None or (freed >= least and shares[at].use is Use.WORKING):
            break
        share = shares[at]
        left[share.owner].pop()
        totals[share.owner] -= share.size
        freed += share.size
        gone.append(at)
    return gone if freed >= least else []


def _by_owner(shares: Sequence[Share]) -> dict[str, list[int]]:
    """The places of each owner's shares, the next to give way last."""
    ranked = sorted((-share.use, -share.order, -at) for at, share in enumerate(shares))
    found: dict[str, list[int]] = {}
    for _, _, at in ranked:
        found.setdefault(shares[-at].owner, []).append(-at)
    return found


def _next(
    shares: Sequence[Share], left: dict[str, list[int]], totals: dict[str, int], newcomer: str
) -> int | None:
    """The place of the next share to give way; None: nobody has more than the newcomer."""
    enough = totals[newcomer]
    for owner in sorted(totals, key=lambda name: -totals[name]):
        if totals[owner] < enough:
            return None
        if left.get(owner):
            at = left[owner][-1]
            if shares[at].use is not Use.WORKING or totals[owner] > enough:
                return at
    return None


def group_of(address: str) -> str:
    """What counts as one owner beyond this machine: an IPv4 address, or an IPv6 network of /64."""
    if ":" not in address:
        return address
    head, gap, tail = address.partition("%")[0].partition("::")
    words = head.split(":") if head else []
    if gap:
        rest = tail.split(":") if tail else []
        words += ["0"] * (8 - len(words) - len(rest)) + rest
    return ":".join(words[:4]) + "::/64"
