"""What an operation has to stop, start and commit.

======== ============================== =============================== ==================
kind     stops                          starts                          committed after
======== ============================== =============================== ==================
switch   what runs and is in the way    the target                      target instead of
                                                                        what conflicts
start    nothing, or it is refused      the targets, else the committed unchanged
stop     the targets, else all          nothing                         unchanged
restart  the targets, else all          the same                        unchanged
hold     all                            nothing, and keeps it so        unchanged
repair   nothing                        the targets                     unchanged
======== ============================== =============================== ==================
"""

from collections.abc import Iterable

from appliance.domain.observed import Observed
from appliance.domain.operations import Goal, HoldUntil, Kind
from appliance.domain.profile import Catalogue


def in_the_way(name: str, catalogue: Catalogue) -> frozenset[str]:
    """Profiles that can never run together with `name`."""
    mine = catalogue[name].claim
    return frozenset(
        other
        for other, applied in catalogue.items()
        if other != name and applied.claim.intersects(mine)
    )


def goal_of(
    kind: Kind,
    names: tuple[str, ...],
    *,
    catalogue: Catalogue,
    observed: Observed,
    committed: Iterable[str],
    hold_until: HoldUntil = None,
) -> Goal:
    """The goal of an operation on `names` (all known) as the box is now."""
    busy = observed.busy()
    committed = tuple(sorted(committed))
    match kind:
        case Kind.SWITCH:
            rivals = frozenset[str]().union(*(in_the_way(n, catalogue) for n in names))
            evicted = tuple(n for n in busy if n in rivals and n not in names)
            kept = tuple(n for n in committed if n not in rivals and n not in names)
            return Goal(
                stop=evicted, start=names, restore=evicted, commit=tuple(sorted({*kept, *names}))
            )
        case Kind.START:
            return Goal(start=names or _known(committed, catalogue))
        case Kind.REPAIR:
            return Goal(start=names)
        case Kind.STOP:
            return Goal(stop=tuple(sorted(names)) or busy)
        case Kind.RESTART:
            again = tuple(sorted(names)) or observed.serving()
            return Goal(stop=again, start=again)
        case Kind.HOLD:
            return Goal(stop=busy, restore=(), hold_until=hold_until)


def _known(names: Iterable[str], catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(n for n in names if n in catalogue)
