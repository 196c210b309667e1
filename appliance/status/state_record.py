"""Record of profiles' states over days: which changes an observation adds.

============================================  =============================================
an observation                                adds
============================================  =============================================
of another state than the last one            the new state, from now on
of a profile that is no longer told of        ``unknown``, from now on
after a gap without observations              first ``unknown`` for every profile, from the
                                              last observation on
of the same states                            nothing
============================================  =============================================
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

DEGRADED: Final = "degraded"
"""State of a profile that serves and is slower than it should be."""
UNKNOWN: Final = "unknown"
GAP_S: Final = 90.0
"""Time without an observation after which nothing is known of it: the supervisor tells the status every 20 s
at least, and a restart of both daemons takes less."""
KEPT_S: Final = 8 * 86_400.0
"""Age of the oldest change that is kept: the page shows seven days."""
MOST_OF_A_PROFILE: Final = 400
"""Changes of one profile that are kept, the newest: a crash loop makes about ten an hour."""
MOST_TOLD: Final = 8000
"""Changes in one answer, the newest: 30 bytes each, of the 1 MiB of a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateChange:
    """State of a profile from some time on."""

    unix_s: float
    profile: str
    state: str


def state_changes(
    last: Mapping[str, str], seen: Mapping[str, str], *, until: float | None, now: float
) -> Iterator[StateChange]:
    """Yield the changes that an observation adds to a record.

    Args:
        last: States at the end of the record.
        seen: States that are observed.
        until: Unix seconds of the last observation; None: this is the first.
        now: Unix seconds.
    """
    known = dict(last)
    if until is not None and now - until > GAP_S:
        for profile in sorted(known):
            if known[profile] != UNKNOWN:
                yield StateChange(unix_s=until, profile=profile, state=UNKNOWN)
                known[profile] = UNKNOWN
    for profile in sorted(known.keys() | seen.keys()):
        state = seen.get(profile, UNKNOWN)
        if known.get(profile, UNKNOWN) != state:
            yield StateChange(unix_s=now, profile=profile, state=state)
