"""Decide the one next action of a running operation.

The decision needs no memory beyond the operation's row: `Steps` only says what this
process has already done, and a process that starts anew repeats a step harmlessly
(stopping what is stopped, starting what runs, asking a warm model again).

forward      checks, holds, drains, stops, starts, warms up, commits
any failure  after preflight: `TurnRound`, and the same steps run towards the restore set
shutdown     `Wait`: a failure seen while the system goes down says nothing about a model
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from appliance.domain.observed import ActiveState, Observed, ObservedUnit
from appliance.domain.operations import PHASE_ORDER, Operation, Outcome, Phase
from appliance.domain.profile import Catalogue
from appliance.planning.goals import in_the_way
from appliance.planning.wording import joined

CANCELLED: Final = "cancelled"
"""Why an operation turned round, or was refused, when somebody asked for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What this process has done for the operation, in its present direction."""

    checked: bool = False
    held: bool = False
    drained: bool = False
    stopped: frozenset[str] = frozenset()
    """Profiles whose stop was asked for."""
    started: frozenset[str] = frozenset()
    """Profiles whose start was asked for."""
    warm: frozenset[str] = frozenset()
    committed: bool = False
    failure: str = ""
    """What the last step reported; empty: nothing."""
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    """Look at everything that could refuse the change."""


@dataclass(frozen=True, slots=True)
class HoldRequests:
    """Ask the gateway to queue new requests."""


@dataclass(frozen=True, slots=True)
class DrainRequests:
    """Let requests in flight to these profiles finish."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Queue a stop job."""

    name: str


@dataclass(frozen=True, slots=True)
class Start:
    """Queue a start job."""

    name: str


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Ask for one real completion."""

    name: str


@dataclass(frozen=True, slots=True)
class Commit:
    """Write the committed names, begin or end the hold, release the requests."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something changes."""

    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class TurnRound:
    """Begin the roll-back."""

    reason: str
    phase: Phase | None = None
    """Where it failed, when that is further than anybody saw; None: in the present phase."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The operation is over."""

    outcome: Outcome
    message: str


Action = (
    Check
    | HoldRequests
    | DrainRequests
    | Stop
    | Start
    | WarmUp
    | Commit
    | Wait
    | TurnRound
    | Finish
)


def next_action(
    operation: Operation,
    steps: Steps,
    observed: Observed,
    catalogue: Catalogue,
    refusals: Mapping[str, str],
) -> Action:
    """The next action. Never starts a profile while one of its rivals is not idle.

    Args:
        operation: The row.
        steps: What was done for it by this process, in its present direction.
        observed: The box, read after the last step.
        catalogue: Every applied profile.
        refusals: What the gate said when it last refused a start, by profile.
    """
    if observed.going_down:
        return Wait(operation.phase, "the system is going down")
    if steps.committed:
        return _finish(operation, catalogue)
    return (
        _failure(operation, steps, observed, catalogue, refusals)
        or _preflight(operation, steps)
        or _come_down(operation, steps, observed)
        or _come_up(operation, steps, observed)
        or Commit()
    )


def _is_untouched(operation: Operation) -> bool:
    return operation.phase is Phase.PREFLIGHT and not operation.rolling_back


def _preflight(operation: Operation, steps: Steps) -> Action | None:
    return Check() if _is_untouched(operation) and not steps.checked else None


def _come_down(operation: Operation, steps: Steps, observed: Observed) -> Action | None:
    to_stop = _to_stop(operation, observed)
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
    for name in _to_start(operation):
        if name not in steps.warm:
            return WarmUp(name)
    return None


def _to_start(operation: Operation) -> tuple[str, ...]:
    if not operation.rolling_back:
        return operation.goal.start
    return operation.goal.restore if operation.rollback else ()


def _to_stop(operation: Operation, observed: Observed) -> tuple[str, ...]:
    """What still has to come down: a restarted profile only until it has been down once."""
    if operation.rolling_back:
        wanted: tuple[str, ...] = tuple(
            n for n in operation.goal.start if n not in _to_start(operation)
        )
    elif operation.phase in {Phase.START, Phase.LOAD, Phase.WARM_UP, Phase.COMMIT, Phase.RELEASE}:
        wanted = tuple(n for n in operation.goal.stop if n not in operation.goal.start)
    else:
        wanted = operation.goal.stop
    return tuple(n for n in wanted if not observed.unit(n).idle)


def _came_back(unit: ObservedUnit) -> bool:
    """Started by hand after our stop and before our start."""
    return unit.serving and not unit.has_job


def _next_start(operation: Operation, steps: Steps, observed: Observed) -> Action | None:
    for name in _to_start(operation):
        unit = observed.unit(name)
        if unit.serving:
            continue
        if unit.waits_to_restart and name not in steps.started:
            # systemd leaves a start job waiting behind the pause after a crash; a stop ends it.
            return Stop(name)
        if name in steps.started or _is_coming_up(unit):
            phase = _start_phase(unit)
            return Wait(phase, unit.status_text or f"{name}: {_NO_STATUS[phase]}")
        return Start(name)
    return None


def _is_coming_up(unit: ObservedUnit) -> bool:
    return unit.has_job or unit.active in {ActiveState.ACTIVATING, ActiveState.DEACTIVATING}


def _start_phase(unit: ObservedUnit) -> Phase:
    """Where a start stands, from what systemd runs for it."""
    if unit.sub in {"dead", "failed", "condition"} or unit.active is ActiveState.DEACTIVATING:
        return Phase.RELEASE
    return Phase.LOAD if unit.status_text.startswith("loading") else Phase.START


def _failure(
    operation: Operation,
    steps: Steps,
    observed: Observed,
    catalogue: Catalogue,
    refusals: Mapping[str, str],
) -> Action | None:
    """How a failure changes the course; None: nothing failed."""
    untouched = _is_untouched(operation)
    if untouched and steps.failure:
        return Finish(Outcome.REFUSED, steps.failure)
    rival = _rival(operation, observed, catalogue)
    if rival and (steps.checked or not untouched):
        return Finish(Outcome.SUPERSEDED, f"{rival} was started by hand meanwhile and stays")
    reason = steps.failure or _start_failure(operation, steps, observed, refusals)
    if steps.cancelled and not operation.rolling_back:
        reason = CANCELLED
    if not reason:
        return None
    if untouched:
        return Finish(Outcome.REFUSED, reason)
    if not operation.rolling_back:
        return TurnRound(reason, _failed_phase(operation, steps, observed))
    return Finish(Outcome.FAILED, f"{operation.reason}; roll-back failed: {reason}")


def _failed_phase(operation: Operation, steps: Steps, observed: Observed) -> Phase | None:
    """The start of an engine that came and went between two looks; None: no such thing."""
    if steps.failure or steps.cancelled or _is_reached(Phase.START, operation.phase):
        return None
    ran = (
        unit.exit_status and unit.result not in {"success", "exec-condition"}
        for unit in map(observed.unit, steps.started)
        if not unit.serving
    )
    return Phase.START if any(ran) else None


def _is_reached(phase: Phase, present: Phase) -> bool:
    return PHASE_ORDER[phase] <= PHASE_ORDER[present]


def _start_failure(
    operation: Operation, steps: Steps, observed: Observed, refusals: Mapping[str, str]
) -> str:
    for name in _to_start(operation):
        unit = observed.unit(name)
        if name not in steps.started or unit.serving:
            continue
        if unit.waits_to_restart or not _is_coming_up(unit):
            return f"{name} did not start: {why_down(unit, refusals.get(name, ''))}"
    return ""


def _rival(operation: Operation, observed: Observed, catalogue: Catalogue) -> str | None:
    """A profile that somebody else started and that is in the way of what we start."""
    ours = {*operation.goal.start, *operation.goal.stop, *operation.goal.restore}
    for name in _to_start(operation):
        if name not in catalogue:
            continue
        for other in sorted(in_the_way(name, catalogue)):
            if other not in ours and not observed.unit(other).idle:
                return other
    return None


def why_down(unit: ObservedUnit, refusal: str) -> str:
    """Why a unit that was started is not up, in words for a person."""
    if refusal and not unit.exit_status and unit.result in _BEFORE_THE_ENGINE:
        return refusal
    text = f" ({unit.status_text})" if unit.status_text else ""
    if unit.result in {"exit-code", "signal", "core-dump"}:
        how = "exited with status" if unit.result == "exit-code" else "was killed by signal"
        return f"the engine {how} {unit.exit_status}{text}"
    return _WHY.get(unit.result, unit.result) + text


_BEFORE_THE_ENGINE: Final = frozenset({"success", "exec-condition", "exit-code"})
"""Results of a run that the gate ended: the engine has no exit status."""
_NO_STATUS: Final = {
    Phase.RELEASE: "waiting for the gate",
    Phase.START: "starting the engine",
    Phase.LOAD: "loading",
}
_WHY: Final = {
    "oom-kill": "the engine ran out of memory",
    "start-limit-hit": "it crashed too often",
    "success": "it was stopped by hand",
    "timeout": "no progress until the deadline",
}


def _finish(operation: Operation, catalogue: Catalogue) -> Finish:
    goal = operation.goal
    if operation.rolling_back:
        if not goal.restore or not operation.rollback:
            return Finish(Outcome.FAILED, operation.reason)
        return Finish(Outcome.ROLLED_BACK, operation.reason)
    if goal.start:
        return Finish(Outcome.DONE, _serving(goal.start, catalogue))
    if goal.hold_until is not None:
        return Finish(Outcome.DONE, "holding: nothing is started until a switch or a start")
    return Finish(
        Outcome.DONE, f"{_names(goal.stop)} stopped" if goal.stop else "nothing was running"
    )


def _serving(names: tuple[str, ...], catalogue: Catalogue) -> str:
    """``genesis is serving on :8022``, ``left (:8030) and right (:8031) are serving``."""
    if len(names) == 1:
        return f"{names[0]} is serving on {catalogue[names[0]].endpoint}"
    return f"{joined([f'{n} ({catalogue[n].endpoint})' for n in names])} are serving"


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)
