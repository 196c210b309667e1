"""Measurements in SQLite: together or not at all, kept over faults, down-sampled."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.model.errors import StoreError
from appliance.model.measurements import (
    CanaryRun,
    EventKind,
    MeasurementEvent,
    Probe,
    ProbeKind,
    TrafficSums,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.speed.profile_record import ProfileRecord
from appliance.status.history import summarise
from appliance.system.sqlite.measurement_store import MeasurementStore
from tests.fakes.probe_rows import probe
from tests.fakes.probed_box import ProbedBox

DAY_S = 86400.0
NOW = 1_800_000_000.0
DECODE = ("genesis", "decode")
LOSS = MeasurementEvent(
    unix_s=NOW,
    profile="genesis",
    kind=EventKind.REGRESSION,
    series=Series.DECODE,
    change=-0.34,
    cause="clock-capped",
    rate=27.1,
    baseline=41.0,
    since_unix_s=NOW - 2100.0,
    likely="the GPU's clock is held down: 1695 → 1200 MHz",
    text="genesis decodes 34 % slower",
)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[MeasurementStore]:
    opened = MeasurementStore(tmp_path / "measurements.sqlite", retry_after_s=0.0)
    await opened.open()
    yield opened
    await opened.close()


def connected(store: MeasurementStore) -> sqlite3.Connection:
    """The store's own connection, to take room from it."""
    assert store._db is not None
    return store._db


def unsynchronised(store: MeasurementStore) -> sqlite3.Connection:
    """The connection, which waits for no disk: for tests that write many rows."""
    db = connected(store)
    db.execute("PRAGMA synchronous=OFF")
    return db


def in_file(store: MeasurementStore) -> list[str]:
    """The states and the numbers of events that another process would find."""
    db = sqlite3.connect(store._path)
    found = db.execute("SELECT state FROM detectors UNION ALL SELECT id FROM events").fetchall()
    db.close()
    return [str(value) for (value,) in found]


async def test_record_of_a_profile_comes_back_from_its_states(store: MeasurementStore) -> None:
    """States that are stored with a probe give a restored record the same baseline and phase."""
    box = ProbedBox.healthy(6)
    await store.add(probe=probe(NOW), states=box.record.unsaved(), events=box.events)
    states = {key: text for (_, key), text in (await store.states()).items()}
    record = ProfileRecord.restored("genesis", states)
    assert record.faults == []
    assert record.speeds() == box.record.speeds()
    assert record.memory == box.record.memory
    assert [event.kind for event in await store.events()] == [EventKind.ACCEPTED] * 2


async def test_everything_comes_back_as_it_was(store: MeasurementStore) -> None:
    """A probe with and one without times, a state, an event, a canary's run, traffic and a bench."""
    failed = Probe(
        profile="genesis",
        began_unix_s=NOW + 1,
        began_s=1.0,
        boot_id="b",
        kind=ProbeKind.ON_DEMAND,
        prompt="refactor",
        outcome=ProbeOutcome.FAILED,
        detail="no answer",
    )
    run = CanaryRun(profile="genesis", canary="tool", unix_s=NOW, passed=False, detail="no JSON")
    (event,) = await store.add(probe=probe(NOW), states={DECODE: "{}"}, events=[LOSS])
    await store.add(probe=failed, canary_runs=[run])
    assert await store.probes("genesis") == [probe(NOW), failed]
    assert await store.probes("genesis", most=1) == [failed]
    assert await store.probes("genesis", NOW + 2) == []
    assert await store.states() == {DECODE: "{}"}
    assert (event, await store.events()) == (LOSS.replaced(id=1), [event])
    assert await store.canary_runs("genesis", NOW) == [run]
    for tokens in (3, 4):
        await store.add_traffic("genesis", TrafficSums(unix_s=NOW + tokens, output_tokens=tokens))
    assert await store.traffic("genesis", NOW) == [TrafficSums(unix_s=NOW, output_tokens=7)]
    assert await store.add_bench("genesis", NOW, {"runs": 3})
    (bench,) = await store.benches()
    assert (bench.name, bench.unix_s, bench.document) == ("genesis", NOW, {"runs": 3})
    assert store.trouble is None


async def test_events_are_read_on_from_a_number(store: MeasurementStore) -> None:
    """Events of the box belong to each profile; the newest ones are kept where there are many."""
    box = LOSS.replaced(profile="", kind=EventKind.STORE_RECOVERED)
    await store.add(events=[LOSS, box, LOSS.replaced(profile="aeon")])
    assert [event.id for event in await store.events(1)] == [2, 3]
    assert [event.id for event in await store.events(profile="genesis")] == [1, 2]
    assert [event.id for event in await store.events(most=1)] == [3]


async def test_probes_are_read_in_pages(store: MeasurementStore) -> None:
    """A page has the newest probes before a time, and the page before it ends where it begins."""
    unsynchronised(store)
    probes = [probe(NOW + minute * 60) for minute in range(5)]
    for one in probes:
        await store.add(probe=one)
    page = await store.probes("genesis", NOW + 60, most=2)
    assert page == probes[3:]
    before = page[0].began_unix_s
    assert await store.probes("genesis", NOW + 60, most=9, until_unix_s=before) == probes[1:3]


async def test_a_history_is_of_valid_probes_alone(store: MeasurementStore) -> None:
    """Warm-ups, probes that yielded and other profiles do not count."""
    await store.add(probe=probe(NOW, kind=ProbeKind.WARM_UP))
    await store.add(probe=probe(NOW, outcome=ProbeOutcome.YIELDED))
    await store.add(probe=probe(NOW, profile="aeon"))
    for minute, decode_s in ((0, 4.0), (15, 5.0), (30, 10.0)):
        await store.add(probe=probe(NOW + minute * 60, decode_s=decode_s))
    rows = await store.history("genesis", Series.DECODE, NOW)
    assert [row.median for row in rows] == [50.0, 40.0, 20.0]
    assert (await store.history("genesis", Series.PREFILL, NOW))[0].median == 2000.0
    assert await store.history("genesis", Series.DECODE, NOW, span_s=3600.0) == (
        summarise(NOW, [50.0, 40.0, 20.0]),
    )


async def test_several_series_are_read_at_once(store: MeasurementStore) -> None:
    """Rows of each are joined in spans that leave no more than may travel."""
    unsynchronised(store)
    for quarter in range(12):
        await store.add(probe=probe(NOW + quarter * 900))
    found = await store.histories("genesis", tuple(Series), NOW, most=12)
    assert [len(found[series]) for series in Series] == [12, 12]
    found = await store.histories("genesis", tuple(Series), NOW, most=11)
    assert found == {
        Series.DECODE: tuple(summarise(NOW + hour * 3600, [50.0] * 4) for hour in range(3)),
        Series.PREFILL: tuple(summarise(NOW + hour * 3600, [2000.0] * 4) for hour in range(3)),
    }


async def test_old_probes_become_hours(store: MeasurementStore) -> None:
    """A step takes a day at most; the history goes on over the border, and hours can be joined."""
    unsynchronised(store)
    old = NOW - 100 * DAY_S
    for hour in range(30):
        await store.add(probe=probe(old + hour * 3600, decode_s=4.0))
        await store.add(probe=probe(old + hour * 3600 + 900, decode_s=5.0))
    await store.add(canary_runs=[CanaryRun(profile="genesis", canary="t", unix_s=old, passed=True)])
    await store.add(probe=probe(NOW, decode_s=4.0))
    assert await store.compact(NOW)
    assert not await store.compact(NOW)
    assert await store.probes("genesis") == [probe(NOW, decode_s=4.0)]
    assert await store.canary_runs("genesis", 0.0) == []
    rows = await store.history("genesis", Series.DECODE, old)
    assert rows == (
        *(summarise(old + hour * 3600, [50.0, 40.0]) for hour in range(30)),
        summarise(NOW, [50.0]),
    )
    await store.add(probe=probe(old, decode_s=2.0))  # The clock was set back for a moment.
    assert not await store.compact(NOW)
    joined = (await store.history("genesis", Series.DECODE, old))[0]
    assert (joined.probes, joined.low, joined.high) == (3, 40.0, 100.0)
    assert joined.median == pytest.approx((2 * 45.0 + 100.0) / 3)


async def test_events_and_benches_are_bounded(store: MeasurementStore) -> None:
    """The newest ones stay, and numbers of events are never given again."""
    unsynchronised(store)
    for _ in range(11):
        await store.add(events=[LOSS] * 1000)
    for number in range(52):
        await store.add_bench(f"{number}", NOW, {})
    await store.compact(NOW)
    kept = await store.events(most=20_000)
    assert (kept[0].id, kept[-1].id, len(kept)) == (1001, 11_000, 10_000)
    assert [bench.name for bench in await store.benches(most=99)][-1] == "2"


async def test_room_of_old_probes_is_given_back(store: MeasurementStore) -> None:
    """A file that shrinks does so by a bounded number of pages at a step."""
    db = unsynchronised(store)
    for n in range(400):
        large = replace(probe(NOW - 200 * DAY_S + n), detail="x" * 4000)
        await store.add(probe=large)

    def pages() -> int:
        return int(db.execute("PRAGMA page_count").fetchone()[0])

    before = pages()
    for step in (1, 2):
        await store.compact(NOW)
        assert 100 < before - pages() <= 256 * step


async def test_a_database_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """The message says what to do, and the file stays as it is."""
    path = tmp_path / "measurements.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version=99")
    db.close()
    before = path.read_bytes()
    store = MeasurementStore(path)
    with pytest.raises(
        StoreError, match=r"newer appliance \(schema 99.*install that version again"
    ):
        await store.open()
    await store.close()
    assert path.read_bytes() == before
    assert [file.name for file in os.scandir(tmp_path)] == [path.name]


async def test_a_damaged_file_is_replaced_and_its_sound_rows_kept(tmp_path: Path) -> None:
    """Baselines and events survive a damaged page of another table, and an event tells of it."""
    path = tmp_path / "measurements.sqlite"
    first = MeasurementStore(path)
    await first.open()
    unsynchronised(first)
    await first.add(states={DECODE: "baseline"}, events=[LOSS])
    for n in range(200):
        await first.add(probe=probe(NOW + n * 900))
    pages = connected(first).execute("PRAGMA page_count").fetchone()[0]
    await first.close()
    with path.open("r+b") as file:
        file.seek((pages - 10) * 4096)
        file.write(b"\xff" * 4096)
    second = MeasurementStore(path)
    await second.open()
    assert await second.states() == {DECODE: "baseline"}
    before, event = await second.events()
    assert (before, event.kind) == (LOSS.replaced(id=1), EventKind.STORE_RECOVERED)
    assert f"is now {path.with_suffix('.damaged')}" in event.text
    assert 100 < len(await second.probes("genesis")) < 200
    assert (await second.add(events=[LOSS]))[0].id == event.id + 1
    await second.close()


async def test_a_file_that_is_no_database_is_replaced(tmp_path: Path) -> None:
    """The store loses the file and goes on, with numbers above all earlier ones."""
    path = tmp_path / "measurements.sqlite"
    path.write_bytes(b"no database" * 1000)
    store = MeasurementStore(path)
    await store.open()
    (event,) = await store.events()
    assert (event.kind, event.id > 1_000_000_000) == (EventKind.STORE_RECOVERED, True)
    await store.add(probe=probe(NOW))
    assert len(await store.probes("genesis")) == 1
    await store.close()


async def test_damage_at_run_time_is_recovered_from(store: MeasurementStore) -> None:
    """A file that is overwritten under the store is replaced at the next use."""
    await store.add(probe=probe(NOW), states={DECODE: "1"})
    connected(store).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connected(store).execute("PRAGMA shrink_memory")
    store._path.write_bytes(b"\xff" * store._path.stat().st_size)
    await store.add(probe=probe(NOW + 900), states={DECODE: "2"}, events=[LOSS])
    await store.add(probe=probe(NOW + 1800))
    assert await store.states() == {DECODE: "2"}
    assert {event.kind for event in await store.events()} == {LOSS.kind, EventKind.STORE_RECOVERED}
    assert store.trouble is None


async def test_a_full_disk_drops_measurements_and_keeps_states_and_events(
    store: MeasurementStore,
) -> None:
    """The number of dropped ones is told, and what waited is written once there is room."""
    await store.add(probe=probe(NOW), states={DECODE: "1"})
    db = connected(store)
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count={pages}")
    large = replace(probe(NOW), detail="x" * 100_000)
    (event,) = await store.add(
        probe=large, states={DECODE: "2" * 100_000}, events=[LOSS.replaced(text="x" * 100_000)]
    )
    assert "disk is full): 1 measurements dropped; see df -h" in str(store.trouble)
    assert (await store.states(), await store.events()) == ({DECODE: "2" * 100_000}, [event])
    assert await store.probes("genesis") == [probe(NOW)]
    db.execute("PRAGMA max_page_count=100000")
    await store.probes("genesis")
    assert in_file(store) == ["2" * 100_000, f"{event.id}"]
    await store.add(probe=probe(NOW + 900))
    assert store.trouble is None


async def test_a_missing_directory_costs_measurements_alone(tmp_path: Path) -> None:
    """States and events of that time are in the file once it can be made."""
    home = tmp_path / "gone"
    store = MeasurementStore(home / "measurements.sqlite", retry_after_s=0.0)
    await store.open()
    (event,) = await store.add(probe=probe(NOW), states={DECODE: "1"}, events=[LOSS])
    assert (await store.states(), await store.events()) == ({DECODE: "1"}, [event])
    assert await store.history("genesis", Series.DECODE, 0.0) == ()
    assert not await store.compact(NOW)
    assert "No such file or directory" in str(store.trouble)
    home.mkdir()
    assert await store.probes("genesis") == []
    await store.add(probe=probe(NOW))
    await store.close()
    later = MeasurementStore(home / "measurements.sqlite")
    await later.open()
    assert (await later.states(), await later.events()) == ({DECODE: "1"}, [event])
    await later.close()


async def test_numbers_that_sqlite_cannot_hold_cost_one_probe(store: MeasurementStore) -> None:
    """An engine that tells of 10^30 tokens, or half of a pair in UTF-16, costs no state or event."""
    good = probe(NOW)
    assert good.raw is not None
    absurd = replace(good, raw=replace(good.raw, prompt_tokens=10**30))
    await store.add(probe=absurd, states={DECODE: "1"}, events=[LOSS])
    assert in_file(store) == ["1", "1"]
    assert await store.probes("genesis") == []
    await store.add(probe=replace(good, detail="half of \ud83d"), events=[LOSS])
    (stored,) = await store.probes("genesis")
    assert stored.detail == "half of ?"


async def test_a_damaged_row_is_left_out(store: MeasurementStore) -> None:
    """Rows beside one that no release wrote are read."""
    for n in range(3):
        await store.add(probe=probe(NOW + n))
    connected(store).execute("UPDATE probes SET evidence='{', source='sundial' WHERE id=2")
    assert await store.probes("genesis") == [probe(NOW), probe(NOW + 2)]
    assert len(await store.history("genesis", Series.DECODE, 0.0)) == 2


async def test_what_is_written_is_on_the_disk(store: MeasurementStore) -> None:
    """Each transaction is synchronised, as the file promises to survive a loss of power."""
    assert connected(store).execute("PRAGMA synchronous").fetchone()[0] == 2
    assert connected(store).execute("PRAGMA journal_mode").fetchone()[0] == "wal"


WRITER = """
import asyncio, os, signal, sys
from pathlib import Path
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.model.measurements import EventKind, MeasurementEvent
from tests.fakes.probe_rows import probe
from tests.fakes.probed_box import ProbedBox

async def write(path, most_statements):
    store = MeasurementStore(path)
    await store.open()
    await add(store, 1)
    statements = []
    def seen(text):
        statements.append(text)
        if len(statements) > most_statements:
            os.kill(os.getpid(), signal.SIGKILL)
    store._db.set_trace_callback(seen)
    await add(store, 2)
    os.kill(os.getpid(), signal.SIGKILL)

async def add(store, n):
    event = MeasurementEvent(unix_s=n, profile="genesis", kind=EventKind.REGRESSION)
    await store.add(probe=probe(n), states={("genesis", "decode"): str(n)}, events=[event])

for most_statements in range(7):
    if (child := os.fork()) == 0:
        asyncio.run(write(Path(sys.argv[1], f"{most_statements}.sqlite"), most_statements))
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
"""


async def test_a_killed_writer_loses_nothing_and_splits_nothing(tmp_path: Path) -> None:
    """Killed before any of its statements, a write leaves probe, state and event, or none of them."""
    root = Path(__file__).parents[4]
    subprocess.run(  # noqa: ASYNC221 - half a second
        [sys.executable, "-c", WRITER, tmp_path],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}"},
        check=True,
        timeout=50,
    )
    kept = []
    for most_statements in range(7):
        store = MeasurementStore(tmp_path / f"{most_statements}.sqlite")
        await store.open()
        times = [one.began_unix_s for one in await store.probes("genesis")]
        assert times == [event.unix_s for event in await store.events()]
        assert await store.states() == {DECODE: f"{len(times)}"}
        kept.append(len(times))
        await store.close()
    assert kept == [1, 1, 1, 1, 1, 2, 2]
