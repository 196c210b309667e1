"""Rules about operations: one that failed, one whose phase has overrun.

Both are told of the box where no profile of the operation is known; a stuck one always, since it keeps
every model that it stopped from serving.
"""

from collections.abc import Iterable
from typing import Final

from appliance.alerts.watchdog_rules.snapshot import BoxLook, EndedOperation
from appliance.alerts.watchdog_rules.watchdog_memory import WatchdogMemory
from appliance.alerts.watchdog_rules.watchdog_rule import (
    bad,
    good,
    profile_subject,
    signed,
)
from appliance.model.alerts import BOX, AlertRule, Finding, Severity
from appliance.model.amounts import duration
from appliance.model.operations import Kind
from appliance.model.wording import joined
from appliance.model.words import Mark

_STARTING: Final = frozenset({Kind.SWITCH, Kind.START, Kind.RESTART})
"""Kinds whose end says whether a model can be started: a failed repair is told as the model's being down."""
_TOLD_S: Final = 86_400.0
"""Age from which a failure is not told anew, as by an agent that has just been installed."""


def judge_last_operation(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the last start failed; the next success of any ends it."""
    del memory
    last = look.last_operation
    is_start = last is not None and last.kind in _STARTING
    is_old = last is not None and look.unix_s - last.ended_unix_s >= _TOLD_S
    subjects = (BOX, *map(profile_subject, look.profiles))
    if last is None or not is_start or (last.failed and is_old):
        yield from (signed(AlertRule.SWITCH_FAILED, one, is_good=None) for one in subjects)
        return
    failed = profile_subject(last.target) if last.target in look.profiles else BOX
    for subject in subjects:
        if not last.failed:
            yield good(AlertRule.SWITCH_FAILED, subject)
        elif subject == failed:
            yield _failed(last, look)
        else:
            yield signed(AlertRule.SWITCH_FAILED, subject, is_good=None)


def _failed(last: EndedOperation, look: BoxLook) -> Finding:
    profile = look.profiles.get(last.target)
    is_live = profile is not None and profile.mark in {Mark.LIVE, None}
    return bad(
        AlertRule.SWITCH_FAILED,
        profile_subject(last.target) if profile is not None else BOX,
        f"{last.kind} failed: {last.outcome}",
        details=(last.text,),
        since_unix_s=last.ended_unix_s,
        command=f"appliance logs {last.target}" if profile is not None else "appliance operations",
        severity=Severity.CRITICAL if is_live else Severity.WARNING,
    )


def judge_running_operation(look: BoxLook, memory: WatchdogMemory) -> Iterable[Finding]:
    """Judge whether the phase of the operation that runs has overrun its deadline."""
    del memory
    operation = look.operation
    if not look.supervisor_answers:
        yield signed(AlertRule.SWITCH_STUCK, BOX, is_good=None)
    elif (
        operation is None
        or operation.deadline_s is None
        or operation.phase_s <= operation.deadline_s
    ):
        yield good(AlertRule.SWITCH_STUCK, BOX)
    else:
        to = f" to {joined(operation.target)}" if operation.target else ""
        bound = duration(operation.deadline_s)
        yield bad(
            AlertRule.SWITCH_STUCK,
            BOX,
            f"{operation.kind}{to} is stuck in {operation.phase}",
            details=(f"in this phase for {duration(operation.phase_s)}, of at most {bound}",),
            since_unix_s=look.unix_s - operation.phase_s,
            command="appliance cancel",
        )
