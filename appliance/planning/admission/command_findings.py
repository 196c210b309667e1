"""Preflight of a command that is to run in place of models."""

from collections.abc import Iterable

from appliance.domain.claims import Claim, gpu_indexes
from appliance.domain.names import RUN_UNIT, profile_of
from appliance.domain.observed import Observed
from appliance.domain.operations import Goal, Kind
from appliance.planning.admission.findings import BoxFacts, Finding, amount_of, named, refuse, warn
from appliance.planning.admission.gpu_readiness import reader_failure


def command_findings(
    kind: Kind, goal: Goal, observed: Observed, box: BoxFacts
) -> tuple[Finding, ...]:
    """Return findings against the command of `goal` with its claim; none for other kinds."""
    if kind is not Kind.RUN:
        return ()
    claim = Claim(devices=frozenset(goal.claim))
    return (*_unit_findings(observed), *(_gpu_findings(claim, box) if claim.gpus else ()))


def _unit_findings(observed: Observed) -> Iterable[Finding]:
    if not observed.run.loaded:
        yield refuse(f"{RUN_UNIT} is not installed: run install.sh again")
    elif not observed.run.idle:
        yield refuse(f"a command runs already: sudo systemctl stop {RUN_UNIT} ends it")


def _gpu_findings(claim: Claim, box: BoxFacts) -> Iterable[Finding]:
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


def _foreign_findings(index: int, box: BoxFacts) -> Iterable[Finding]:
    """Yield warnings of memory that no switch frees; the caller decides whether it is needed."""
    for holder in box.gpu_holders.get(index, ()):
        if profile_of(holder.unit) is None:
            yield warn(f"{amount_of(holder)} of GPU {index} stays with {named(holder)}")
