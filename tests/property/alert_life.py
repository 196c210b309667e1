"""Life of a few alerts under all that may happen, and what must hold at every look.

The flags are kept a second time here, as the person knows them who sets them.

Safety: nothing is told that a flag keeps back, no episode is told twice apart from reminders, no end is
told without a fire, an ack does not outlast its episode, no silence outlasts its time; a row says that its
subject is well exactly while it does not fire. Liveness: what is bad for long, with nothing that keeps it
back, has been told; after a time in which all is well every alert has ended, and whoever was told of one
was told once of its end.
"""

from dataclasses import replace
from typing import Final

from appliance.alerts.book import AlertKey, AlertPolicy
from appliance.alerts.evaluation import ack
from appliance.alerts.inhibition import AlertCircumstances
from appliance.alerts.report import open_alerts
from appliance.alerts.silences import add_window, silence, unsilence
from appliance.model.alerts import (
    AlertPhase,
    AlertRule,
    Finding,
    Notice,
    Severity,
    Sign,
    Subject,
    SubjectKind,
    TransitionKind,
)
from appliance.model.errors import NotFoundError
from appliance.model.status import OperationRow
from appliance.model.words import Mark
from appliance.wire.alert_requests import PlannedWindow
from tests.fakes.alert_rounds import AlertRounds, finding

DOWN, SLOW = AlertRule.LIVE_DOWN, AlertRule.SLOW
NAMES: Final = ("genesis", "aeon")
SUBJECTS: Final = {name: Subject(kind=SubjectKind.PROFILE, name=name) for name in NAMES}
KEYS: Final[tuple[AlertKey, ...]] = tuple(
    (subject, rule) for subject in SUBJECTS.values() for rule in (DOWN, SLOW)
)
NEWS: Final = {
    TransitionKind.FIRED,
    TransitionKind.CHANGED,
    TransitionKind.REMINDED,
    TransitionKind.FLAPPING,
}
LONG_LOOKS: Final = 15
"""Looks after which something bad has been told: 60 s of grace, 30 s of linger, 3 looks, and some more."""
REST_LOOKS: Final = 40
"""Looks, 50 s apart, of 30 min and of a few minutes more."""
WEEK_S: Final = 7 * 86400.0
QUIET: Final = AlertPolicy(time_zone="UTC", quiet_from="22:00", quiet_to="07:00")


class AlertLife:
    """Two models with two rules each, one critical and one a warning."""

    def __init__(self) -> None:
        self.rounds = AlertRounds(policy=QUIET)
        self.marks = dict.fromkeys(NAMES, Mark.LIVE)
        self.silent_until = dict.fromkeys(NAMES, 0.0)
        self.in_operation: frozenset[str] = frozenset()
        self.operation_s = 0.0
        self.acked: set[str] = set()
        self.told: dict[str, list[TransitionKind]] = {}
        """Messages by alert."""
        self.open_looks = dict.fromkeys(KEYS, 0)
        """Looks in a row that were bad with nothing that keeps a message back."""
        self.good_looks = dict.fromkeys(KEYS, 0)
        self.cancelled: set[str] = set()
        """Alerts whose subject was retired: nobody is told of their end."""

    # --- what happens ----------------------------------------------------------------

    def look(self, signs: dict[AlertKey, Sign], times: int = 1, every_s: float = 10.0) -> None:
        """Look a number of times at the same signs."""
        found = [_finding(key, sign) for key, sign in signs.items()]
        for _ in range(times):
            self._set_circumstances()
            evaluation = self.rounds.look(*found, every_s=every_s)
            if self.in_operation:
                self.operation_s += every_s
            for notice in evaluation.notices:
                self._check_notice(notice)
            self.cancelled.update(evaluation.cancelled)
            for key in KEYS:
                self._check_key(key, signs.get(key, Sign.UNKNOWN))
            self._check_book()

    def rest(self) -> None:
        """Let everything be well for as long as it takes until nothing comes and goes."""
        self.end_operation()
        self.look(dict.fromkeys(KEYS, Sign.GOOD), REST_LOOKS, every_s=50.0)
        assert not any(state.is_open for state in self.rounds.book.states.values())
        assert open_alerts(self.rounds.book, {}) == ()
        for alert, kinds in self.told.items():
            ends = kinds.count(TransitionKind.RESOLVED)
            assert ends == 1 or alert in self.cancelled, f"the end of {alert} is told {ends} times"

    def pause(self, seconds: float, *, suspended: bool) -> None:
        """Let time pass without a look."""
        self.rounds.pass_time(seconds, suspended=suspended)
        self.operation_s += seconds
        self.open_looks = dict.fromkeys(KEYS, 0)
        self.good_looks = dict.fromkeys(KEYS, 0)

    def mark(self, name: str, mark: Mark) -> None:
        self.marks[name] = mark

    def silence(self, name: str, for_s: float) -> None:
        rounds = self.rounds
        rounds.act(silence(rounds.book, SUBJECTS[name], for_s, "ana", "", rounds.now))
        self.silent_until[name] = rounds.now.unix_s + for_s

    def unsilence(self, name: str) -> None:
        rounds = self.rounds
        if any(one.subject.name == name for one in rounds.book.silences):
            rounds.act(unsilence(rounds.book, SUBJECTS[name], "ana", rounds.now))
        self.silent_until[name] = 0.0

    def ack(self, number: int) -> None:
        """Acknowledge one of the last alerts, if it fires."""
        alert = f"A{self.rounds.book.next_alert - number}"
        try:
            self.rounds.act(ack(self.rounds.book, alert, "ana", self.rounds.now))
        except NotFoundError:
            return
        self.acked.add(alert)

    def add_window(self, name: str) -> None:
        """Plan a window of an hour, each day at one."""
        window = PlannedWindow(name="w", begin="13:00", minutes=60, subjects=(name,))
        self.rounds.act(add_window(self.rounds.book, window))

    def begin_operation(self, name: str) -> None:
        self.in_operation, self.operation_s = frozenset({name}), 0.0

    def end_operation(self) -> None:
        self.in_operation = frozenset()

    # --- what must hold --------------------------------------------------------------

    def held(self, key: AlertKey) -> bool:
        """Tell whether something keeps messages about an alert back."""
        (subject, rule), unix_s = key, self.rounds.now.unix_s
        hour = int(unix_s // 3600) % 24
        window = self.rounds.book.windows
        return (
            self.marks[subject.name] is not Mark.LIVE
            or unix_s < self.silent_until[subject.name]
            or (rule is SLOW and (hour >= 22 or hour < 7))
            or (rule is DOWN and subject.name in self.in_operation and self.operation_s <= 360)
            or any(subject.name in one.subjects and hour == 13 for one in window)
        )

    def _set_circumstances(self) -> None:
        operation = OperationRow(
            id=1,
            kind="switch",
            target=(),
            profiles=tuple(self.in_operation),
            phase="loading",
            phase_s=self.operation_s,
            deadline_s=300.0,
        )
        self.rounds.circumstances = AlertCircumstances(
            marks={SUBJECTS[name]: mark for name, mark in self.marks.items()},
            operation=operation if self.in_operation else None,
        )

    def _check_notice(self, notice: Notice) -> None:
        transition = notice.transition
        kind, alert = transition.kind, transition.alert
        before = self.told.setdefault(alert, [])
        assert TransitionKind.RESOLVED not in before, "nothing follows an end"
        if kind in NEWS:
            assert self.marks[transition.subject.name] is Mark.LIVE
            is_held = self.held((transition.subject, transition.rule))
            assert not is_held, f"{kind} is told of {transition.subject.text}"
            # The recovery that makes an alert flap ends its ack.
            is_acked = alert in self.acked and kind is not TransitionKind.FLAPPING
            assert not is_acked, f"{kind} is told of an alert that was acked"
        if kind in {TransitionKind.FIRED, TransitionKind.FLAPPING}:
            assert kind not in before, f"{kind} is told twice"
        if kind is TransitionKind.FIRED:
            assert not before, "a fire is told first"
        if kind is TransitionKind.REMINDED:
            assert transition.severity is Severity.CRITICAL
        if kind in {TransitionKind.RESOLVED, TransitionKind.REMINDED, TransitionKind.CHANGED}:
            assert {TransitionKind.FIRED, TransitionKind.FLAPPING} & set(before)
        before.append(kind)

    def _check_key(self, key: AlertKey, sign: Sign) -> None:
        state = self.rounds.book.states.get(key)
        if sign is Sign.GOOD:
            self.good_looks[key] += 1
        elif sign is Sign.BAD:
            self.good_looks[key] = 0
        if self.good_looks[key] >= 2 and state is not None:
            assert state.phase is not AlertPhase.FIRING
            if not state.flapping:
                assert state.acked_by == "", "an ack ends on recovery"
                self.acked.discard(state.alert)
        is_acked = state is not None and state.alert in self.acked
        # A model that is down is told, and explains that it is slow.
        other = self.rounds.book.states.get((key[0], DOWN))
        is_explained = key[1] is SLOW and other is not None and other.phase is AlertPhase.FIRING
        if sign is Sign.BAD and not self.held(key) and not is_acked and not is_explained:
            self.open_looks[key] += 1
        else:
            self.open_looks[key] = 0
        if self.open_looks[key] >= LONG_LOOKS:
            assert state is not None
            assert NEWS & set(self.told.get(state.alert, ())), f"{key} is not told"

    def _check_book(self) -> None:
        book, unix_s = self.rounds.book, self.rounds.now.unix_s
        for one in book.silences:
            assert unix_s < one.until_unix_s <= unix_s + WEEK_S
        for row in open_alerts(book, {}):
            state = next(one for one in book.states.values() if one.alert == row.alert)
            is_well = state.phase is not AlertPhase.FIRING
            assert (row.ended_unix_s is not None, bool(row.over)) == (is_well, is_well)
            if row.ended_unix_s is not None and state.phase is AlertPhase.OK:
                assert (row.since_unix_s or 0) <= row.ended_unix_s <= unix_s
            assert row.flapping or not is_well
        for state in book.states.values():
            if self.marks[state.subject.name] is Mark.RETIRED:
                assert not state.is_open


def _finding(key: AlertKey, sign: Sign) -> Finding:
    subject, rule = key
    return replace(finding(sign, rule, subject), fact="down")
