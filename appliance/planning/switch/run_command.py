"""Decisions of an operation that runs a command in place of models (launch.run).

====================  ==========================================================
appliance-run.service  what follows
====================  ==========================================================
idle, not begun       it is started
activating            the command waits for the claim and its memory: phase release
active                the command runs: phase run
idle again            it is over, or was not begun: what was stopped comes back
====================  ==========================================================
"""

from appliance.domain.observed import Observed, ObservedUnit, RunReport
from appliance.domain.operations import Kind, Operation, Phase
from appliance.planning.status.outcome_text import end_text
from appliance.planning.switch.actions import (
    Action,
    BeginRestore,
    BeginRollback,
    StartRun,
    Steps,
    StopRun,
    Wait,
)


def is_forward(operation: Operation) -> bool:
    """Tell whether a command is to run, or runs."""
    return operation.kind is Kind.RUN and not operation.rolling_back


def has_begun(operation: Operation, steps: Steps, observed: Observed) -> bool:
    """Tell whether the command's unit has been started: its leases then decide who may run."""
    known = steps.run_started or operation.phase is Phase.RUN or not observed.run.idle
    return is_forward(operation) and known


def run_command(
    operation: Operation, steps: Steps, observed: Observed, report: RunReport | None
) -> Action | None:
    """Start the command once, and wait for its end."""
    if not is_forward(operation):
        return None
    unit = observed.run
    if not unit.idle:
        name = " ".join(operation.target)
        if unit.serving or operation.phase is Phase.RUN:
            return Wait(Phase.RUN, unit.status_text or name)
        return Wait(Phase.RELEASE, unit.status_text or f"{name}: waiting for the claim")
    if not has_begun(operation, steps, observed):
        return StartRun()
    return _ended(operation, unit, report)


def _ended(operation: Operation, unit: ObservedUnit, report: RunReport | None) -> Action:
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


def end_command(operation: Operation, steps: Steps, observed: Observed) -> Action | None:
    """Stop the command, and wait until its last process is gone, before anything is restored."""
    if operation.kind is not Kind.RUN or not operation.rolling_back or observed.run.idle:
        return None
    return Wait(Phase.STOP, "the command is ending") if steps.run_stopped else StopRun()
