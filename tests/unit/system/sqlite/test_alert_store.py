"""Alerts in SQLite: together or not at all, kept over faults of the file, bounded."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.alerts.book import AlertBook, AlertState, BookClock, Evaluation, Silence
from appliance.alerts.outbox import Settlement
from appliance.model.alerts import (
    AlertPhase,
    AlertRule,
    OutboxState,
    SendOutcome,
    SendResult,
    Severity,
    TransitionKind,
)
from appliance.model.errors import StoreError
from appliance.system.sqlite.alert_store import AlertStore
from appliance.wire.alert_requests import PlannedWindow
from tests.fakes.alert_samples import AEON, GENESIS, NOW, profile_subject, told, transition

FIRED = transition()
RESOLVED = transition(TransitionKind.RESOLVED, unix_s=NOW + 60)
SENT = Settlement(state=OutboxState.SENT, text="sent")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AlertStore]:
    opened = AlertStore(tmp_path / "alerts.sqlite", retry_after_s=0.0)
    await opened.open()
    yield opened
    await opened.close()


def connected(store: AlertStore) -> sqlite3.Connection:
    """The store's own connection to its file, to take room from it."""
    assert store._db is not None
    return store._db


def unsynchronised(store: AlertStore) -> sqlite3.Connection:
    """The connection, which waits for no disk: for tests that write many rows."""
    db = connected(store)
    db.execute("PRAGMA synchronous=OFF")
    return db


def repeat_last(store: AlertStore, times: int, *, state: OutboxState) -> None:
    """Repeat the last transition and the last outbox row, in a state, under further numbers."""
    db = connected(store)
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :times)"
    values = {"times": times, "state": state}
    for table, changed in (
        ("transitions", {"id": "id + i"}),
        ("outbox", {"id": "id + i", "key": "key || i", "state": ":state"}),
    ):
        columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
        wanted = ", ".join(changed.get(name, name) for name in columns)
        last = f"(SELECT * FROM {table} ORDER BY id DESC LIMIT 1)"  # noqa: S608
        db.execute(f"{numbers} INSERT INTO {table} SELECT {wanted} FROM {last}, n", values)  # noqa: S608


async def reopened(path: Path) -> AlertStore:
    store = AlertStore(path, retry_after_s=0.0)
    await store.open()
    return store


async def commit(store: AlertStore, *changes: object, **more: object) -> None:
    """Commit transitions of which two targets are told."""
    await store.commit(told(changes, **more), targets=["phone"], now_unix_s=NOW)  # type: ignore[arg-type]


async def test_the_book_comes_back_as_it_was(tmp_path: Path) -> None:
    """States, silences, windows, numbers, the clock and the memory of the rules are stored together."""
    book = AlertBook(
        states={
            (one.subject, one.rule): one
            for one in (
                AlertState(
                    subject=GENESIS,
                    rule=AlertRule.SLOW,
                    phase=AlertPhase.FIRING,
                    episode=3,
                    alert="A17",
                    details=("4 probes", "half of \ud83d"),
                    changes=(1.0, 2.5),
                ),
                AlertState(subject=AEON, rule=AlertRule.LIVE_DOWN),
            )
        },
        silences=(Silence(id=2, subject=AEON, until_unix_s=NOW, by="ana", reason="mends it"),),
        windows=(PlannedWindow(name="backup", days=("sun",), begin="02:00", minutes=90),),
        next_alert=18,
        clock=BookClock(unix_s=NOW, monotonic_s=5.0, boot_s=6.0),
    )
    store = await reopened(tmp_path / "alerts.sqlite")
    assert (await store.book(), await store.memory()) == (AlertBook(), None)
    evaluation = Evaluation(book=book)
    assert await store.commit(evaluation, targets=[], memory="{}", now_unix_s=NOW) == ()
    await store.close()
    store = await reopened(tmp_path / "alerts.sqlite")
    assert (await store.book(), await store.memory()) == (book, "{}")
    changed = replace(book, states={}, silences=(), windows=(), next_alert=19)
    await store.commit(Evaluation(book=changed), targets=[], now_unix_s=NOW)
    assert (await store.book(), await store.memory()) == (changed, "{}")
    await store.close()


async def test_a_transition_makes_a_row_for_each_target(store: AlertStore) -> None:
    """Targets that want only severe alerts have no row of a warning."""
    warning = transition(subject=AEON, severity=Severity.WARNING)
    evaluation = told([FIRED, warning], not_before_unix_s=NOW + 10)
    numbered = await store.commit(
        evaluation,
        targets=["phone", "pager"],
        min_severity={"pager": Severity.CRITICAL},
        now_unix_s=NOW,
    )
    assert [one.id for one in numbered] == [1, 2]
    rows = await store.outbox()
    assert [(row.id, row.target, row.transition) for row in rows] == [
        (1, "phone", numbered[0]),
        (2, "pager", numbered[0]),
        (3, "phone", numbered[1]),
    ]
    assert {row.not_before_unix_s for row in rows} == {NOW + 10}
    assert await store.transitions() == numbered
    assert await store.transitions(1) == numbered[1:]
    assert await store.transitions(subject=GENESIS) == numbered[:1]
    assert await store.transitions(most=1) == numbered[1:]


async def test_a_notice_that_is_stored_twice_makes_one_row(store: AlertStore) -> None:
    """Reminders of one episode differ by their times."""
    reminders = [transition(TransitionKind.REMINDED, unix_s=NOW + s) for s in (1, 2)]
    await commit(store, FIRED, *reminders)
    await commit(store, FIRED, *reminders)
    assert [row.key for row in await store.outbox()] == [
        "profile:genesis:live-down:1:fired:phone",
        f"profile:genesis:live-down:1:reminded:phone:{NOW + 1:.0f}",
        f"profile:genesis:live-down:1:reminded:phone:{NOW + 2:.0f}",
    ]


async def test_cancelled_alerts_are_not_sent_any_more(store: AlertStore) -> None:
    """A row that is being sent is left alone, as is one that the same evaluation adds."""
    await commit(store, FIRED, transition(subject=AEON))
    (first, second) = await store.queued("phone", most=10)
    assert await store.begin([first], now_unix_s=NOW)
    again = transition(TransitionKind.CHANGED, subject=AEON, alert=second.transition.alert)
    await commit(store, again, cancelled=(first.transition.alert, second.transition.alert))
    assert [row.state for row in await store.outbox()] == [
        OutboxState.SENDING,
        OutboxState.CANCELLED,
        OutboxState.QUEUED,
    ]


async def test_an_attempt_is_begun_and_settled(store: AlertStore) -> None:
    """A row that is being sent cannot be begun again; a failed one is queued with its time."""
    await commit(store, FIRED, transition(subject=AEON))
    rows = await store.queued("phone", most=10)
    assert await store.waiting_targets() == ["phone"]
    assert await store.begin(rows[:1], now_unix_s=NOW + 1)
    assert not await store.begin(rows, now_unix_s=NOW + 1)
    assert [row.state for row in await store.outbox()] == [OutboxState.SENDING, OutboxState.QUEUED]
    failed = Settlement(state=OutboxState.QUEUED, text="no route", retry_unix_s=NOW + 6)
    await store.settle({rows[0].id: failed}, now_unix_s=NOW + 2)
    (again, _) = await store.queued("phone", most=10)
    assert (again.attempts, again.tried_unix_s, again.retry_unix_s) == (1, NOW + 1, NOW + 6)
    assert (again.text, again.settled_unix_s) == ("no route", None)
    assert await store.last_sent("phone") is None
    assert await store.begin([again], now_unix_s=NOW + 6)
    await store.settle({again.id: SENT}, now_unix_s=NOW + 7)
    assert await store.last_sent("phone") == NOW + 7
    await store.drop({rows[1].id: "over"}, now_unix_s=NOW + 8)
    assert await store.waiting_targets() == []
    assert [(row.state, row.text) for row in await store.outbox()] == [
        (OutboxState.SENT, "sent"),
        (OutboxState.CANCELLED, "over"),
    ]


async def test_rows_that_were_being_sent_are_queued_at_the_start(tmp_path: Path) -> None:
    """Attempts are counted; nobody knows whether the target has them."""
    path = tmp_path / "alerts.sqlite"
    store = await reopened(path)
    await commit(store, FIRED)
    await store.begin(await store.outbox(), now_unix_s=NOW)
    await store.close()
    store = await reopened(path)
    (row,) = await store.queued("phone", most=10)
    assert row.attempts == 1
    await store.close()


async def test_the_outbox_is_counted(store: AlertStore) -> None:
    """The oldest row is that which could be sent first; those that were given up are counted."""
    assert (await store.counts()).oldest_due_unix_s is None
    await commit(store, FIRED, not_before_unix_s=NOW + 100)
    await commit(store, transition(subject=AEON), transition(subject=profile_subject("x")))
    counts = await store.counts()
    assert (counts.waiting, counts.dead, counts.oldest_due_unix_s) == (3, 0, NOW)
    rows = (await store.outbox())[1:]
    await store.begin(rows, now_unix_s=NOW)
    dead = Settlement(state=OutboxState.DEAD, text="refused")
    await store.settle({row.id: dead for row in rows}, now_unix_s=NOW)
    counts = await store.counts()
    assert (counts.waiting, counts.dead, counts.oldest_due_unix_s) == (1, 2, NOW + 100)


async def test_a_look_without_news_waits_for_a_minute(store: AlertStore) -> None:
    """Counters of states that stay as they are wait; a state that has begun to be bad does not."""
    key = (GENESIS, AlertRule.LIVE_DOWN)
    statements: list[str] = []

    async def look(after_s: float, state: AlertState, **book: object) -> bool:
        statements.clear()
        evaluation = Evaluation(book=replace(AlertBook(), states={key: state}, **book))  # type: ignore[arg-type]
        await store.commit(evaluation, targets=[], memory=f"{after_s}", now_unix_s=NOW + after_s)
        return bool(statements)

    good = AlertState(subject=GENESIS, rule=AlertRule.LIVE_DOWN)
    await look(0, good)
    connected(store).set_trace_callback(statements.append)
    assert not await look(10, replace(good, looked_s=10.0, signs="g"))
    assert await look(20, replace(good, phase=AlertPhase.PENDING, signs="gb"))
    assert await look(30, replace(good, phase=AlertPhase.PENDING, signs="gbb"))
    firing = replace(good, phase=AlertPhase.FIRING)
    assert await look(40, firing)
    assert not await look(50, replace(firing, looked_s=50.0))
    assert await look(55, replace(firing, acked_by="ana"))
    assert await look(56, replace(firing, acked_by="ana"), next_silence=2, windows=(_window(),))
    assert not await look(115, replace(firing, acked_by="ana"), windows=(_window(),))
    assert await look(116, replace(firing, acked_by="ana"), windows=(_window(),))
    assert await look(
        30, replace(firing, acked_by="ana"), windows=(_window(),)
    )  # The clock was set.
    assert await store.memory() == "30"


def _window() -> PlannedWindow:
    return PlannedWindow(name="backup", begin="02:00", minutes=10)


async def test_a_token_is_used_once(store: AlertStore) -> None:
    """Tokens that are unknown, used, expired or for something else are refused."""
    await store.add_token("h1", "A1", "ack", NOW + 10)
    await store.add_token("h2", "A1", "ack", NOW + 10)
    for hashed, alert, action, at in (
        ("h3", "A1", "ack", NOW),
        ("h1", "A2", "ack", NOW),
        ("h1", "A1", "silence", NOW),
        ("h1", "A1", "ack", NOW + 10),
    ):
        assert not await store.use_token(hashed, alert, action, at)
    assert await store.use_token("h1", "A1", "ack", NOW + 9)
    assert not await store.use_token("h1", "A1", "ack", NOW + 9)
    assert await store.use_token("h2", "A1", "ack", NOW + 9)


async def test_a_database_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    """The message says what to do; alerts are told all the same, and kept in memory."""
    path = tmp_path / "alerts.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=99")
    db.close()
    before = path.read_bytes()
    store = AlertStore(path, retry_after_s=0.0)
    with pytest.raises(
        StoreError, match=r"newer appliance \(schema 99.*install that version again"
    ):
        await store.open()
    await commit(store, FIRED)
    assert len(await store.queued("phone", most=10)) == 1
    assert "newer appliance" in str(store.trouble)
    assert "df -h" not in str(store.trouble)
    await store.close()
    assert path.read_bytes() == before
    assert [file.name for file in os.scandir(tmp_path)] == [path.name]


async def test_a_damaged_file_is_replaced_and_its_sound_rows_kept(tmp_path: Path) -> None:
    """The book and the newest rows survive a damaged page in the middle of the outbox."""
    path = tmp_path / "alerts.sqlite"
    first = await reopened(path)
    unsynchronised(first)
    subjects = [profile_subject(f"p{n:03}") for n in range(300)]
    evaluation = told(transition(subject=one, alert=f"A{n}") for n, one in enumerate(subjects, 1))
    await first.commit(evaluation, targets=["phone"], memory="{}", now_unix_s=NOW)
    connected(first).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    await first.close()
    with path.open("r+b") as file:
        file.seek(_outbox_page(path) * 4096)
        file.write(b"\xff" * 4096)
    second = await reopened(path)
    assert f"is now {path.with_suffix('.damaged')}" in str(second.recovery)
    assert second.trouble is None
    assert await second.book() == evaluation.book
    assert await second.memory() == "{}"
    rows = await second.outbox(most=1000)
    assert 250 < len(rows) < 300
    assert (rows[0].id, rows[-1].id) == (1, 300)
    (later,) = await second.commit(told([RESOLVED]), targets=["phone"], now_unix_s=NOW)
    assert later.id > 1_000_000_000
    await second.close()


def _outbox_page(path: Path) -> int:
    """The page of the outbox, not of its index, with a row in the middle."""
    pages = path.read_bytes()
    table_leaf, key = b"\x0d", b"profile:p150:live-down:1:fired:phone"
    return next(
        place // 4096
        for place in range(0, len(pages), 4096)
        if pages[place : place + 1] == table_leaf and key in pages[place : place + 4096]
    )


async def test_numbers_that_are_lost_go_on_above_all_that_are_stored(tmp_path: Path) -> None:
    """Without the row of the book, ids of alerts and numbers of episodes are not given again."""
    store = await reopened(tmp_path / "alerts.sqlite")
    await commit(store, transition(alert="A41", episode=7), transition(subject=AEON, alert="A5"))
    connected(store).execute("DELETE FROM meta")
    book = await store.book()
    assert (book.next_alert, book.episode_floor) == (42, 7)
    connected(store).execute("UPDATE states SET document = '{' WHERE subject = 'profile:aeon'")
    assert [subject for subject, _ in (await store.book()).states] == [GENESIS]
    await store.close()


async def test_a_file_that_is_no_database_is_replaced(tmp_path: Path) -> None:
    """The store loses the file and goes on."""
    path = tmp_path / "alerts.sqlite"
    path.write_bytes(b"no database" * 1000)
    store = await reopened(path)
    assert "0 of its rows were kept" in str(store.recovery)
    await commit(store, FIRED)
    assert len(await store.outbox()) == 1
    await store.close()


async def test_damage_at_run_time_costs_no_alert(store: AlertStore) -> None:
    """A file that is overwritten under the store is replaced, and the commit goes to the new one."""
    await commit(store, FIRED)
    path = store._path
    connected(store).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connected(store).execute("PRAGMA shrink_memory")
    path.write_bytes(b"\xff" * path.stat().st_size)
    book = told([FIRED]).book
    evaluation = told([transition(subject=AEON)], book=book)
    await store.commit(evaluation, targets=["phone"], now_unix_s=NOW)
    assert await store.book() == evaluation.book
    assert [row.transition.subject for row in await store.outbox()] == [AEON]
    assert (store.trouble, store.recovery is None) == (None, False)
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM states").fetchone() == (2,)
    db.close()


async def test_a_full_disk_keeps_alerts_in_memory_until_there_is_room(store: AlertStore) -> None:
    """Rows can be sent meanwhile; the file has their ends and deletions afterwards."""
    await commit(store, FIRED, transition(subject=AEON))
    db = connected(store)
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count={pages}")
    store._retry_after_s = 3600.0
    large = transition(subject=profile_subject("x")).replaced(details=("x" * 100_000,))
    evaluation = told([large])
    (numbered,) = await store.commit(evaluation, targets=["phone"], now_unix_s=NOW)
    assert numbered.id == 3
    assert "disk is full): they are told, and kept in memory" in str(store.trouble)
    assert "df -h" in str(store.trouble)
    rows = await store.queued("phone", most=10)
    assert [row.id for row in rows] == [1, 2, 3]
    assert await store.begin(rows, now_unix_s=NOW)
    await store.settle({row.id: SENT for row in rows[1:]}, now_unix_s=NOW)
    store._retry_at_s = 0.0
    await store.counts()
    assert store.trouble is None
    path = store._path
    other = sqlite3.connect(path)
    states = other.execute("SELECT state FROM outbox ORDER BY id").fetchall()
    assert [state for (state,) in states] == ["sending", "sent", "sent"]
    assert other.execute("SELECT subject FROM states").fetchall() == [("profile:x",)]
    other.close()


async def test_a_missing_directory_costs_nothing_but_a_restart(tmp_path: Path) -> None:
    """A commit to a store without a file is in the file once it can be made."""
    home = tmp_path / "gone"
    store = AlertStore(home / "alerts.sqlite", retry_after_s=0.0)
    await store.open()
    (event,) = await store.commit(told([FIRED]), targets=["phone"], now_unix_s=NOW)
    assert event.id > 1_000_000_000
    assert "No such file or directory" in str(store.trouble) or "unable to open" in str(
        store.trouble
    )
    home.mkdir()
    assert len(await store.outbox()) == 1
    assert store.trouble is None
    await store.close()
    later = await reopened(home / "alerts.sqlite")
    assert (await later.book(), await later.transitions()) == (told([FIRED]).book, [event])
    await later.close()


async def test_rows_of_a_file_that_could_not_be_read_are_kept_beside_those_of_memory(
    tmp_path: Path,
) -> None:
    """Rows of the file stay, those with a later number come after them, later states win."""
    home = tmp_path / "home"
    home.mkdir()
    store = await reopened(home / "alerts.sqlite")
    await commit(store, FIRED, transition(subject=AEON))
    await store.close()
    home.rename(tmp_path / "away")
    store = await reopened(home / "alerts.sqlite")
    await commit(store, transition(episode=2, alert="A2"))
    home.rmdir() if home.exists() else None
    (tmp_path / "away").rename(home)
    episodes = [row.transition.episode for row in await store.queued("phone", most=10)]
    assert episodes == [1, 1, 2]
    states = (await store.book()).states
    assert {state.subject.name: state.episode for state in states.values()} == {
        "genesis": 2,
        "aeon": 1,
    }
    await store.close()


async def test_old_rows_are_dropped_and_those_that_wait_are_kept(tmp_path: Path) -> None:
    """The newest ten thousand of what is over stay, and numbers are never given again."""
    store = await reopened(tmp_path / "alerts.sqlite")
    await commit(store, FIRED, transition(subject=AEON))
    repeat_last(store, 10_998, state=OutboxState.SENT)
    await store.close()
    store = await reopened(tmp_path / "alerts.sqlite")
    await commit(store, RESOLVED)
    kept = await store.transitions(most=20_000)
    assert (kept[0].id, kept[-1].id, len(kept)) == (1002, 11_001, 10_000)
    rows = await store.outbox(most=20_000)
    assert [row.id for row in rows] == [1, 2, *range(1002, 11_002)]
    await store.close()


async def test_a_hundred_thousand_rows_stay_quick(tmp_path: Path) -> None:
    """Reading, beginning and settling of one row takes no longer behind many."""
    store = await reopened(tmp_path / "alerts.sqlite")
    await commit(store, transition(subject=AEON))
    repeat_last(store, 100_000 - 1, state=OutboxState.QUEUED)
    began_s = time.process_time()
    for number in range(20):
        (row, *_) = await store.queued("phone", most=10)
        await store.begin([row], now_unix_s=NOW)
        await store.settle({row.id: SENT}, now_unix_s=NOW)
        await store.last_sent("phone")
        await commit(store, transition(episode=number))
    assert (time.process_time() - began_s) / 20 < 0.02
    began_s = time.process_time()
    assert (await store.counts()).waiting == 100_000
    assert await store.waiting_targets() == ["phone"]
    assert time.process_time() - began_s < 0.2
    await store.close()


async def test_what_is_written_is_on_the_disk(store: AlertStore) -> None:
    """Each transaction is synchronised, as the file promises to survive a loss of power."""
    assert connected(store).execute("PRAGMA synchronous").fetchone()[0] == 2
    assert connected(store).execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert SendResult(outcome=SendOutcome.SENT).text == ""


WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from appliance.system.sqlite.alert_store import AlertStore
from appliance.model.alerts import TransitionKind
from tests.fakes.alert_samples import AEON, told, transition

async def write(path, most_statements):
    store = AlertStore(path)
    await store.open()
    first = told([transition(alert="A1")])
    await store.commit(first, targets=["phone", "hook"], now_unix_s=1.0)
    statements = []
    def seen(text):
        statements.append(text)
        if len(statements) > most_statements:
            os.kill(os.getpid(), signal.SIGKILL)
    store._db.set_trace_callback(seen)
    changes = [transition(TransitionKind.RESOLVED, alert="A1"), transition(subject=AEON)]
    second = told(changes, book=first.book, cancelled=("A1",))
    await store.commit(second, targets=["phone", "hook"], now_unix_s=2.0)
    os.kill(os.getpid(), signal.SIGKILL)

for most_statements in range(int(sys.argv[2])):
    if (child := os.fork()) == 0:
        asyncio.run(write(Path(sys.argv[1], f"{most_statements}.sqlite"), most_statements))
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
"""
STATEMENTS = 20


async def test_a_killed_writer_loses_nothing_and_splits_nothing(tmp_path: Path) -> None:
    """Killed before any of its statements, a commit leaves all that it writes, or nothing."""
    root = Path(__file__).parents[4]
    subprocess.run(  # noqa: ASYNC221 - a second
        [sys.executable, "-c", WRITER, tmp_path, f"{STATEMENTS}"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}"},
        check=True,
        timeout=50,
    )
    done = []
    for most_statements in range(STATEMENTS):
        store = await reopened(tmp_path / f"{most_statements}.sqlite")
        kinds = [one.kind for one in await store.transitions()]
        phases = [state.phase for state in (await store.book()).states.values()]
        rows = [(row.transition.kind, row.state) for row in await store.outbox()]
        queued, cancelled = OutboxState.QUEUED, OutboxState.CANCELLED
        fired, resolved = TransitionKind.FIRED, TransitionKind.RESOLVED
        if len(kinds) == 1:
            assert (kinds, phases) == ([fired], [AlertPhase.FIRING])
            assert rows == [(fired, queued)] * 2
        else:
            assert kinds == [fired, resolved, fired]
            assert sorted(phases) == [AlertPhase.FIRING, AlertPhase.OK]
            assert rows == [
                *[(fired, cancelled)] * 2,
                *[(resolved, queued)] * 2,
                *[(fired, queued)] * 2,
            ]
        done.append(len(kinds) == 3)
        await store.close()
    assert done == sorted(done)
    assert done.count(False) > 10
    assert done[-1]
