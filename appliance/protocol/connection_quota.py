"""Connections of one listening socket, shared out among the users who may connect.

=================================  ==================================================
a user has, of this socket         one more is admitted while
=================================  ==================================================
fewer than `ASSURED`               any place is free that is not root's
fewer than `per_user`              more places are free than are kept for the former
`per_user`                         never
root, as many as it likes          any place is free
=================================  ==================================================

So that one user who takes all that he can get leaves room for the others, and all of them for root.
"""

from collections import Counter
from typing import Final

ASSURED: Final = 4
"""Enough for a person: a status, an operation that is followed, a look at its log."""
_ROOT: Final = 0


class ConnectionQuota:
    """The open connections by user id.

    Args:
        per_user: The most of one user.
        total: The most of all; an eighth is kept for root, a quarter for users with few.
    """

    def __init__(self, *, per_user: int, total: int) -> None:
        self._per_user = per_user
        self._total = total
        self._open: Counter[int] = Counter()

    def admit(self, uid: int) -> bool:
        """Count one more connection of a user; False: there is no place for it."""
        free = self._total - self._open.total()
        mine = self._open[uid]
        if uid != _ROOT:
            free -= self._total // 8
            free -= self._total // 4 if mine >= ASSURED else 0
        if free <= 0 or (uid != _ROOT and mine >= self._per_user):
            return False
        self._open[uid] += 1
        return True

    def leave(self, uid: int) -> int:
        """Count one less; how many the user still has."""
        self._open[uid] -= 1
        left = self._open[uid]
        if left == 0:
            del self._open[uid]
        return left
