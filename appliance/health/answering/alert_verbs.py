"""Verbs of health.sock about alerts: questions, and what operators change.

Changes go through the watchdog, which alone writes the alert book.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Final, assert_never

from msgspec import to_builtins

from appliance.alerts.action_tokens import ButtonAction, present_token
from appliance.alerts.book import AlertBook, Evaluation
from appliance.alerts.evaluation import ack
from appliance.alerts.outbox import WAITING, OutboxRow
from appliance.alerts.report import open_alerts, open_states, subject_phrase
from appliance.alerts.silences import add_window, remove_window, silence, unsilence
from appliance.health.clock import HealthClock
from appliance.health.delivery_figures import DeliveryFigures
from appliance.health.watching.watchdog_loop import Watchdog
from appliance.model.alerts import (
    BOX,
    AlertRule,
    Notice,
    OutboxState,
    Severity,
    Subject,
    SubjectKind,
    Transition,
    TransitionKind,
)
from appliance.model.amounts import duration
from appliance.model.errors import (
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnknownProfileError,
)
from appliance.model.events import AlertEvent
from appliance.model.wording import no_such_profile, short
from appliance.system.sqlite.alert_store import AlertStore
from appliance.wire.alert_requests import (
    SILENCE_S,
    AckRequest,
    ActRequest,
    AddWindowRequest,
    AlertAction,
    AlertQuestion,
    AlertRequest,
    AlertsRequest,
    OutboxRequest,
    PlannedWindow,
    RemoveWindowRequest,
    SilenceRequest,
    TestAlertRequest,
    UnsilenceRequest,
    WindowsRequest,
)
from appliance.wire.control import Exit
from appliance.wire.conversation import ResultEvent


class SubjectDirectory:
    """Directory of profiles, watches, GPUs and the box.

    Args:
        book: Function that returns the alert book, which knows GPUs and alerts.
        profiles: Function that returns the names of the applied profiles.
        watches: Names of the ``[[watch]]`` entries.
    """

    def __init__(
        self,
        book: Callable[[], AlertBook],
        profiles: Callable[[], Iterable[str]],
        watches: Iterable[str],
    ) -> None:
        self._book = book
        self._profiles = profiles
        self._watches = frozenset(watches)

    def subject(self, name: str) -> Subject:
        """Return the subject of a name: of a profile, watch or GPU, ``box``, or the id of an alert.

        Raises:
            UnknownProfileError: there is none.
        """
        profiles = frozenset(self._profiles())
        if name in profiles:
            return Subject(kind=SubjectKind.PROFILE, name=name)
        if name in self._watches:
            return Subject(kind=SubjectKind.WATCH, name=name)
        if name == BOX.text:
            return BOX
        gpus = (one for one, _ in self._book().states if one.kind is SubjectKind.GPU)
        found = self.subject_of_alert(name) or next((one for one in gpus if one.name == name), None)
        if found is None:
            raise UnknownProfileError(no_such_profile(name, profiles, watches=self._watches))
        return found

    def subject_of_alert(self, alert: str) -> Subject | None:
        """Return the subject of an alert that is not over; None: there is none of this id."""
        states = open_states(self._book())
        return next((state.subject for state in states if state.alert == alert), None)

    def window_name(self, name: str) -> str:
        """Return the name by which a planned window knows a subject. Raises as `subject`."""
        subject = self.subject(name)
        return subject.name or BOX.text


_MOST_ROWS: Final = 1000
"""Newest transitions and rows that are looked through for those of one alert."""
_MOST_ANSWER_BYTES: Final = 300_000
"""Size of the alerts in an answer, whose line has at most 1 MiB."""
_REFUSED: Final = "the button was used, is older than a day, or is none of this box"
_TRIAL_S: Final = 30.0
"""Time for the delivery of a test alert."""
_LOOK_EVERY_S: Final = 0.25
_NEWEST_ROWS: Final = 300
_BUTTON: Final = "a button"
"""Person that acts, where nobody says more."""


class AlertVerbs:
    """Handler of the requests about alerts.

    Args:
        watchdog: Has the alert book, and writes it.
        store: Of transitions, outbox and tokens.
        figures: Of the delivery.
        subjects: Names of what alerts are about.
        clock: Of the box.
    """

    def __init__(
        self,
        watchdog: Watchdog,
        store: AlertStore,
        figures: DeliveryFigures,
        subjects: SubjectDirectory,
        clock: HealthClock,
    ) -> None:
        self._watchdog = watchdog
        self._store = store
        self._figures = figures
        self._subjects = subjects
        self._clock = clock

    async def answer(self, request: AlertQuestion, by: str) -> ResultEvent:  # noqa: PLR0911 - one a verb
        """Answer a request of `by`. Raises `ApplianceError`."""
        match request:
            case AlertsRequest():
                return ResultEvent(details={**await self.overview(), "windows": self._windows()})
            case AlertRequest(alert):
                return await self._show(alert)
            case OutboxRequest(most):
                return await self._outbox(most)
            case WindowsRequest():
                return ResultEvent(details={"windows": self._windows()})
            case TestAlertRequest(target):
                return await self._test(target, by)
            case ActRequest(token):
                return await self._act(token)
            case _:
                return await self._carry_out(request, by)

    async def _carry_out(self, action: AlertAction, by: str) -> ResultEvent:
        match action:
            case AckRequest(alert):
                return await self._ack(alert, by)
            case SilenceRequest(name, for_s, reason):
                return await self._silence(self._subjects.subject(name), for_s, by, reason)
            case UnsilenceRequest(name):
                subject = self._subjects.subject(name)
                await self._watchdog.change(lambda book, now: unsilence(book, subject, by, now))
                return _done(f"the silence of {subject_phrase(subject)} is ended")
            case AddWindowRequest():
                return await self._add_window(action)
            case RemoveWindowRequest(name):
                await self._watchdog.change(lambda book, _now: remove_window(book, name))
                return _done(f"the window {short(name)} is removed")
            case _:
                assert_never(action)

    async def overview(self) -> Mapping[str, object]:
        """Return what is wrong and whether people are told, from memory."""
        delivery = asdict(await self._figures.report())
        book = self._watchdog.book
        rows = open_alerts(book, self._figures.sent)
        shown = _as_many_as_fit(map(asdict, rows))
        return {
            "alerts": shown,
            "left_off": len(rows) - len(shown),
            "silences": [asdict(one) for one in book.silences],
            "delivery": delivery,
        }

    async def changes(self, after: int, name: str | None, most: int) -> Sequence[AlertEvent]:
        """Return the newest transitions after a number, oldest first; `name` None: of everything."""
        subject = None if name is None else self._subjects.subject(name)
        found = await self._store.transitions(after, subject=subject, most=most)
        return [one.event() for one in found]

    def _windows(self) -> Sequence[Mapping[str, object]]:
        return _as_many_as_fit(one.fields() for one in self._watchdog.book.windows)

    # --- questions -------------------------------------------------------------------

    async def _show(self, alert: str) -> ResultEvent:
        book = self._watchdog.book
        rows = open_alerts(book, self._figures.sent)
        row = next((one for one in rows if one.alert == alert), None)
        subject = self._subjects.subject_of_alert(alert)
        found = await self._store.transitions(subject=subject, most=_MOST_ROWS)
        changes = [one.event().fields() for one in found if one.alert == alert]
        if row is None and not changes:
            raise NotFoundError(f'no alert "{short(alert)}" is on record: appliance events')
        sent = [
            one for one in await self._store.outbox(_MOST_ROWS) if one.transition.alert == alert
        ]
        return ResultEvent(
            details={
                "alert": None if row is None else asdict(row),
                "changes": _as_many_as_fit(changes),
                "rows": _as_many_as_fit(map(to_builtins, sent)),
            }
        )

    async def _outbox(self, most: int) -> ResultEvent:
        rows = map(to_builtins, reversed(await self._store.outbox(most)))
        return ResultEvent(
            details={
                "rows": _as_many_as_fit(rows),
                "delivery": asdict(await self._figures.report()),
            }
        )

    # --- changes ---------------------------------------------------------------------

    async def _ack(self, alert: str, by: str) -> ResultEvent:
        await self._watchdog.change(lambda book, now: ack(book, alert, by, now))
        return _done(f"{short(alert)} is acked: no more reminders, its end is told")

    async def _silence(self, subject: Subject, for_s: float, by: str, reason: str) -> ResultEvent:
        await self._watchdog.change(
            lambda book, now: silence(book, subject, for_s, by, reason, now)
        )
        until_unix_s = self._clock.unix_s() + for_s
        text = f"nobody is told of {subject_phrase(subject)} for {duration(for_s)}"
        return ResultEvent(outcome="done", message=text, details={"until_unix_s": until_unix_s})

    async def _add_window(self, request: AddWindowRequest) -> ResultEvent:
        fields = {name: getattr(request, name) for name in PlannedWindow.__struct_fields__}
        fields["subjects"] = tuple(map(self._subjects.window_name, request.subjects))
        window = PlannedWindow(**fields)
        await self._watchdog.change(lambda book, _now: add_window(book, window))
        return _done(f"the window {short(request.name)} is planned")

    async def _test(self, target: str | None, by: str) -> ResultEvent:
        """Send a test alert to a target, or to all, and return what became of it.

        It takes the way of every alert, and is critical, so that it goes to every target, and as loudly as the worst.
        It is no state of the alert book: there is nothing to ack, and no message about its end.
        """
        known = self._figures.targets()
        if not known:
            raise PreconditionError("nobody would be told: sudo appliance target add NAME")
        if target is not None and target not in known:
            raise NotFoundError(f'no target "{short(target)}": appliance target ls')
        targets = known if target is None else [target]
        now_unix_s = self._clock.unix_s()
        test = Transition(
            unix_s=now_unix_s,
            kind=TransitionKind.FIRED,
            alert="test",
            subject=BOX,
            rule=AlertRule.TEST,
            episode=int(now_unix_s * 1000),  # the time, so that each test has its own
            severity=Severity.CRITICAL,
            fact=f"test alert, sent by {short(by)}",
            details=("Nothing is wrong: alerts reach this target.",),
            since_unix_s=now_unix_s,
            by=by,
        )
        await self._watchdog.change(
            lambda book, _now: Evaluation(
                book=book, transitions=[test], notices=[Notice(transition=test)]
            ),
            only=targets,
        )
        rows = await self._settled(test.episode, len(targets))
        sent = sum(row.state is OutboxState.SENT for row in rows)
        have = f"{sent} of {len(targets)} targets {'has' if sent == 1 else 'have'} the test alert"
        outcomes = [
            {"target": row.target, "state": row.state.value, "text": row.text} for row in rows
        ]
        return ResultEvent(
            exit=Exit.OK if sent == len(targets) else Exit.FAILED,
            outcome="tested",
            message=have,
            details={"targets": outcomes},
        )

    async def _settled(self, episode: int, targets: int) -> Sequence[OutboxRow]:
        """Return the rows of a test once all are settled, or as they are after half a minute."""
        until_s = self._clock.monotonic_s() + _TRIAL_S
        while True:
            rows = [
                row
                for row in await self._store.outbox(_NEWEST_ROWS)
                if (row.transition.rule, row.transition.episode) == (AlertRule.TEST, episode)
            ]
            waits = len(rows) < targets or any(row.state in WAITING for row in rows)
            if not waits or self._clock.monotonic_s() >= until_s:
                return rows
            await self._clock.sleep_until(self._clock.monotonic_s() + _LOOK_EVERY_S)

    async def _act(self, text: str) -> ResultEvent:
        """Do what a button is for, once; each reason for a refusal has the same sentence."""
        token = present_token(text)
        if token is None or not await self._store.use_token(
            token.digest, token.alert, token.action, self._clock.unix_s()
        ):
            raise PermissionDeniedError(_REFUSED)
        states = open_states(self._watchdog.book)
        same = (s for s in states if (s.alert, s.episode) == (token.alert, token.episode))
        state = next(same, None)
        if state is None:
            return _done(f"{token.alert} is over")
        match token.action:
            case ButtonAction.ACK:
                return await self._ack(token.alert, _BUTTON)
            case ButtonAction.SILENCE:
                return await self._silence(state.subject, SILENCE_S, _BUTTON, "")
            case never:
                assert_never(never)


def _done(text: str) -> ResultEvent:
    return ResultEvent(outcome="done", message=text)


def _as_many_as_fit(rows: Iterable[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """Return the first rows that fit in an answer."""
    shown, size_bytes = [], 0
    for row in rows:
        size_bytes += len(json.dumps(row))
        if size_bytes > _MOST_ANSWER_BYTES:
            break
        shown.append(row)
    return shown
