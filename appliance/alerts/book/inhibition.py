"""Inhibition: which causes explain which alerts, so that a person is told of the cause alone.

An operation explains its own profiles only, and only until the deadline of its phase and 60 s: what is
stuck then is an alert of its own. An alert explains others while it fires and people know of it: one that
is silenced explains nothing. An alert that outlives its cause by 30 s is told.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from appliance.alerts.book.alert_context import AlertCircumstances
from appliance.alerts.book.alert_state import AlertKey, AlertState, DeliveryGate
from appliance.model.alerts import AlertPhase, AlertRule, Subject, SubjectKind

LINGER_S: Final = 30.0
OPERATION_MARGIN_S: Final = 60.0
LONGEST_PHASE_S: Final = 7200.0
"""Bound of a phase without a deadline, such as a load of weights that makes progress."""
LONGEST_OUTAGE_S: Final = 86400.0
"""Time after which an outage of the internet no longer explains other machines, which may be near."""


_NAMED: Final = frozenset({SubjectKind.PROFILE, SubjectKind.WATCH})
_NOTHING: Final[frozenset[Subject]] = frozenset()


class OutsideCause(StrEnum):
    """OutsideCause that is no alert itself."""

    OPERATION = "operation"
    INTERNET_DOWN = "internet-down"


class InhibitionScope(StrEnum):
    """Relation of an alert to its cause."""

    SAME_SUBJECT = "same-subject"
    GPU_OF_PROFILE = "gpu-of-profile"
    """The cause is about a GPU that the alert's profile claims."""
    ANY_GPU = "any-gpu"
    """The alert's subject is a GPU, or a profile that claims one."""
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inhibition:
    """OutsideCause and the alerts that it explains."""

    cause: AlertRule | OutsideCause
    scope: InhibitionScope
    symptoms: frozenset[AlertRule]


_OF_AN_ENGINE: Final = frozenset(
    {
        AlertRule.LIVE_DOWN,
        AlertRule.NO_PROGRESS,
        AlertRule.CRASH_LOOP,
        AlertRule.CPU_FALLBACK,
        AlertRule.NO_PROBE,
        AlertRule.SLOW,
        AlertRule.QUALITY,
    }
)
_OF_A_GPU: Final = frozenset(
    {
        AlertRule.GPU_LOST,
        AlertRule.GPU_ERROR,
        AlertRule.GPU_RECOVERY,
        AlertRule.ECC,
        AlertRule.THROTTLE,
        AlertRule.PCIE,
    }
)
_OF_THE_SUPERVISOR: Final = _OF_A_GPU | {
    AlertRule.CPU_FALLBACK,
    AlertRule.NO_PROBE,
    AlertRule.PATCH,
    AlertRule.DRIFT,
    AlertRule.SWITCH_FAILED,
    AlertRule.SWITCH_STUCK,
    AlertRule.FOREIGN_HOLDER,
    AlertRule.UNATTRIBUTED,
    AlertRule.DRIVER,
}
"""Rules whose facts only the supervisor tells."""

INHIBITIONS: Final[tuple[Inhibition, ...]] = (
    Inhibition(
        cause=OutsideCause.OPERATION,
        scope=InhibitionScope.SAME_SUBJECT,
        symptoms=frozenset(
            {
                AlertRule.LIVE_DOWN,
                AlertRule.NO_PROGRESS,
                AlertRule.CRASH_LOOP,
                AlertRule.GATEWAY_DOWN,
            }
        ),
    ),
    Inhibition(
        cause=OutsideCause.INTERNET_DOWN,
        scope=InhibitionScope.EVERYTHING,
        symptoms=frozenset({AlertRule.WATCH_DOWN}),
    ),
    Inhibition(
        cause=AlertRule.SUPERVISOR_DOWN,
        scope=InhibitionScope.EVERYTHING,
        symptoms=_OF_THE_SUPERVISOR,
    ),
    Inhibition(
        cause=AlertRule.DRIVER,
        scope=InhibitionScope.ANY_GPU,
        symptoms=_OF_AN_ENGINE | _OF_A_GPU,
    ),
    Inhibition(
        cause=AlertRule.GPU_LOST,
        scope=InhibitionScope.GPU_OF_PROFILE,
        symptoms=_OF_AN_ENGINE,
    ),
    Inhibition(
        cause=AlertRule.GPU_LOST,
        scope=InhibitionScope.SAME_SUBJECT,
        symptoms=_OF_A_GPU - {AlertRule.GPU_LOST},
    ),
    Inhibition(
        cause=AlertRule.CRASH_LOOP,
        scope=InhibitionScope.SAME_SUBJECT,
        symptoms=_OF_AN_ENGINE - {AlertRule.CRASH_LOOP},
    ),
    Inhibition(
        cause=AlertRule.LIVE_DOWN,
        scope=InhibitionScope.SAME_SUBJECT,
        symptoms=_OF_AN_ENGINE - {AlertRule.LIVE_DOWN, AlertRule.CRASH_LOOP},
    ),
)


class Inhibitors:
    """Causes at one moment."""

    def __init__(
        self,
        inhibitions: Collection[Inhibition],
        states: Mapping[AlertKey, AlertState],
        circumstances: AlertCircumstances,
        now_unix_s: float,
    ) -> None:
        self._circumstances = circumstances
        causes = {each.cause for each in inhibitions}
        self._firing: dict[AlertRule | OutsideCause, set[Subject]] = {}
        for state in states.values():
            if state.rule in causes and _is_told(state):
                self._firing.setdefault(state.rule, set()).add(state.subject)
        since_unix_s = circumstances.internet_down_since
        is_offline = since_unix_s is not None and now_unix_s - since_unix_s <= LONGEST_OUTAGE_S
        self._unreachable = circumstances.remote_watches if is_offline else frozenset()
        self._in_operation = _explained_profiles(circumstances)
        self._by_symptom: dict[AlertRule, list[Inhibition]] = {}
        for each in inhibitions:
            for symptom in each.symptoms:
                self._by_symptom.setdefault(symptom, []).append(each)

    def cause_of(self, subject: Subject, rule: AlertRule) -> str:
        """Return the cause that explains an alert now; empty: none does."""
        for each in self._by_symptom.get(rule, ()):
            if self._explains(each, subject):
                return each.cause.value
        return ""

    def _explains(self, inhibition: Inhibition, subject: Subject) -> bool:
        circumstances, cause = self._circumstances, inhibition.cause
        if isinstance(cause, OutsideCause):
            names = self._in_operation if cause is OutsideCause.OPERATION else self._unreachable
            return subject.name in names and subject.kind in _NAMED
        firing = self._firing.get(cause, _NOTHING)
        gpus = circumstances.profile_gpus.get(subject.name, ())
        match inhibition.scope:
            case InhibitionScope.SAME_SUBJECT:
                return subject in firing
            case InhibitionScope.GPU_OF_PROFILE:
                return any(Subject(kind=SubjectKind.GPU, name=uuid) in firing for uuid in gpus)
            case InhibitionScope.ANY_GPU:
                return bool(firing) and (subject.kind is SubjectKind.GPU or bool(gpus))
            case _:
                is_down = cause is AlertRule.SUPERVISOR_DOWN and circumstances.supervisor_down
                return is_down or bool(firing)


def _explained_profiles(circumstances: AlertCircumstances) -> frozenset[str]:
    """Return the profiles whose alerts the operation explains."""
    operation = circumstances.operation
    if operation is None:
        return frozenset()
    deadline_s = LONGEST_PHASE_S if operation.deadline_s is None else operation.deadline_s
    if operation.phase_s > deadline_s + OPERATION_MARGIN_S:
        return frozenset()
    return frozenset(operation.profiles)


def _is_told(state: AlertState) -> bool:
    """Tell whether an alert fires of which people know, or of whose own cause."""
    return state.phase is AlertPhase.FIRING and (
        state.told or state.gate in {None, DeliveryGate.INHIBITION}
    )
