"""Decision on the one next action of a running operation.

The decision needs no memory beyond the operation's row: `Steps` only says what this
process has already done, and a process that starts anew repeats a step harmlessly
(stopping what is stopped, starting what runs, asking a warm model again).

a repair     that gives way to a person's request ends as it is: the goal of that request follows from what runs
forward      checks, holds, drains, stops, starts, warms up, verifies, commits
a command    checks, holds, drains, stops, runs it, and goes back to the restore set
any failure  after preflight: `BeginRollback`, and the same steps run towards the restore set; what
             ran before the operation and was not stopped for it is left alone
shutdown     `Wait`: a failure seen while the system goes down says nothing about a model

A command that runs in place of models has a unit of its own, which the launcher (launch.run) runs in:

=====================  ==========================================================
appliance-run.service  what follows
=====================  ==========================================================
idle, not begun        it is started
activating             the command waits for the claim and its memory: phase release
active                 the command runs: phase run
idle again             it is over, or was not begun: what was stopped comes back
=====================  ==========================================================
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from appliance.model.claims import Claim
from appliance.model.observed import ActiveState, Observed, ObservedUnit, RunReport
from appliance.model.operations import PHASE_ORDER, Cause, Kind, Operation, Outcome, Phase
from appliance.model.profile import Catalogue
from appliance.model.wording import joined
from appliance.switch.actions import (
    Action,
    BeginRestore,
    BeginRollback,
    Commit,
    DrainRequests,
    Finish,
    HoldRequests,
    RunPreflight,
    Start,
    StartRun,
    Steps,
    Stop,
    StopRun,
    VerifyEngine,
    Wait,
    WarmUpModel,
)
from appliance.switch.goals import in_the_way, in_the_way_of, to_start
from appliance.switch.outcomes import end_text, start_failure_text

_MOST_ENDS: Final = 2
CANCELLED: Final = "cancelled"
"""Reason of an operation that a caller has cancelled."""


def next_action(
    operation: Operation,
    steps: Steps,
    observed: Observed,
    catalogue: Catalogue,
    refusals: Mapping[str, str],
    *,
    report: RunReport | None = None,
) -> Action:
    """Return the next action. Never starts a profile while one of its rivals is not idle.

    Args:
        operation: The row.
        steps: What was done for it by this process, in its present direction.
        observed: The box, read after the last step.
        catalogue: Every applied profile.
        refusals: What the gate said when it last refused a start, by profile.
        report: What the command's launcher left when it ended; None: nothing.
    """
    if observed.going_down:
        return Wait(operation.phase, "the system is going down")
    if steps.committed:
        return _finish(operation, catalogue)
    return (
        _failure(operation, steps, observed, catalogue, refusals)
        or _preflight(operation, steps)
        or _end_command(operation, steps, observed)
        or _come_down(operation, steps, observed, catalogue)
        or _run_command(operation, steps, observed, report)
        or _come_up(operation, steps, observed)
        or Commit()
    )


def reverse_operation(operation: Operation, steps: Steps, cause: Cause, reason: str) -> Operation:
    """Return the row of an operation that from now on restores what served before.

    What the operation has started itself it may also stop.
    """
    kept = tuple(n for n in operation.goal.kept if n not in steps.started)
    return replace(
        operation,
        goal=replace(operation.goal, kept=kept),
        cause=cause,
        reason=reason,
        phase=Phase.STOP,
    )


def taken_up(operation: Operation) -> tuple[Operation, str]:
    """Return the row for a process that takes an operation up again, and why it must not go on; empty: it may.

    A phase that has ended the supervisor twice would end it again: the operation fails there, and
    its roll-back too, if that is where it happens.
    """
    phase = operation.phase_name
    times = operation.ends.get(phase, 0) + 1
    failure = f"the supervisor has ended {times} times in phase {phase}"
    counted = replace(operation, ends={**operation.ends, phase: times})
    return counted, failure if times >= _MOST_ENDS else ""


def left_in_order(operation: Operation) -> Operation:
    """Return the row for a process that ends in order: `taken_up` does not count that end."""
    phase = operation.phase_name
    return replace(operation, ends={**operation.ends, phase: operation.ends.get(phase, 0) - 1})


def _is_untouched(operation: Operation) -> bool:
    return operation.phase is Phase.PREFLIGHT and not operation.rolling_back


def _preflight(operation: Operation, steps: Steps) -> Action | None:
    return RunPreflight() if _is_untouched(operation) and not steps.checked else None


def _come_down(
    operation: Operation, steps: Steps, observed: Observed, catalogue: Catalogue
) -> Action | None:
    to_stop = _to_stop(operation, steps, observed, catalogue)
    if not to_stop:
        return None
    if not steps.held:
        return HoldRequests()
    if not steps.drained:
        return DrainRequests(tuple(n for n in to_stop if observed.unit(n).serving))
    for name in to_stop:
        if name not in steps.stopped or _came_back(observed.unit(name)):
            return Stop(name)
    return Wait(Phase.STOP, f"{_names(to_stop)} is stopping")


def _come_up(operation: Operation, steps: Steps, observed: Observed) -> Action | None:
    if start := _next_start(operation, steps, observed):
        return start
    kept = operation.goal.kept if operation.rolling_back else ()
    begun = [name for name in to_start(operation) if name not in kept]
    if cold := next((n for n in begun if n not in steps.warm), None):
        return WarmUpModel(cold)
    unverified = next((n for n in begun if n not in steps.verified), None)
    return None if unverified is None else VerifyEngine(unverified)


_UP: Final = frozenset(
    {Phase.RELEASE, Phase.START, Phase.LOAD, Phase.WARM_UP, Phase.VERIFY, Phase.COMMIT}
)
"""Phases in which what an operation evicts is down already."""


def _to_stop(
    operation: Operation, steps: Steps, observed: Observed, catalogue: Catalogue
) -> tuple[str, ...]:
    """Return the profiles that still have to stop; a restarted one only until it was down once.

    On the way back also what was evicted and is in the way of what is restored: of two that followed
    one another when the operation began, the first may still be stopping.
    """
    if operation.rolling_back:
        stays = {*to_start(operation), *operation.goal.kept}
        rivals = _rivals_of(to_start(operation), catalogue)
        begun = (*operation.goal.start, *(n for n in operation.goal.stop if n in rivals))
        wanted = tuple(n for n in begun if n not in stays)
    elif _has_begun(operation, steps, observed):
        return ()  # a profile started by hand now meets the command's leases
    elif operation.phase in _UP:
        wanted = tuple(n for n in operation.goal.stop if n not in operation.goal.start)
    else:
        wanted = operation.goal.stop
    return tuple(n for n in wanted if not observed.unit(n).idle)


def _came_back(unit: ObservedUnit) -> bool:
    """Tell whether a unit was started by hand after its stop and before its start."""
    return unit.serving and not unit.has_job


def _next_start(operation: Operation, steps: Steps, observed: Observed) -> Action | None:
    for name in to_start(operation):
        unit = observed.unit(name)
        if unit.serving:
            continue
        if unit.waits_to_restart and name not in steps.started:
            # systemd leaves a start job waiting behind the pause after a crash; a stop ends it.
            return Stop(name)
        if name in steps.started or _is_coming_up(unit):
            phase = _start_phase(unit, operation.phase)
            return Wait(phase, unit.status_text or f"{name}: {_NO_STATUS[phase]}")
        return Start(name)
    return None


def _is_coming_up(unit: ObservedUnit) -> bool:
    return unit.has_job or unit.active in {ActiveState.ACTIVATING, ActiveState.DEACTIVATING}


def _start_phase(unit: ObservedUnit, present: Phase) -> Phase:
    """Return the phase of a start, from what systemd runs for it.

    A start that fails is in the phase in which it was: each phase that another follows counts as done.
    An engine that has ended is no longer said to load, and its unit is stopped then.

    Args:
        unit: Unit that starts.
        present: Phase of the operation; each start begins with RELEASE.
    """
    if unit.active is ActiveState.DEACTIVATING:
        return present if present in _START_PHASES else Phase.RELEASE
    if unit.sub in {"dead", "failed", "condition"}:
        return Phase.RELEASE
    return Phase.LOAD if unit.loading or present is Phase.LOAD else Phase.START


_NO_STATUS: Final = {
    Phase.RELEASE: "waiting for the gate",
    Phase.START: "starting the engine",
    Phase.LOAD: "loading",
}
_START_PHASES: Final = frozenset(_NO_STATUS)


def _failure(
    operation: Operation,
    steps: Steps,
    observed: Observed,
    catalogue: Catalogue,
    refusals: Mapping[str, str],
) -> Action | None:
    """Return the action after a failure, a rival or a cancel; None: there is none of them."""
    untouched = _is_untouched(operation)
    if steps.superseded_by:
        return Finish(Outcome.SUPERSEDED, f"gave way to {steps.superseded_by}")
    if untouched and steps.failure:
        return Finish(Outcome.REFUSED, steps.failure, Cause.FAILURE)
    rival = _rival(operation, steps, observed, catalogue) or _hold(operation, steps, observed)
    if rival and (steps.checked or not untouched):
        ended = f"{operation.reason}; " if operation.ran else ""
        return Finish(Outcome.SUPERSEDED, f"{ended}{rival} was started by hand meanwhile and stays")
    if steps.cancelled and not operation.rolling_back:
        reason = f"{CANCELLED} by {steps.cancelled_by}" if steps.cancelled_by else CANCELLED
        if untouched:
            return Finish(Outcome.REFUSED, reason, Cause.CANCELLED)
        return BeginRollback(reason, Cause.CANCELLED)
    reason = steps.failure or _start_failure(operation, steps, observed, refusals)
    return _after_failure(operation, steps, observed, reason) if reason else None


def _after_failure(operation: Operation, steps: Steps, observed: Observed, reason: str) -> Action:
    """Return the action after the failure of an operation that has changed something."""
    if operation.rolling_back:
        way = "going back" if operation.ran else "roll-back"
        message = f"{operation.reason}; {way} failed: {reason}"
        return Finish(Outcome.FAILED, message, Cause.FAILURE)
    if operation.kind is Kind.REPAIR:
        # systemd tries again, and after it the next repair
        return Finish(Outcome.FAILED, reason, Cause.FAILURE)
    return BeginRollback(reason, phase=_failed_phase(operation, steps, observed))


def _failed_phase(operation: Operation, steps: Steps, observed: Observed) -> Phase | None:
    """Return phase START if an engine ran and ended between two looks; None: none did."""
    if steps.failure or _is_reached(Phase.START, operation.phase):
        return None
    units = map(observed.unit, steps.started)
    return Phase.START if any(u.engine_ended for u in units if not u.serving) else None


def _is_reached(phase: Phase, present: Phase) -> bool:
    return PHASE_ORDER[phase] <= PHASE_ORDER[present]


def _start_failure(
    operation: Operation, steps: Steps, observed: Observed, refusals: Mapping[str, str]
) -> str:
    for name in to_start(operation):
        unit = observed.unit(name)
        if name not in steps.started or unit.serving:
            continue
        if unit.waits_to_restart or not _is_coming_up(unit):
            return f"{name} did not start: {start_failure_text(unit, refusals.get(name, ''))}"
    return ""


def _rivals_of(names: tuple[str, ...], catalogue: Catalogue) -> frozenset[str]:
    known = (n for n in names if n in catalogue)
    return frozenset[str]().union(*(in_the_way(n, catalogue) for n in known))


def _rival(
    operation: Operation, steps: Steps, observed: Observed, catalogue: Catalogue
) -> str | None:
    """Return a profile started by hand that prevents a start of the operation; None: none."""
    ours = {*operation.goal.start, *operation.goal.stop, *operation.goal.restore}
    if operation.rolling_back:
        ours -= {
            *operation.goal.kept
        }  # came up before the operation, in the way of what it evicted
    rivals = _rivals_of(to_start(operation), catalogue)
    if _has_begun(operation, steps, observed):
        return None
    if _is_forward(operation):
        rivals = in_the_way_of(Claim(devices=frozenset(operation.goal.claim)), catalogue)
    return next((n for n in sorted(rivals - ours) if not observed.unit(n).idle), None)


def _hold(operation: Operation, steps: Steps, observed: Observed) -> str | None:
    """Return ``a hold`` if one began after the operation, which must not end it; None: none did."""
    if not observed.hold_active or not to_start(operation):
        return None
    if steps.started:  # a start ends a hold, though not within the same look
        later = all(observed.unit(name).idle for name in steps.started)
    else:
        later = operation.rolling_back or operation.kind is Kind.REPAIR
    return "a hold" if later else None


def _finish(operation: Operation, catalogue: Catalogue) -> Finish:
    goal = operation.goal
    if operation.ran:
        again = goal.restore if operation.rollback else ()
        served = f"; {_serving(again, catalogue, again=True)}" if again else ""
        return Finish(Outcome.DONE, f"{operation.reason}{served}")
    if operation.rolling_back:
        if not goal.restore or not operation.rollback:
            return Finish(Outcome.FAILED, operation.reason, operation.cause)
        return Finish(Outcome.ROLLED_BACK, operation.reason, operation.cause)
    if goal.start:
        return Finish(Outcome.DONE, _serving(goal.start, catalogue))
    if goal.hold_until is not None:
        return Finish(Outcome.DONE, "holding: nothing is started until a switch or a start")
    return Finish(
        Outcome.DONE, f"{_names(goal.stop)} stopped" if goal.stop else "nothing was running"
    )


def _serving(names: tuple[str, ...], catalogue: Catalogue, *, again: bool = False) -> str:
    """Return ``genesis is serving on :8022``, ``left (:8030) and right (:8031) are serving``."""
    how = "serving again" if again else "serving"
    if len(names) == 1:
        return f"{names[0]} is {how} on {catalogue[names[0]].endpoint}"
    return f"{joined([f'{n} ({catalogue[n].endpoint})' for n in names])} are {how}"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)


# --- a command in place of models ------------------------------------------------------


def _is_forward(operation: Operation) -> bool:
    """Tell whether a command is to run, or runs."""
    return operation.kind is Kind.RUN and not operation.rolling_back


def _has_begun(operation: Operation, steps: Steps, observed: Observed) -> bool:
    """Tell whether the command's unit has been started: its leases then decide who may run."""
    known = steps.run_started or operation.phase is Phase.RUN or not observed.run.idle
    return _is_forward(operation) and known


def _run_command(
    operation: Operation, steps: Steps, observed: Observed, report: RunReport | None
) -> Action | None:
    """Start the command once, and wait for its end."""
    if not _is_forward(operation):
        return None
    unit = observed.run
    if not unit.idle:
        name = " ".join(operation.target)
        if unit.serving or operation.phase is Phase.RUN:
            return Wait(Phase.RUN, unit.status_text or name)
        return Wait(Phase.RELEASE, unit.status_text or f"{name}: waiting for the claim")
    if not _has_begun(operation, steps, observed):
        return StartRun()
    return _after_command(operation, unit, report)


def _after_command(operation: Operation, unit: ObservedUnit, report: RunReport | None) -> Action:
    # A launcher that ended badly left no report; a report found then belongs to an earlier one.
    if unit.ended_badly:
        return BeginRollback(f"the launcher of the command {end_text(unit)}")
    if report is None or report.operation not in {None, operation.id}:
        return BeginRollback("the launcher of the command left no report of how it ended")
    return (
        BeginRestore(f"the command ended {report.text}")
        if report.ran
        else BeginRollback(report.text)
    )


def _end_command(operation: Operation, steps: Steps, observed: Observed) -> Action | None:
    """Stop the command, and wait until its last process is gone, before anything is restored."""
    if operation.kind is not Kind.RUN or not operation.rolling_back or observed.run.idle:
        return None
    return Wait(Phase.STOP, "the command is ending") if steps.run_stopped else StopRun()
