"""Truth about causes: which alerts are not told beside which cause, restated apart from the code."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Final

from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.round import AlertTables
from appliance.model.alerts import BOX, AlertRule, Finding, Subject, SubjectKind
from tests.fakes.alert_rounds import GENESIS, AlertRounds, bad, good
from tests.property.alert_truth import DAY, SWITCH

GPU: Final = Subject(kind=SubjectKind.GPU, name="GPU-1")
OTHER_GPU: Final = Subject(kind=SubjectKind.GPU, name="GPU-2")
AEON: Final = Subject(kind=SubjectKind.PROFILE, name="aeon")
WIKI: Final = Subject(kind=SubjectKind.WATCH, name="wiki")
ENGINE: Final = frozenset({"live-down", "no-progress", "crash-loop", "cpu-fallback"}) | {
    "no-probe",
    "slow",
    "quality",
}
DEVICE: Final = frozenset({"gpu-lost", "gpu-error", "gpu-recovery", "ecc", "throttle", "pcie"})
ON_THE_BOX: Final = frozenset(
    {"foreign-holder", "unattributed-vram", "driver", "disk", "supervisor-down", "gateway-down"}
)


ANY: Final[Mapping[str, frozenset[str]]] = {
    "internet-down": frozenset({"watch-down"}),
    "supervisor-down": DEVICE
    | {"cpu-fallback", "no-probe", "patch", "drift", "driver"}
    | {"switch-failed", "switch-stuck", "foreign-holder", "unattributed-vram"},
    "driver": ENGINE | DEVICE,
}
"""Symptoms of a cause, whatever they are about."""
SAME: Final[Mapping[str, frozenset[str]]] = {
    "operation": frozenset({"live-down", "no-progress", "crash-loop"}),
    "gpu-lost": (ENGINE | DEVICE) - {"gpu-lost"},
    "crash-loop": ENGINE - {"crash-loop"},
    "live-down": ENGINE - {"live-down", "crash-loop"},
}
"""Symptoms of a cause if they are about the same model or GPU, or a model on that GPU."""


def explained(cause: str, rule: AlertRule, *, same: bool) -> bool:
    """Tell whether a cause explains an alert, of the same model or GPU or of another."""
    return rule in ANY.get(cause, ()) or (same and rule in SAME.get(cause, ()))


CAUSES: Final = (
    "operation",
    "internet-down",
    "supervisor-down",
    "driver",
    "gpu-lost",
    "crash-loop",
    "live-down",
    "disk",
)


def subjects_of(rule: AlertRule) -> tuple[Subject, Subject]:
    """Return the subject of a rule that a cause is about, and another one."""
    if rule in ON_THE_BOX:
        return BOX, BOX
    if rule in DEVICE:
        return GPU, OTHER_GPU
    if rule == "watch-down":
        return WIKI, WIKI
    return GENESIS, AEON


def inhibition_violations(tables: AlertTables) -> Iterator[str]:
    """Yield what is told beside its cause and should not be, and the other way round."""
    for cause, rule, is_same in product(CAUSES, AlertRule, (True, False)):
        subject = subjects_of(rule)[0 if is_same else 1]
        if cause == rule and is_same:
            continue
        rounds = AlertRounds(tables=tables, policy=DAY)
        rounds.circumstances = AlertCircumstances(
            operation=SWITCH if cause == "operation" else None,
            internet_down_since=rounds.now.unix_s if cause == "internet-down" else None,
            remote_watches=frozenset({"wiki"}),
            profile_gpus={"genesis": ("GPU-1",), "aeon": ("GPU-2",)},
        )
        of_cause = []
        if cause not in {"operation", "internet-down"}:
            of_cause = [bad(AlertRule(cause), subjects_of(AlertRule(cause))[0], is_proven=True)]
        if cause == rule and subject == of_cause[0].subject:
            continue
        rounds.look(*of_cause, bad(rule, subject, is_proven=True), times=2)
        told = any(
            (notice.transition.rule, notice.transition.subject) == (rule, subject)
            for notice in rounds.notices
        )
        if told == explained(cause, rule, same=is_same):
            yield f"{rule} beside {cause}, same {is_same}: told {told}"
        elif not told:
            yield from _linger_violations(rounds, bad(rule, subject))


def _linger_violations(rounds: AlertRounds, symptom: Finding) -> Iterator[str]:
    """Yield what is wrong once the cause is over: 30 s of rest, and then the truth."""
    rounds.circumstances = replace(rounds.circumstances, operation=None, internet_down_since=None)
    ends = [good(each.rule, each.subject) for each in rounds.transitions if each.delivered]
    length_s = 960 if any(each.rule is AlertRule.CRASH_LOOP for each in ends) else 100
    rounds.look_for(length_s, symptom, *ends)
    told = [notice.transition for notice in rounds.notices if notice.transition.kind == "fired"]
    late = [each for each in told if each.rule is symptom.rule and each.subject == symptom.subject]
    over = [each.unix_s for each in rounds.transitions if each.kind == "resolved"]
    begun_unix_s = over[0] if over else rounds.now.unix_s - length_s + 10
    if not late or late[0].unix_s - begun_unix_s != 30:
        yield f"{symptom.rule} after its cause: told {[each.unix_s for each in late]}"
