"""Verdict on a month: which incidents the phone was told of once, late, twice or not at all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from appliance.model.alerts import TransitionKind
from tests.bench.life_box import Told
from tests.bench.life_world import Effect

_BEGINS_WITHIN_S: Final = 1200.0
"""Longest time from an incident to its alert, and from its end to the end of the alert."""
_MOST_FLAPS: Final = 3
"""Firings of a service that comes and goes, before one message says that it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on a month."""

    incidents: int
    told: int
    """Incidents of which the phone was told once."""
    missed: Sequence[Effect]
    doubled: Sequence[Effect]
    """Incidents of which it was told more than once, reminders not counted."""
    false: Sequence[Told]
    """Messages about nothing that was planted."""
    unresolved: Sequence[Effect]
    """Incidents whose end it was not told of."""
    reminders: int


def judge(effects: Sequence[Effect], told: Sequence[Told]) -> Verdict:
    """Return the verdict on what a phone was told."""
    planted = [effect for effect in effects if effect.planted is not None]
    by_effect: dict[int, list[Told]] = {n: [] for n in range(len(planted))}
    false = []
    owners: dict[str, int] = {}
    for one in told:
        owner = owners.get(one.alert, _owner(planted, one))
        if owner is None:
            false.append(one)
        else:
            owners[one.alert] = owner
            by_effect[owner].append(one)
    counts = {n: Counter(one.kind for one in found) for n, found in by_effect.items()}
    return Verdict(
        incidents=len(planted),
        told=sum(_times(planted[n], counts[n]) == 1 for n in counts),
        missed=[planted[n] for n in counts if _times(planted[n], counts[n]) == 0],
        doubled=[planted[n] for n in counts if _times(planted[n], counts[n]) > 1],
        false=false,
        unresolved=[
            planted[n] for n, found in counts.items() if not found[TransitionKind.RESOLVED]
        ],
        reminders=sum(found[TransitionKind.REMINDED] for found in counts.values()),
    )


def _owner(planted: Sequence[Effect], told: Told) -> int | None:
    """Return the number of the incident that a message is about; None: none is."""
    for n, effect in enumerate(planted):
        incident = effect.planted
        assert incident is not None
        is_it = (incident.subject, incident.rule) == (told.subject, told.rule)
        if is_it and effect.begin_s <= told.changed_s <= effect.end_s + _BEGINS_WITHIN_S:
            return n
    return None


def _times(effect: Effect, kinds: Mapping[TransitionKind, int]) -> int:
    """Return how often people were told of an incident; a late end alone tells of it, too."""
    assert effect.planted is not None
    fired = kinds[TransitionKind.FIRED]
    if effect.planted.flaps:
        is_once = kinds[TransitionKind.FLAPPING] == 1 and fired <= _MOST_FLAPS
        return 1 if is_once else fired + kinds[TransitionKind.FLAPPING]
    return fired or kinds[TransitionKind.RESOLVED]
