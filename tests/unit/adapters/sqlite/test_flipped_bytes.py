"""One byte of a database is flipped, anywhere: its store comes up, reads, writes, and loses what was damaged."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.adapters.sqlite.alert_store import AlertStore
from appliance.adapters.sqlite.measurement_store import MeasurementStore
from appliance.adapters.sqlite.state_store import StateStore
from appliance.adapters.sqlite.store import SqliteStore
from appliance.domain.alerts import OutboxState
from appliance.domain.measurements import (
    CanaryRun,
    EventKind,
    MeasurementEvent,
    Series,
    TrafficSums,
)
from appliance.domain.operations import Finished, Goal, Kind, Operation, Outcome
from appliance.domain.profile import Mark
from appliance.planning.alerting.book.alert_context import Evaluation
from appliance.planning.alerting.book.alert_state import AlertBook, AlertState
from appliance.planning.alerting.sending.outbox_rows import Settlement
from tests.fakes.alert_samples import NOW, profile_subject, told, transition
from tests.fakes.probe_rows import probe

FLIPS = 40
ROWS = 60
MOST_LOST = 30
"""Rows that one page of 4 KiB may hold."""


async def operations(path: Path) -> int:
    """Rows of operations and marks that are read; then one of each is written."""
    store = SqliteStore(path, keep_rows=1000)
    await store.open()
    found = len(await store.newest(1000)) + len(await store.marks())
    await store.unfinished()
    await store.last()
    begun = await store.begin(_OPERATION)
    await store.usual_ms(begun)
    await store.repairs(0.0)
    await store.finish(_ended(begun))
    await store.set_mark("genesis", Mark.STANDBY, by="ana")
    last = await store.last()
    assert last is not None
    assert last.operation.id == begun.id
    assert (await store.marks())["genesis"] is Mark.STANDBY
    await store.close()
    return found


_OPERATION = Operation(
    id=0,
    kind=Kind.SWITCH,
    target=("genesis",),
    goal=Goal(start=("genesis",), commit=("genesis",)),
    boot_id="boot-1",
    requested_by="ana (uid 1000, pid 7)",
    began_unix_s=1000.0,
    began_s=10.0,
)


def _ended(operation: Operation) -> Finished:
    return Finished(
        operation=operation, outcome=Outcome.DONE, message="serving", finished_unix_s=1001.0
    )


async def _write_operations(path: Path) -> None:
    store = SqliteStore(path, keep_rows=1000)
    await store.open()
    for _ in range(ROWS):
        await store.finish(_ended(await store.begin(_OPERATION)))
    for number in range(ROWS):
        await store.set_mark(f"model{number}", Mark.STANDBY, by="ana")
    await store.close()


async def states(path: Path) -> int:
    """Changes that are read; then one is written."""
    store = StateStore(path, retry_after_s=0.0)
    changes, _ = await store.changes()
    await store.observe({"aeon": "written"}, 1e6)
    assert any(one.state == "written" for one in (await store.changes())[0])
    await store.close()
    return len(changes)


async def _write_states(path: Path) -> None:
    store = StateStore(path, retry_after_s=0.0)
    for number in range(2 * ROWS):
        await store.observe(
            {"aeon": f"state{number % 7}", f"model{number}": "serving"}, 1000.0 + number
        )
    await store.close()


async def alerts(path: Path) -> int:
    """Rows that are read; then transitions, rows of the outbox and a token are written."""
    store = AlertStore(path, retry_after_s=0.0)
    await store.open()
    book = await store.book()
    await store.memory()
    found = (
        len(book.states) + len(await store.transitions(most=1000)) + len(await store.outbox(1000))
    )
    await store.counts()
    for target in await store.waiting_targets():
        await store.queued(target, most=5)
        await store.last_sent(target)
    (written,) = await store.commit(
        told([transition(unix_s=NOW + 9)]), targets=["new"], now_unix_s=NOW
    )
    assert (await store.transitions())[-1].id == written.id
    (row,) = await store.queued("new", most=5)
    assert await store.begin([row], now_unix_s=NOW)
    sent = Settlement(state=OutboxState.SENT, text="sent")
    await store.settle({row.id: sent}, now_unix_s=NOW)
    assert await store.last_sent("new") == NOW
    await store.add_token("hash", "A1", "ack", NOW + 60)
    assert await store.use_token("hash", "A1", "ack", NOW)
    await store.close()
    return found


async def _write_alerts(path: Path) -> None:
    store = AlertStore(path, retry_after_s=0.0)
    await store.open()
    subjects = [profile_subject(f"model{number}") for number in range(ROWS)]
    one = transition()
    book = AlertBook(
        states={
            (subject, one.rule): AlertState(subject=subject, rule=one.rule) for subject in subjects
        },
        next_alert=100,
    )
    await store.commit(Evaluation(book=book), targets=[], memory="{}", now_unix_s=NOW)
    for number, subject in enumerate(subjects):
        changed = replace(transition(unix_s=NOW + number), subject=subject, alert=f"A{number}")
        evaluation = replace(told([changed]), book=book)
        await store.commit(evaluation, targets=["phone"], now_unix_s=NOW)
    await store.close()


async def measurements(path: Path) -> int:
    """Rows that are read; then a probe, an event and sums are written."""
    store = MeasurementStore(path, retry_after_s=0.0)
    await store.open()
    found = len(await store.probes("genesis")) + len(await store.events(most=1000))
    found += len(await store.states()) + len(await store.canary_runs("genesis", 0.0))
    await store.traffic("genesis", 0.0)
    await store.benches()
    await store.histories("genesis", tuple(Series), 0.0, span_s=3600.0, most=10)
    await store.compact(NOW + 60.0)
    (written,) = await store.add(probe=probe(NOW + 1e6), events=[_EVENT])
    assert (await store.events())[-1].id == written.id
    assert store.trouble is None
    await store.close()
    return found


_EVENT = MeasurementEvent(unix_s=NOW, profile="genesis", kind=EventKind.ACCEPTED, text="as usual")


async def _write_measurements(path: Path) -> None:
    store = MeasurementStore(path, retry_after_s=0.0)
    await store.open()
    for number in range(ROWS):
        run = CanaryRun(profile="genesis", canary=f"c{number}", unix_s=NOW, passed=True, detail="")
        await store.add(
            probe=probe(NOW + number),
            canary_runs=[run],
            states={("genesis", f"series{number}"): "{}"},
            events=[_EVENT],
        )
    sums = TrafficSums(unix_s=NOW, output_tokens=1, decode_s=1.0, prompt_tokens=1, cached_tokens=0)
    await store.add_traffic("genesis", sums)
    await store.add_bench("genesis", NOW, {"a": 1})
    await store.close()


USES: dict[str, tuple[Callable[[Path], Awaitable[None]], Callable[[Path], Awaitable[int]]]] = {
    "operations": (_write_operations, operations),
    "states": (_write_states, states),
    "alerts": (_write_alerts, alerts),
    "measurements": (_write_measurements, measurements),
}


@pytest.mark.parametrize("name", USES)
async def test_a_flipped_byte_costs_what_was_damaged(name: str, tmp_path: Path) -> None:
    """Wherever a byte has another value, the store reads, writes, and loses a page of rows at most."""
    write, use = USES[name]
    await write(tmp_path / "whole.sqlite")
    whole = (tmp_path / "whole.sqlite").read_bytes()
    (tmp_path / "all.sqlite").write_bytes(whole)
    rows = await use(tmp_path / "all.sqlite")
    chance = random.Random(name)  # noqa: S311 - places, no secrets
    # Headers and the schema are hit as often as all other pages.
    places = [chance.randrange(len(whole) if n % 2 else 4096) for n in range(FLIPS - 1)]
    for number, place in enumerate([*places, 63]):
        bit = 1 << chance.randrange(8)
        directory = tmp_path / f"{number}"
        directory.mkdir()
        path = directory / f"{name}.sqlite"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
        found = await use(path)
        assert found >= rows - MOST_LOST, f"byte {place}, bit {bit}: {found} of {rows} rows"


@pytest.mark.parametrize("name", USES)
async def test_a_damaged_version_or_statement_costs_nothing(name: str, tmp_path: Path) -> None:
    """Each byte of the version, and each tenth byte of a statement of the schema, is put right."""
    write, use = USES[name]
    await write(tmp_path / "whole.sqlite")
    whole = (tmp_path / "whole.sqlite").read_bytes()
    (tmp_path / "all.sqlite").write_bytes(whole)
    rows = await use(tmp_path / "all.sqlite")
    begin = whole.index(b"CREATE TABLE")
    for place in [60, 61, 62, 63, *range(begin, whole.index(b")", begin), 10)]:
        directory = tmp_path / f"{place}"
        directory.mkdir()
        path = directory / f"{name}.sqlite"
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert await use(path) == rows, f"byte {place}"
        assert not path.with_suffix(".damaged").exists(), f"byte {place}"
