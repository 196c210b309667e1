"""Contract of stores of alerts: the real one and that in memory answer alike."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.alerts.outbox import Settlement
from appliance.model.alerts import OutboxState, Severity, TransitionKind
from appliance.system.sqlite.alert_store import AlertStore
from tests.fakes.alert_samples import AEON, GENESIS, NOW, profile_subject, told, transition
from tests.fakes.fake_alert_store import FakeAlertStore

Store = AlertStore | FakeAlertStore


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    store = AlertStore(tmp_path / "a.sqlite") if request.param == "sqlite" else FakeAlertStore()
    await store.open()
    yield store
    await store.close()


async def states(store: Store) -> Sequence[tuple[int, str, int, float | None]]:
    rows = await store.outbox()
    return [(row.id, row.state.value, row.attempts, row.settled_unix_s) for row in rows]


async def test_a_row_goes_its_way(store: Store) -> None:
    """Queued, sending, queued again after a failure or a restart, sent."""
    changes = [transition(), transition(subject=AEON, severity=Severity.WARNING)]
    numbered = await store.commit(
        told(changes),
        targets=["phone", "pager"],
        min_severity={"pager": Severity.CRITICAL},
        memory="{}",
        now_unix_s=NOW,
    )
    assert [one.id for one in numbered] == [1, 2]
    assert await store.waiting_targets() == ["pager", "phone"]
    assert (await store.book(), await store.memory()) == (told(changes).book, "{}")
    first, second = await store.queued("phone", most=9)
    assert [first.transition, second.transition] == list(numbered)
    assert [row.id for row in await store.queued("phone", most=1)] == [first.id]
    assert await store.begin([first], now_unix_s=NOW + 1)
    assert not await store.begin([second, first], now_unix_s=NOW + 1)
    await store.drop({first.id: "not while it is being sent"}, now_unix_s=NOW + 1)
    failed = Settlement(state=OutboxState.QUEUED, text="no route", retry_unix_s=NOW + 9)
    await store.settle({first.id: failed, second.id: failed}, now_unix_s=NOW + 2)
    (again, untried) = await store.queued("phone", most=9)
    assert (again.attempts, again.tried_unix_s, again.retry_unix_s) == (1, NOW + 1, NOW + 9)
    assert (again.text, untried.text, untried.retry_unix_s) == ("no route", "", 0.0)
    assert await store.begin([again, untried], now_unix_s=NOW + 9)
    await store.requeue()
    assert [row.attempts for row in await store.queued("phone", most=9)] == [2, 1]
    assert await store.begin([again], now_unix_s=NOW + 10)
    sent = Settlement(state=OutboxState.SENT, text="sent")
    await store.settle({again.id: sent}, now_unix_s=NOW + 11)
    assert (await store.last_sent("phone"), await store.last_sent("pager")) == (NOW + 11, None)
    await store.drop({untried.id: "over", 99: "unknown"}, now_unix_s=NOW + 12)
    assert await states(store) == [
        (1, "sent", 3, NOW + 11),
        (2, "queued", 0, None),
        (3, "cancelled", 1, NOW + 12),
    ]
    counts = await store.counts()
    assert (counts.waiting, counts.dead, counts.oldest_due_unix_s) == (1, 0, NOW)


async def test_cancelled_alerts_and_repeated_notices(store: Store) -> None:
    """Rows of cancelled alerts end before those of the same evaluation are added, each once."""
    first = [transition(), transition(subject=AEON, alert="A2")]
    await store.commit(told(first), targets=["phone"], now_unix_s=NOW)
    again = [transition(), transition(TransitionKind.CHANGED, subject=AEON, alert="A2")]
    await store.commit(told(again, cancelled=("A2",)), targets=["phone"], now_unix_s=NOW + 1)
    assert [(number, state) for number, state, *_ in await states(store)] == [
        (1, "queued"),
        (2, "cancelled"),
        (3, "queued"),
    ]


async def test_postponed_alerts_wait(store: Store) -> None:
    """A row that is queued of them waits until the time, or as long as it did; what is being sent, and other alerts, do not."""
    alerts = ("A1", "A2", "A3", "A4")
    for number, alert in enumerate(alerts):
        fired = told(
            [transition(subject=profile_subject(alert), alert=alert)],
            not_before_unix_s=NOW + 300 if number == 1 else 0.0,
        )
        await store.commit(fired, targets=["phone"], now_unix_s=NOW)
    (sending,) = [row for row in await store.outbox() if row.transition.alert == "A3"]
    await store.begin([sending], now_unix_s=NOW)
    evaluation = replace(told([]), postponed=list(alerts[:3]), postponed_unix_s=NOW + 120)
    await store.commit(evaluation, targets=["phone"], now_unix_s=NOW + 1)
    waits = {r.transition.alert: r.not_before_unix_s for r in await store.outbox()}
    assert waits == {"A1": NOW + 120, "A2": NOW + 300, "A3": 0.0, "A4": 0.0}


async def test_transitions_are_read_on_from_a_number(store: Store) -> None:
    """The newest ones are returned, oldest first, of all subjects or of one."""
    subjects = [GENESIS, AEON, profile_subject("x"), AEON]
    for episode, subject in enumerate(subjects):
        one = transition(subject=subject, episode=episode)
        await store.commit(told([one]), targets=[], now_unix_s=NOW)

    async def numbers(after: int = 0, **more: object) -> Sequence[int]:
        return [one.id for one in await store.transitions(after, **more)]  # type: ignore[arg-type]

    assert await numbers() == [1, 2, 3, 4]
    assert await numbers(2) == [3, 4]
    assert await numbers(most=1) == [4]
    assert await numbers(subject=AEON) == [2, 4]
    assert await numbers(2, subject=AEON) == [4]


async def test_tokens_are_used_once(store: Store) -> None:
    """A token is good for one action on one alert, until it expires."""
    await store.add_token("h", "A1", "ack", NOW + 10)
    assert not await store.use_token("h", "A1", "silence", NOW)
    assert not await store.use_token("h", "A2", "ack", NOW)
    assert not await store.use_token("h", "A1", "ack", NOW + 10)
    assert await store.use_token("h", "A1", "ack", NOW + 9)
    assert not await store.use_token("h", "A1", "ack", NOW + 9)
