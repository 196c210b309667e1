"""Inhibition: which causes explain which alerts, so that only the cause has a message.

An operation explains its own profiles only, and only until the deadline of its phase and 60 s: what is
stuck then is an alert of its own. An alert explains others while it fires and people know of it: one that
is silenced explains nothing. An alert that outlives its cause by 30 s has a message of its own.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from appliance.alerts.book import AlertKey, AlertState, DeliveryGate
from appliance.alerts.rule import (
    OutsideCause,
    profile_subject,
)
from appliance.alerts.rules import RULES
from appliance.alerts.snapshot import BoxLook
from appliance.model.alerts import (
    AlertPhase,
    AlertRule,
    Subject,
    SubjectKind,
)
from appliance.model.gateway import is_loopback
from appliance.model.status import OperationRow
from appliance.model.words import Mark

LINGER_S: Final = 30.0
OPERATION_MARGIN_S: Final = 60.0
LONGEST_PHASE_S: Final = 7200.0
"""Bound of a phase without a deadline, such as a load of weights that makes progress."""
LONGEST_OUTAGE_S: Final = 86400.0
"""Time after which an outage of the internet no longer explains other machines, which may be near."""


_NAMED: Final = frozenset({SubjectKind.PROFILE, SubjectKind.WATCH})
_NOTHING: Final[frozenset[Subject]] = frozenset()


# ── Circumstances ───────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertCircumstances:
    """Facts about the box that decide whether a finding leads to a message."""

    marks: Mapping[Subject, Mark] = field(default_factory=dict)
    """Marks of profiles and watches; a subject without one counts as live."""
    existing: frozenset[Subject] | None = None
    """Profiles and watches that exist; alerts of others are cancelled. None: not known."""
    operation: OperationRow | None = None
    supervisor_down: bool = False
    internet_down_since: float | None = None
    """Unix time since which this box has reached no other machine; None: it reaches them."""
    remote_watches: frozenset[str] = frozenset()
    """Names of the watches whose URL is on another machine."""
    profile_gpus: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """UUIDs of the GPUs that each profile claims."""


def circumstances(look: BoxLook) -> AlertCircumstances:
    """Return the facts of a look that decide which of its findings lead to messages.

    Whether this box reaches other machines is not in a look: the caller adds it.
    """
    watches = {
        Subject(kind=SubjectKind.WATCH, name=watch.name): watch.mark for watch in look.watches
    }
    profiles = {profile_subject(name): profile for name, profile in look.profiles.items()}
    told = {subject: profile.mark for subject, profile in profiles.items() if profile.mark}
    return AlertCircumstances(
        marks=told | watches,
        existing=frozenset({*profiles, *watches}) if profiles else None,
        operation=look.operation,
        supervisor_down=not look.supervisor_answers,
        remote_watches=frozenset(one.name for one in look.watches if _is_remote(one.host)),
        profile_gpus={profile.name: profile.gpus for profile in look.profiles.values()},
    )


def _is_remote(host: str) -> bool:
    return host not in {"", "localhost"} and not is_loopback(host)


_FEWEST: Final = 2
"""Services on other machines that are down at once for one cause; a single one may be down itself."""


class OwnNetwork:
    """Judgement on the network of this box, as far as its own requests show.

    =============================  ====================================================================
    no other machine is reached    when
    =============================  ====================================================================
    by the heartbeat               it asked the outside watch or targets, and none was reached
    by the checks                  there are two or more `[[watch]]` entries on other machines, all down
    =============================  ====================================================================

    Args:
        unreached_unix_s: Returns since when no outside machine took a sign of life; None: one did, or
            none was asked.
    """

    def __init__(self, unreached_unix_s: Callable[[], float | None]) -> None:
        self._unreached_unix_s = unreached_unix_s
        self._all_down_unix_s: float | None = None

    def down_since(self, look: BoxLook, remote: Collection[str]) -> float | None:
        """Return since when no other machine was reached; None: one is, or that is not known.

        Args:
            look: The box at this look.
            remote: Names of the watches on other machines.
        """
        answers = [one.is_up for one in look.watches if one.name in remote]
        if len(answers) < _FEWEST or any(up is not False for up in answers):
            self._all_down_unix_s = None
        elif self._all_down_unix_s is None:
            self._all_down_unix_s = look.unix_s
        found = (self._unreached_unix_s(), self._all_down_unix_s)
        return min((since for since in found if since is not None), default=None)


# ── Causes and what they explain ────────────────────────────────────────────


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
    """Cause and the alerts that it explains."""

    cause: AlertRule | OutsideCause
    scope: InhibitionScope
    symptoms: frozenset[AlertRule]


def _explained_by(cause: AlertRule | OutsideCause, *kinds: SubjectKind) -> frozenset[AlertRule]:
    """Return the rules about subjects of some kinds that a cause explains."""
    return frozenset(
        rule.rule
        for rule in RULES.values()
        if cause in rule.inhibited_by and not set(kinds).isdisjoint(rule.subjects)
    )


_SCOPES: Final = (
    (OutsideCause.OPERATION, InhibitionScope.SAME_SUBJECT, tuple(SubjectKind)),
    (OutsideCause.INTERNET_DOWN, InhibitionScope.EVERYTHING, tuple(SubjectKind)),
    (AlertRule.SUPERVISOR_DOWN, InhibitionScope.EVERYTHING, tuple(SubjectKind)),
    (AlertRule.DRIVER, InhibitionScope.ANY_GPU, tuple(SubjectKind)),
    (AlertRule.GPU_LOST, InhibitionScope.GPU_OF_PROFILE, (SubjectKind.PROFILE,)),
    (AlertRule.GPU_LOST, InhibitionScope.SAME_SUBJECT, (SubjectKind.GPU,)),
    (AlertRule.CRASH_LOOP, InhibitionScope.SAME_SUBJECT, tuple(SubjectKind)),
    (AlertRule.LIVE_DOWN, InhibitionScope.SAME_SUBJECT, tuple(SubjectKind)),
)
"""Scope of each cause for subjects of some kinds; of several causes the first one is named."""
INHIBITIONS: Final = tuple(
    Inhibition(cause=cause, scope=scope, symptoms=_explained_by(cause, *kinds))
    for cause, scope, kinds in _SCOPES
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
