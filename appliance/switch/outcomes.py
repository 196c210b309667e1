"""Outcomes: the event that closes an operation, its exit status, and texts on how a unit or a start ended."""

from collections.abc import Mapping, Sequence
from typing import Final

from appliance.model.observed import ActiveState, ObservedUnit
from appliance.model.operations import Finished, Goal, Kind, Outcome
from appliance.model.status import EndedOperationRow
from appliance.wire.control import Exit
from appliance.wire.control_events import EndedEvent

_ENDED: Final[Mapping[str, str]] = {
    "core-dump": "was killed by {signal}",
    "exec-condition": "was refused by the gate",
    "exit-code": "exited with status {status}",
    "oom-kill": "ran out of memory",
    "resources": "could not be run for want of resources",
    "signal": "was killed by {signal}",
    "start-limit-hit": "failed too often",
    "success": "was stopped by hand",
    "timeout": "made no progress until the deadline",
    "watchdog": "stopped answering its watchdog",
}
"""Texts by systemd's result of a run (Result of systemd.service(5)), to follow the unit's name."""
_BY_GATE: Final = frozenset({"exec-condition", "exit-code", "success"})
"""Results of a run that the gate ended, if no engine has left an exit status."""
_BY_SILENT_GATE: Final = frozenset({"core-dump", "exit-code", "signal"})
"""Results of a run whose gate failed, if no engine has left an exit status."""
_OF_ENGINE: Final = frozenset(
    {"core-dump", "exit-code", "oom-kill", "signal", "timeout", "watchdog"}
)
BY_HAND: Final = "stopped by hand"
_STOPPING: Final = frozenset({Kind.STOP, Kind.HOLD})
_NO_FAILURE: Final = frozenset({Outcome.DONE, Outcome.SUPERSEDED, Outcome.INTERRUPTED})


def end_text(unit: ObservedUnit) -> str:
    """Return how a unit ended, to follow its name: ``exited with status 3``."""
    status = unit.exit_status
    if unit.ended_cleanly:
        return f"ended by itself with {f'signal {status}' if status else 'status 0'}"
    text = _ENDED.get(unit.result, f"ended with {unit.result}")
    return text.format(status=status, signal=f"signal {status}" if status else "a signal")


def stopped_run_text(unit: ObservedUnit) -> str:
    """Return how a unit ended that was stopped and left a result: ``had to be killed after 5 s``."""
    took_s = unit.changed_s - unit.stopped_s
    if unit.result == "signal" and not unit.exit_status:
        return ""  # a gate that waited: SIGTERM ends it
    if unit.result == "timeout":
        return f"had to be killed after {took_s:.0f} s" if took_s > 0 else "had to be killed"
    return f"{end_text(unit)} {'while it stopped' if took_s > 0 else 'when it was stopped'}"


def crash_text(unit: ObservedUnit) -> str:
    """Return how the engine of a unit ended that systemd starts again, and how often it has done so."""
    if not unit.restarts:
        return end_text(unit)
    return f"{end_text(unit)}; {restart_text(unit.restarts)}"


def restart_text(restarts: int) -> str:
    return f"restarted {'once' if restarts == 1 else f'{restarts} times'} so far"


def start_failure_text(unit: ObservedUnit, refusal: str) -> str:
    """Return why a unit that was started is not up; `refusal`: the gate's sentence, empty for none."""
    if unit.was_stopped:
        how = stopped_run_text(unit)
        return f"it was {BY_HAND}{f', and {how}' if how else ''}"
    said = f" ({unit.status_text})" if unit.status_text else ""
    if not unit.exit_status and not unit.ended_cleanly:
        if refusal and unit.result in _BY_GATE:
            return refusal
        if unit.result in _BY_SILENT_GATE:
            return f"the gate ended without a verdict{said}"
    is_engine = unit.ended_cleanly or unit.result in _OF_ENGINE
    return f"{'the engine' if is_engine else 'it'} {end_text(unit)}{said}"


def rival_end_text(rival: ObservedUnit) -> str:
    """Return how a rival was lost that had evicted another profile, to follow its name and ``which``."""
    return end_text(rival) if rival.active is ActiveState.FAILED else "was refused by the gate"


def stop_text(
    name: str,
    unit: ObservedUnit,
    last: EndedOperationRow | None,
    *,
    watched: bool,
    held: bool = False,
) -> str | None:
    """Return why a committed profile that nothing keeps from running is stopped; None: not known.

    systemd forgets a stopped unit once no process watches it, so what the last operation did to it
    and what the supervisor has seen have to be put together.

    Args:
        name: The profile.
        unit: Its unit.
        last: The row of the last operation; None: there was none.
        watched: The supervisor watches the unit.
        held: A hold that is over has stopped it: only a repair that failed since explains it.
    """
    if last is not None and _explains(name, last):
        if last.outcome not in _NO_FAILURE:
            return f"{last.kind} {last.outcome}: {last.message}"
        if last.kind in _STOPPING and not held:
            return BY_HAND
    if held:
        return None
    if unit.result != "success" and not unit.was_stopped:
        return f"{end_text(unit)}, then stopped"
    if unit.since_unix_s > 0 or unit.was_stopped:
        return BY_HAND
    return "not started since the supervisor began" if watched else None


def _explains(name: str, last: EndedOperationRow) -> bool:
    """Tell whether the last operation can have left a profile stopped: a refused stop cannot."""
    if last.target and name not in last.target:
        return False
    return last.kind not in _STOPPING or last.outcome != Outcome.REFUSED


def closing_event(
    finished: Finished,
    *,
    serving: Sequence[str],
    committed: Sequence[str],
    log: Sequence[str] = (),
) -> EndedEvent:
    """Return the event that closes the conversation about an operation.

    Args:
        finished: Its row.
        serving: Profiles that serve now.
        committed: What a boot starts.
        log: The last lines of the backend that failed, if one did.
    """
    operation = finished.operation
    came_back = finished.outcome is Outcome.ROLLED_BACK or (
        operation.ran and finished.outcome is Outcome.DONE
    )
    return EndedEvent(
        operation=operation.id,
        kind=operation.kind,
        target=operation.target,
        outcome=finished.outcome,
        cause=finished.cause,
        exit=_exit(finished, serves=bool(serving)),
        message=finished.message,
        serving=tuple(serving),
        committed=tuple(committed),
        restored=_restored(operation.goal) if came_back else (),
        log=tuple(log),
        phases_ms=finished.phases_ms,
        ms=round(finished.total_ms, 1),
    )


def _restored(goal: Goal) -> tuple[str, ...]:
    """Return the profiles that had to be started again; the others never stopped."""
    return tuple(n for n in goal.restore if n not in goal.kept)


def _exit(finished: Finished, *, serves: bool) -> int:
    operation = finished.operation
    if finished.outcome is Outcome.DONE:
        return Exit.OK
    if finished.outcome is Outcome.ROLLED_BACK:
        return Exit.RESTORED
    emptied = operation.kind is Kind.SWITCH or (
        operation.kind is Kind.RUN and bool(operation.goal.restore)
    )
    if finished.outcome is Outcome.FAILED and emptied and not serves:
        return Exit.NOT_RESTORED
    return Exit.FAILED
