"""Operations and marks in SQLite: kept over a death, never in the way of a switch."""

import json
import os
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.errors import StoreError
from appliance.model.operations import (
    FOREVER,
    Cause,
    Finished,
    Goal,
    Kind,
    Operation,
    Outcome,
    Phase,
)
from appliance.model.words import Mark
from appliance.system.ports import Store
from appliance.system.sqlite.operation_store import OperationStore
from tests.fakes.ports import FakeStore

OPERATION = Operation(
    id=0,
    kind=Kind.SWITCH,
    target=("genesis",),
    goal=Goal(stop=("aeon",), start=("genesis",), restore=("aeon",), commit=("genesis",)),
    boot_id="boot-1",
    requested_by="ana (uid 1000, pid 7)",
    began_unix_s=1000.0,
    began_s=10.0,
    drain_s=5.0,
)


def ended(operation: Operation, *, ms: float = 500.0, outcome: Outcome = Outcome.DONE) -> Finished:
    return Finished(
        operation=operation,
        outcome=outcome,
        message="genesis is serving",
        finished_unix_s=operation.began_unix_s + ms / 1000,
        phases_ms={"stop": 12.5},
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[OperationStore]:
    opened = OperationStore(tmp_path / "state.sqlite", keep_rows=20)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture(params=["sqlite", "fake"])
def either(request: pytest.FixtureRequest, store: OperationStore) -> Store:
    """The contract holds for the real store and for the one that tests use."""
    return store if request.param == "sqlite" else FakeStore()


async def test_unfinished_operation_is_found_as_it_was(either: Store) -> None:
    """An operation that a killed process left open comes back equal, with its last phase."""
    begun = await either.begin(OPERATION)
    moved = replace(begun, phase=Phase.LOAD, cause=Cause.CANCELLED, reason="cancelled")
    either.update(moved)
    assert await either.unfinished() == moved
    assert await either.last() is None
    await either.finish(ended(moved))
    assert await either.unfinished() is None
    assert await either.last() == ended(moved)
    assert await either.newest(5) == [ended(moved)]


async def test_an_operation_is_found_by_its_number_once_it_is_over(either: Store) -> None:
    """Also when another one ended since; one that runs, and one that never was, are not found."""
    first, second = await either.begin(OPERATION), await either.begin(OPERATION)
    assert await either.finished(first.id) is None
    await either.finish(ended(first))
    await either.finish(ended(second))
    assert await either.finished(first.id) == ended(first)
    assert await either.finished(999) is None


@pytest.mark.parametrize("until", [None, FOREVER, 1234.5])
async def test_every_goal_survives(either: Store, until: float | str | None) -> None:
    """A goal without a commit, and each kind of hold, comes back equal."""
    operation = replace(OPERATION, goal=Goal(hold_until=until), kind=Kind.HOLD, target=())
    begun = await either.begin(operation)
    assert await either.unfinished() == begun


async def test_usual_time_is_the_median_of_those_that_were_done(either: Store) -> None:
    """Failed ones and other targets say nothing about how long a switch takes."""
    assert await either.usual_ms(OPERATION) is None
    for ms in (100.0, 900.0, 300.0):
        await either.finish(ended(await either.begin(OPERATION), ms=ms))
    failed = ended(await either.begin(OPERATION), ms=9e6, outcome=Outcome.FAILED)
    await either.finish(failed)
    other = replace(OPERATION, target=("aeon",))
    await either.finish(ended(await either.begin(other), ms=8e6))
    assert await either.usual_ms(OPERATION) == pytest.approx(300.0)


async def test_usual_time_is_that_of_operations_that_changed_as_much(either: Store) -> None:
    """A switch to what serves is over at once, which says nothing of one that loads a model."""
    idle = replace(OPERATION, goal=Goal(start=("genesis",), kept=("genesis",)))
    await either.finish(
        replace(ended(await either.begin(idle), ms=20.0), phases_ms={"commit": 1.0})
    )
    assert await either.usual_ms(OPERATION) is None
    await either.finish(ended(await either.begin(OPERATION), ms=900.0))
    assert await either.usual_ms(OPERATION) == pytest.approx(900.0)
    assert await either.usual_ms(idle) == pytest.approx(20.0)


async def test_ends_of_the_supervisor_are_kept(either: Store) -> None:
    """The next process finds how often each phase has ended the ones before."""
    begun = await either.begin(OPERATION)
    counted = replace(begun, ends={"load": 1, "roll-back stop": 2})
    either.update(counted)
    assert await either.unfinished() == counted


async def test_repairs_are_counted_by_profile(either: Store) -> None:
    """Only repairs count, and only those since the given time."""
    for began, kind in ((10.0, Kind.REPAIR), (20.0, Kind.REPAIR), (30.0, Kind.SWITCH)):
        await either.begin(replace(OPERATION, kind=kind, began_unix_s=began))
    assert await either.repairs(15.0) == {"genesis": [20.0]}


async def test_mark_is_replaced(either: Store) -> None:
    """The last mark counts."""
    await either.set_mark("genesis", Mark.LIVE, by="ana")
    await either.set_mark("genesis", Mark.RETIRED, by="ana")
    assert await either.marks() == {"genesis": Mark.RETIRED}


async def test_what_every_status_asks_for_is_read_once(store: OperationStore) -> None:
    """Marks and the last operation are remembered until one of them is written."""
    for name in ("genesis", "aeon"):
        await store.set_mark(name, Mark.LIVE, by="ana")
        done = ended(await store.begin(OPERATION))
        await store.finish(done)
        marks, last = await store.marks(), await store.last()
        assert (name in marks, last) == (True, done)
        assert await store.marks() is marks
        assert await store.last() is last


async def test_rows_are_bounded(store: OperationStore) -> None:
    """Old operations make room for new ones."""
    for _ in range(50):
        await store.finish(ended(await store.begin(OPERATION)))
    with sqlite3.connect(store._path) as db:
        assert db.execute("SELECT count(*) FROM operations").fetchone() == (20,)
    db.close()


async def test_history_is_the_supervisors_alone(tmp_path: Path) -> None:
    """No file of the database is readable for others, also one that an older release made."""
    path = tmp_path / "state.sqlite"
    path.touch(mode=0o644)
    store = OperationStore(path, keep_rows=20)
    await store.open()
    await store.begin(OPERATION)
    modes = {os.stat(file).st_mode & 0o777 for file in os.scandir(tmp_path)}  # noqa: PTH116
    await store.close()
    assert modes == {0o600}


async def test_damaged_file_is_set_aside(tmp_path: Path) -> None:
    """A file that is no database is kept under another name, and the store works."""
    path = tmp_path / "state.sqlite"
    path.write_bytes(b"not a database" * 1000)
    store = OperationStore(path, keep_rows=20)
    await store.open()
    assert (await store.begin(OPERATION)).id == 1
    await store.close()
    assert path.with_suffix(".damaged").read_bytes().startswith(b"not a database")


async def test_unwritable_directory_only_forgets(tmp_path: Path) -> None:
    """Where no file can be made the store forgets; nothing fails."""
    store = OperationStore(tmp_path / "gone" / "state.sqlite", keep_rows=20)
    await store.open()
    begun = await store.begin(OPERATION)
    store.update(begun)
    await store.finish(ended(begun))
    await store.close()


async def test_damage_at_run_time_costs_no_running_operation(store: OperationStore) -> None:
    """A table that is gone costs the history, and a mark says so; what runs is still known."""
    db = sqlite3.connect(store._path)
    db.executescript("DROP TABLE operations; DROP TABLE marks;")
    db.close()
    begun = await store.begin(OPERATION)
    assert begun.id == 1
    store.update(begun)
    assert await store.unfinished() == begun
    with pytest.raises(StoreError, match="could not be stored"):
        await store.set_mark("genesis", Mark.LIVE, by="ana")


async def test_newer_file_is_refused(tmp_path: Path) -> None:
    """A downgrade is refused with the version that is needed, and touches nothing."""
    path = tmp_path / "state.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"newer appliance \(schema 99"):
        await OperationStore(path, keep_rows=20).open()
    assert path.read_bytes() == before


async def test_operation_outlives_the_supervisor_on_a_disk_that_takes_nothing(
    tmp_path: Path,
) -> None:
    """Open and ended operations are known to the next process of this boot without a database."""
    nowhere, spool = tmp_path / "full" / "state.sqlite", tmp_path / "operation.json"
    first = OperationStore(nowhere, keep_rows=20, spool=spool)
    await first.open()
    done = await first.begin(replace(OPERATION, kind=Kind.REPAIR))
    await first.finish(ended(done))
    begun = await first.begin(OPERATION)
    moved = replace(begun, phase=Phase.STOP)
    first.update(moved)
    await first.close()
    second = OperationStore(nowhere, keep_rows=20, spool=spool)
    await second.open()
    assert await second.unfinished() == moved
    assert await second.last() == ended(done)
    assert await second.repairs(0.0) == {"genesis": [1000.0]}
    assert (await second.begin(OPERATION)).id == moved.id + 1
    await second.close()


async def test_numbers_go_on_when_the_disk_is_full_at_a_start(tmp_path: Path) -> None:
    """A supervisor that cannot read the database gives no operation of this boot's number again."""
    home, spool = tmp_path / "state", tmp_path / "operation.json"
    home.mkdir()
    first = OperationStore(home / "state.sqlite", keep_rows=20, spool=spool)
    await first.open()
    done = await first.begin(OPERATION)
    await first.finish(ended(done))
    await first.close()
    home.rename(tmp_path / "away")
    second = OperationStore(home / "state.sqlite", keep_rows=20, spool=spool)
    await second.open()
    assert (await second.begin(OPERATION)).id == done.id + 1
    await second.close()


async def test_number_that_was_given_twice_overwrites_nothing(tmp_path: Path) -> None:
    """After a boot on a full disk numbers begin anew; the database keeps both operations."""
    home, away = tmp_path / "state", tmp_path / "away"
    home.mkdir()
    store = OperationStore(home / "state.sqlite", keep_rows=20)
    await store.open()
    old = ended(await store.begin(OPERATION))
    await store.finish(old)
    await store.close()
    home.rename(away)
    blind = OperationStore(
        home / "state.sqlite", keep_rows=20, spool=tmp_path / "spool", retry_after_s=0.0
    )
    await blind.open()
    begun = await blind.begin(replace(OPERATION, began_unix_s=2000.0))
    assert begun.id == old.operation.id
    away.rename(home)
    blind.update(replace(begun, phase=Phase.LOAD))
    await blind.finish(ended(begun))
    await blind.close()
    later = OperationStore(home / "state.sqlite", keep_rows=20)
    await later.open()
    last = await later.last()
    assert last == ended(replace(begun, id=old.operation.id + 1))
    assert await later.usual_ms(OPERATION) == 500.0
    with sqlite3.connect(home / "state.sqlite") as db:
        assert db.execute("SELECT began FROM operations ORDER BY id").fetchall() == [
            (1000.0,),
            (2000.0,),
        ]
    db.close()
    await later.close()


async def test_disk_with_room_again_gets_everything(tmp_path: Path) -> None:
    """Operations that ended while the disk was full are in the database once it takes them."""
    home = tmp_path / "full"
    store = OperationStore(
        home / "state.sqlite",
        keep_rows=20,
        spool=tmp_path / "operation.json",
        retry_after_s=0.0,
    )
    await store.open()
    done = ended(await store.begin(OPERATION))
    await store.finish(done)
    with pytest.raises(StoreError, match="could not be stored"):
        await store.set_mark("genesis", Mark.LIVE, by="ana")
    home.mkdir()
    await store.set_mark("genesis", Mark.LIVE, by="ana")
    await store.close()
    later = OperationStore(home / "state.sqlite", keep_rows=20)
    await later.open()
    assert await later.last() == done
    assert await later.marks() == {"genesis": Mark.LIVE}
    await later.close()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"open": {"id": "x"}, "waiting": []}', '{"open": {"id": 1}, "waiting": []}'],
)
async def test_damaged_spool_is_as_good_as_none(tmp_path: Path, text: str) -> None:
    """A supervisor starts on whatever an earlier one left half-written."""
    spool = tmp_path / "operation.json"
    spool.write_text(text)
    store = OperationStore(tmp_path / "state.sqlite", keep_rows=20, spool=spool)
    await store.open()
    assert await store.unfinished() is None
    assert await store.last() is None
    await store.close()


async def test_full_disk_is_no_damaged_database(tmp_path: Path) -> None:
    """A file that cannot be opened for want of room is not set aside: marks are in it."""
    path = tmp_path / "state.sqlite"
    store = OperationStore(path, keep_rows=20)
    await store.open()
    await store.set_mark("genesis", Mark.LIVE, by="ana")
    await store.close()
    (tmp_path / "state.sqlite-wal").symlink_to("state.sqlite-wal")  # SQLite cannot open it either
    blocked = OperationStore(path, keep_rows=20, retry_after_s=0.0)
    await blocked.open()
    assert not path.with_suffix(".damaged").exists()
    (tmp_path / "state.sqlite-wal").unlink()
    assert await blocked.marks() == {"genesis": Mark.LIVE}
    await blocked.close()


async def test_operation_that_ended_on_a_full_disk_is_stored_without_another(
    tmp_path: Path,
) -> None:
    """Any later request to the store brings the operation into a database that takes it."""
    path = tmp_path / "state.sqlite"
    store = OperationStore(path, keep_rows=20, spool=tmp_path / "operation.json", retry_after_s=0.0)
    await store.open()
    begun = await store.begin(OPERATION)
    other = sqlite3.connect(path)
    other.execute("ALTER TABLE operations RENAME TO elsewhere")
    await store.finish(ended(begun))
    other.execute("ALTER TABLE elsewhere RENAME TO operations")
    await store.marks()
    assert other.execute("SELECT outcome FROM operations").fetchall() == [("done",)]
    other.close()
    await store.close()


VERSION_1 = """
CREATE TABLE operations (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, target TEXT NOT NULL, goal TEXT NOT NULL,
  boot_id TEXT NOT NULL, requested_by TEXT NOT NULL, began REAL NOT NULL,
  rollback INTEGER NOT NULL, drain_s REAL, phase TEXT NOT NULL,
  rolling_back INTEGER NOT NULL, reason TEXT NOT NULL,
  outcome TEXT, message TEXT, finished REAL, phases_ms TEXT, began_s REAL, finished_s REAL
) STRICT;
CREATE INDEX operations_began ON operations (began);
CREATE TABLE marks (
  name TEXT PRIMARY KEY, mark TEXT NOT NULL, set_by TEXT NOT NULL, set_at REAL NOT NULL
) STRICT;
INSERT INTO marks VALUES ('genesis', 'retired', 'ana', 1.0);
PRAGMA user_version=1;
"""
GOAL_1 = '{"stop": ["aeon"], "start": ["genesis"], "restore": ["aeon"], "commit": null, "hold_until": null}'
"""Goal of a row that an early release of version 1 wrote."""
OVER_1 = "the command ended with status 0 after 5 s"


def row_1(kind: Kind, *, reason: str) -> dict[str, object]:
    """An open operation, as version 1 kept it."""
    return {
        "id": 7,
        "kind": kind.value,
        "target": '["genesis"]',
        "goal": GOAL_1,
        "boot_id": "boot-1",
        "requested_by": "ana",
        "began": 1000.0,
        "rollback": 1,
        "drain_s": None,
        "phase": "stop",
        "rolling_back": int(bool(reason)),
        "reason": reason,
    }


def database_1(path: Path, row: dict[str, object], *, without: tuple[str, ...] = ()) -> None:
    """A database of version 1 with one operation; early ones are `without` columns."""
    db = sqlite3.connect(path)
    db.executescript(VERSION_1)
    for column in without:
        db.execute(f"ALTER TABLE operations DROP COLUMN {column}")
    columns, places = ", ".join(row), ", ".join(f":{name}" for name in row)
    db.execute(f"INSERT INTO operations ({columns}) VALUES ({places})", row)  # noqa: S608
    db.commit()
    db.close()


@pytest.mark.parametrize("kept_in", ["database", "spool"])
@pytest.mark.parametrize(
    ("kind", "reason", "cause"),
    [
        (Kind.SWITCH, "", None),
        (Kind.SWITCH, "cancelled", Cause.CANCELLED),
        (Kind.SWITCH, "genesis did not start: no answer", Cause.FAILURE),
        (Kind.RUN, OVER_1, Cause.COMMAND_ENDED),
        (Kind.RUN, "cancelled", Cause.CANCELLED),
        (Kind.RUN, "it was stopped", Cause.FAILURE),
    ],
)
async def test_an_open_operation_of_the_version_before_goes_on(
    tmp_path: Path, kept_in: str, kind: Kind, reason: str, cause: Cause | None
) -> None:
    """Version 1 told in a text alone why an operation goes back; from now on a column tells it."""
    path, spool = tmp_path / "state.sqlite", tmp_path / "operation.json"
    row = row_1(kind, reason=reason)
    if kept_in == "database":
        database_1(path, row)
    else:
        spool.write_text(json.dumps({"open": row, "waiting": [], "last_id": 9}))
    store = OperationStore(path, keep_rows=20, spool=spool)
    await store.open()
    operation = await store.unfinished()
    assert operation is not None
    assert (operation.cause, operation.rolling_back) == (cause, bool(reason))
    assert (operation.reason, operation.goal.kept) == (reason, ())
    again = await store.begin(OPERATION)
    assert again.id == (8 if kept_in == "database" else 10)
    await store.close()
    later = OperationStore(path, keep_rows=20, spool=spool)
    await later.open()
    assert await later.unfinished() == again
    await later.close()


@pytest.mark.parametrize("kept_in", ["database", "spool"])
@pytest.mark.parametrize(
    ("reason", "outcome", "message", "cause"),
    [
        ("", Outcome.DONE, "genesis is serving", None),
        ("", Outcome.SUPERSEDED, "aeon was started by hand meanwhile and stays", None),
        ("", Outcome.REFUSED, "cancelled", Cause.CANCELLED),
        ("", Outcome.REFUSED, "no GPU", Cause.FAILURE),
        ("cancelled", Outcome.ROLLED_BACK, "cancelled", Cause.CANCELLED),
        ("no answer", Outcome.ROLLED_BACK, "no answer", Cause.FAILURE),
        ("cancelled", Outcome.FAILED, "cancelled", Cause.CANCELLED),
        ("cancelled", Outcome.FAILED, "cancelled; roll-back failed: no answer", Cause.FAILURE),
        (OVER_1, Outcome.FAILED, f"{OVER_1}; going back failed: no answer", Cause.FAILURE),
    ],
)
async def test_an_end_of_the_version_before_has_its_cause(  # noqa: PLR0917 - a table
    tmp_path: Path, kept_in: str, reason: str, outcome: Outcome, message: str, cause: Cause | None
) -> None:
    """Operations that ended before an upgrade keep their times and say why they ended."""
    path, spool = tmp_path / "state.sqlite", tmp_path / "operation.json"
    row = row_1(Kind.RUN, reason=reason)
    row |= {"outcome": outcome.value, "message": message, "finished": 1000.5, "phases_ms": "{}"}
    if kept_in == "database":
        database_1(path, row, without=("began_s", "finished_s"))
    else:
        spool.write_text(json.dumps({"open": None, "waiting": [row]}))
    store = OperationStore(path, keep_rows=20, spool=spool)
    await store.open()
    last = await store.last()
    assert last is not None
    assert (last.outcome, last.cause, last.message) == (outcome, cause, message)
    assert (last.operation.began_s, last.finished_s, last.total_ms) == (0.0, 0.0, 500.0)
    assert await store.finished(7) == last
    assert (await store.marks() == {"genesis": Mark.RETIRED}) is (kept_in == "database")
    await store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("SELECT finish_cause FROM operations").fetchall() == [(cause,)]
    db.close()


async def test_a_table_of_no_version_is_set_aside(tmp_path: Path) -> None:
    """A file that says version 1 and is none is kept under another name, and the store works."""
    path = tmp_path / "state.sqlite"
    row = row_1(Kind.SWITCH, reason="")
    del row["rolling_back"]
    database_1(path, row, without=("rolling_back",))
    store = OperationStore(path, keep_rows=20)
    await store.open()
    assert (await store.begin(OPERATION)).id == 1
    await store.close()
    with sqlite3.connect(path.with_suffix(".damaged")) as db:
        assert db.execute("SELECT id FROM operations").fetchall() == [(7,)]
    db.close()


async def test_a_spool_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """A downgrade in the middle of an operation is refused like one of the database."""
    spool = tmp_path / "operation.json"
    spool.write_text('{"version": 99, "open": null, "waiting": []}')
    store = OperationStore(tmp_path / "state.sqlite", keep_rows=20, spool=spool)
    with pytest.raises(StoreError, match=r"operation.json .*newer appliance \(schema 99"):
        await store.open()
    assert spool.read_text() == '{"version": 99, "open": null, "waiting": []}'
    await store.close()


async def test_usual_time_of_two_is_between_them(store: OperationStore) -> None:
    """A median of an even number of values is the mean of the two in the middle."""
    for ms in (300.0, 100.0):
        await store.finish(ended(await store.begin(OPERATION), ms=ms))
    assert await store.usual_ms(OPERATION) == pytest.approx(200.0)


async def test_usual_time_spans_clocks(store: OperationStore) -> None:
    """The monotonic clock counts where both stamps are there, else the wall clock."""
    await store.finish(ended(await store.begin(OPERATION)))
    begun = await store.begin(OPERATION)
    new = replace(ended(begun), finished_unix_s=0.0, finished_s=10.7)
    await store.finish(new)
    assert await store.last() == new
    assert new.total_ms == pytest.approx(700.0)
    assert await store.usual_ms(OPERATION) == pytest.approx(600.0)
