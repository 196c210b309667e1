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
run      what runs and is in the way    nothing, but a command; what    unchanged
         of the command's claim         was stopped comes back
======== ============================== =============================== ==================
"""

from collections.abc import Iterable

from appliance.domain.claims import NOTHING, Claim
from appliance.domain.observed import Observed
from appliance.domain.operations import Goal, HoldUntil, Kind
from appliance.domain.profile import Catalogue


def in_the_way(name: str, catalogue: Catalogue) -> frozenset[str]:
    """Profiles that can never run together with `name`."""
    return in_the_way_of(catalogue[name].claim, catalogue) - {name}


def in_the_way_of(claim: Claim, catalogue: Catalogue) -> frozenset[str]:
    """Profiles that can never run while somebody has `claim`."""
    return frozenset(n for n, applied in catalogue.items() if applied.claim.intersects(claim))


def goal_of(
    kind: Kind,
    names: tuple[str, ...],
    *,
    catalogue: Catalogue,
    observed: Observed,
    committed: Iterable[str],
    hold_until: HoldUntil = None,
    claim: Claim = NOTHING,
) -> Goal:
    """The goal of an operation on `names` (all known) as the box is now.

    Args:
        kind: What was asked for.
        names: Profiles; none for a run.
        catalogue: Every applied profile.
        observed: The box.
        committed: Names to serve after a boot.
        hold_until: Of a hold.
        claim: Of a run.
    """
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
        case Kind.START | Kind.REPAIR:
            return Goal(start=names or _known(committed, catalogue))
        case Kind.STOP:
            return Goal(stop=tuple(sorted(names)) or busy)
        case Kind.RESTART:
            again = tuple(sorted(names)) or observed.serving()
            return Goal(stop=again, start=again)
        case Kind.HOLD:
            return Goal(stop=busy, restore=(), hold_until=hold_until)
        case Kind.RUN:
            rivals = in_the_way_of(claim, catalogue)
            evicted = tuple(n for n in busy if n in rivals)
            return Goal(stop=evicted, restore=evicted, claim=tuple(sorted(claim.devices)))


def _known(names: Iterable[str], catalogue: Catalogue) -> tuple[str, ...]:
    return tuple(n for n in names if n in catalogue)
