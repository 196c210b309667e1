"""Repair: decision which committed profiles the supervisor starts again by itself.

=========================================  ==========================================
a committed profile that is idle           what follows
=========================================  ==========================================
crashed until systemd gave up              repaired, with a growing pause
its start was refused by the gate          repaired, with a growing pause
stopped by hand                            left alone until a switch, a start or a boot
crashed, and then stopped by hand          left alone, as above
evicted by a rival that then was stopped   left alone, as above
evicted by a rival that then crashed for   brought back, as after a crash
good, or that the gate refused
left down by ``--no-rollback``             left alone, as above
a rival runs                               left alone
during a hold, while a command runs        left alone
left down by a timed hold that is over     brought back, as after a crash
=========================================  ==========================================

systemd itself restarts a crashed engine; a stop by hand that ends badly (an engine that
exits with an error on SIGTERM) is not a crash, hence the exact results below. Between a
profile and its rivals the last deliberate act decides: who starts a rival wants the box to
serve, and when that rival is lost by accident the box serves what is committed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from appliance.model.observed import (
    EXIT_LEASE_HELD,
    EXIT_UNFIT,
    ActiveState,
    Observed,
    ObservedUnit,
)
from appliance.model.operations import Finished, Kind, Outcome
from appliance.model.profile import Catalogue
from appliance.switch.goals import in_the_way

PAUSES_S: Final[Sequence[float]] = (5.0, 30.0, 60.0, 300.0, 900.0)
"""Seconds of pause after the n-th repair within `WINDOW_S`; the last one repeats."""
WINDOW_S: Final = 3600.0


def to_repair(
    *,
    committed: Iterable[str],
    observed: Observed,
    catalogue: Catalogue,
    refusals: Mapping[str, str],
    attempts: Mapping[str, Sequence[float]],
    now_unix_s: float,
    left: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the committed profiles to start now, sorted; none while the box must not change.

    Args:
        committed: Names to serve after a boot.
        observed: The box.
        catalogue: Every applied profile.
        refusals: The gate's last refusals by profile.
        attempts: Unix seconds of earlier repairs, by profile.
        now_unix_s: Unix seconds.
        left: What comes back although it has not crashed (`left_by_hold`, `evicted_in_vain`).
    """
    if observed.hold_active or observed.going_down or not observed.run.idle:
        return ()
    return tuple(
        name
        for name in sorted(committed)
        if name in catalogue
        and observed.unit(name).idle
        and (name in left or _has_crashed(observed.unit(name), refused=name in refusals))
        and all(observed.unit(rival).idle for rival in in_the_way(name, catalogue))
        and now_unix_s >= _not_before(attempts.get(name, ()), now_unix_s)
    )


def left_by_hold(
    until_unix_s: float,
    *,
    committed: Iterable[str],
    observed: Observed,
    catalogue: Catalogue,
    attempts: Mapping[str, Sequence[float]],
) -> tuple[str, ...]:
    """Return the committed profiles that only a hold until `until_unix_s`, now over, keeps down.

    Not where a rival has come up meanwhile, and not what has failed since: that has crashed.
    """
    return tuple(
        name
        for name in sorted(committed)
        if name in catalogue
        and _is_left(observed.unit(name), attempts.get(name, ()), until_unix_s)
        and all(_is_down(observed.unit(rival)) for rival in in_the_way(name, catalogue))
    )


def evicted_in_vain(
    *,
    committed: Iterable[str],
    observed: Observed,
    catalogue: Catalogue,
    refusals: Mapping[str, str],
) -> Mapping[str, str]:
    """Return stopped committed profiles with the rival that evicted them and was then lost.

    Times of the units are needed (`ObservedUnit.changed_s`, `stopped_s`). A profile whose end
    systemd has forgotten is not among them: it is not known whether the rival came after it.
    """
    found: dict[str, str] = {}
    for name in sorted(committed):
        unit = observed.unit(name)
        if name not in catalogue or not unit.idle or not unit.stopped_s:
            continue
        rivals = {r: observed.unit(r) for r in in_the_way(name, catalogue)}
        last = max(rivals, key=lambda r: (rivals[r].changed_s, r), default=None)
        if last is None or not all(rival.idle for rival in rivals.values()):
            continue
        # A rival that hits its start limit is lost while what it evicts still stops.
        is_later = rivals[last].changed_s > unit.stopped_s
        if is_later and _is_lost(rivals[last], refused=last in refusals):
            found[name] = last
    return found


def left_by_choice(last: Finished | None, boot_id: str) -> frozenset[str]:
    """Return the profiles that an operation stopped that failed in this boot without roll-back."""
    if last is None or last.outcome is not Outcome.FAILED:
        return frozenset()
    operation = last.operation
    if operation.rollback or operation.boot_id != boot_id:
        return frozenset()
    return frozenset(operation.goal.stop)


def stopped_by_choice(
    committed: Iterable[str], observed: Observed, newest: Iterable[Finished], boot_id: str
) -> frozenset[str]:
    """Return the idle committed profiles whose last operation of this boot was a stop.

    systemd does not stop a unit that has failed, so it stays failed. One that has failed again since then was
    started by hand.

    Args:
        committed: Names to serve after a boot.
        observed: The box, with the times of failed units.
        newest: The operations that are over, newest first.
        boot_id: This boot.
    """
    undecided = {name for name in committed if observed.unit(name).idle}
    stopped: set[str] = set()
    for finished in newest:
        operation = finished.operation
        if operation.boot_id != boot_id or not undecided:
            break
        if finished.outcome is Outcome.REFUSED:
            continue
        is_stop = operation.kind is Kind.STOP and finished.outcome is Outcome.DONE
        if not operation.target and operation.kind in {Kind.STOP, Kind.HOLD}:
            named = set(undecided)
        else:
            goal = operation.goal
            named = undecided & {*operation.target, *goal.stop, *goal.start, *goal.restore}
        undecided -= named
        if is_stop:
            ended_s = finished.finished_s
            stopped |= {n for n in named if observed.unit(n).changed_s <= ended_s}
    return frozenset(stopped)


def _is_lost(unit: ObservedUnit, *, refused: bool) -> bool:
    unfit = unit.result == "exit-code" and unit.exit_status == EXIT_UNFIT
    failed = unit.active is ActiveState.FAILED
    return (failed and unfit) or _has_crashed(unit, refused=refused)


def _is_left(unit: ObservedUnit, attempts: Sequence[float], until_unix_s: float) -> bool:
    tried = any(t >= until_unix_s for t in attempts)
    return _is_down(unit) and not (tried and unit.active is ActiveState.FAILED)


def _is_down(unit: ObservedUnit) -> bool:
    return unit.idle or unit.active is ActiveState.DEACTIVATING


def _has_crashed(unit: ObservedUnit, *, refused: bool) -> bool:
    if unit.active is ActiveState.FAILED:
        gave_up = unit.result == "start-limit-hit"
        return gave_up or (unit.result == "exit-code" and unit.exit_status == EXIT_LEASE_HELD)
    return refused


def _not_before(attempts: Sequence[float], now_unix_s: float) -> float:
    recent = [t for t in attempts if now_unix_s - WINDOW_S < t <= now_unix_s]
    if not recent:
        return 0.0
    return max(recent) + PAUSES_S[min(len(recent), len(PAUSES_S)) - 1]
