"""Operation that runs a command in place of models (launch.run): its preflight and its decisions.

====================  ==========================================================
appliance-run.service  what follows
====================  ==========================================================
idle, not begun       it is started
activating            the command waits for the claim and its memory: phase release
active                the command runs: phase run
idle again            it is over, or was not begun: what was stopped comes back
====================  ==========================================================
"""

from collections.abc import Iterable

from appliance.model.claims import Claim, gpu_indexes
from appliance.model.names import RUN_UNIT, profile_of
from appliance.model.observed import Observed, ObservedUnit, RunReport
from appliance.model.operations import Goal, Kind, Operation, Phase
from appliance.switch.actions import (
    Action,
    BeginRestore,
    BeginRollback,
    StartRun,
    Steps,
    StopRun,
    Wait,
)
from appliance.switch.admission.findings import (
    BoxFacts,
    PreflightFinding,
    amount_of,
    named,
    refuse,
    warn,
)
from appliance.switch.admission.gpu_readiness import reader_failure
from appliance.switch.outcome_text import end_text


def command_findings(
    kind: Kind, goal: Goal, observed: Observed, box: BoxFacts
) -> tuple[PreflightFinding, ...]:
    """Return findings against the command of `goal` with its claim; none for other kinds."""
    if kind is not Kind.RUN:
        return ()
    claim = Claim(devices=frozenset(goal.claim))
    return (*_unit_findings(observed), *(_gpu_findings(claim, box) if claim.gpus else ()))


def _unit_findings(observed: Observed) -> Iterable[PreflightFinding]:
    if not observed.run.loaded:
        yield refuse(f"{RUN_UNIT} is not installed: run install.sh again")
    elif not observed.run.idle:
        yield refuse(f"a command runs already: sudo systemctl stop {RUN_UNIT} ends it")


def _gpu_findings(claim: Claim, box: BoxFacts) -> Iterable[PreflightFinding]:
    present = box.gpu_total_bytes
    if failure := reader_failure(box):
        yield refuse(f"{failure} (--gpus none takes the CPU alone)")
        return
    if box.gpu_error is not None and not present:
        yield refuse(f"no GPU can be read: {box.gpu_error} (--gpus none takes the CPU alone)")
        return
    indexes = gpu_indexes(claim)
    wanted = sorted(present) if indexes is None else sorted(indexes)
    if missing := [n for n in wanted if n not in present]:
        count = len(present)
        yield refuse(f"there is no GPU {missing[0]}: the box has {count or 'none'}")
        return
    if not wanted:
        yield refuse("the box has no GPU: --gpus none takes the CPU alone")
        return
    for index in wanted:
        yield from _foreign_findings(index, box)


def _foreign_findings(index: int, box: BoxFacts) -> Iterable[PreflightFinding]:
    """Yield warnings of memory that no switch frees; the caller decides whether it is needed."""
    for holder in box.gpu_holders.get(index, ()):
        if profile_of(holder.unit) is None:
            yield warn(f"{amount_of(holder)} of GPU {index} stays with {named(holder)}")


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
