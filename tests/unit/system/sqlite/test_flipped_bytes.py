"""One byte of a database is flipped, anywhere: its store comes up, reads, writes, and loses what was damaged."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from appliance.alerts.outbox import Settlement
from appliance.model.alerts import OutboxState
from appliance.model.words import Mark, Series
from appliance.system.sqlite.alert_store import AlertStore
from appliance.system.sqlite.measurement_store import MeasurementStore
from appliance.system.sqlite.operation_store import OperationStore
from appliance.system.sqlite.state_store import StateStore
from tests.fakes.alert_samples import NOW, told, transition
from tests.fakes.damaged_rows import (
    PAGE_BYTES,
    Page,
    Rows,
    flip,
    flips,
    lost_beside,
    read_pages,
    read_rows,
)
from tests.fakes.database_rows import WRITERS, ended, event, operation
from tests.fakes.probe_rows import probe

FLIPS = 40
ROWS = 60


async def operations(path: Path) -> int:
    """Rows of operations and marks that are read; then one of each is written."""
    store = OperationStore(path, keep_rows=1000)
    await store.open()
    found = len(await store.newest(1000)) + len(await store.marks())
    await store.unfinished()
    await store.last()
    begun = await store.begin(operation(NOW))
    await store.usual_ms(begun)
    await store.repairs(0.0)
    await store.finish(ended(begun))
    await store.set_mark("genesis", Mark.STANDBY, by="ana")
    last = await store.last()
    assert last is not None
    assert last.operation.id == begun.id
    assert (await store.marks())["genesis"] is Mark.STANDBY
    await store.close()
    return found


async def states(path: Path) -> int:
    """Changes that are read; then one is written."""
    store = StateStore(path, retry_after_s=0.0)
    changes, _ = await store.changes()
    await store.observe({"aeon": "written"}, 1e6)
    assert any(one.state == "written" for one in (await store.changes())[0])
    await store.close()
    return len(changes)


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
        told([transition(unix_s=NOW + 9)], book=book), targets=["new"], now_unix_s=NOW
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
    (written,) = await store.add(probe=probe(NOW + 1e6), events=[event(NOW)])
    assert (await store.events())[-1].id == written.id
    assert store.trouble is None
    await store.close()
    return found


USES: dict[str, Callable[[Path], Awaitable[int]]] = {
    "operations": operations,
    "states": states,
    "alerts": alerts,
    "measurements": measurements,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """A file without damage, and what a store that has used it leaves."""

    content: bytes
    found: int
    rows: Rows
    """Rows that the use of the file keeps."""
    pages: Mapping[int, Page]


async def whole_file(name: str, directory: Path) -> Whole:
    path = directory / "whole.sqlite"
    await WRITERS[name](path, ROWS, NOW)
    content, pages, written = path.read_bytes(), read_pages(path), read_rows(path)
    found = await USES[name](path)
    rows = dict(written.items() & read_rows(path).items())
    assert len(rows) >= 0.9 * len(written)
    return Whole(content=content, found=found, rows=rows, pages=pages)


def flipped(whole: Whole, name: str, directory: Path, place: int, bit: int) -> Path:
    directory.mkdir()
    path = directory / f"{name}.sqlite"
    path.write_bytes(flip(whole.content, place, bit))
    return path


@pytest.mark.parametrize("name", USES)
async def test_a_flipped_byte_costs_what_was_damaged(name: str, tmp_path: Path) -> None:
    """Wherever a byte has another value, the store reads, writes, and loses rows of its page alone.

    They are the rows that lie on the page, and those on pages to which only this one leads.
    """
    whole = await whole_file(name, tmp_path)
    chance = random.Random(name)  # noqa: S311 - places, no secrets
    for number, (place, bit) in enumerate([*flips(whole.content, FLIPS - 1, chance), (63, 1)]):
        path = flipped(whole, name, tmp_path / f"{number}", place, bit)
        await USES[name](path)
        page = whole.pages.get(place // PAGE_BYTES + 1, Page())
        beside = lost_beside(whole.rows, read_rows(path), page)
        assert not beside, f"byte {place}, bit {bit}: {len(beside)}, such as {min(beside)}"


@pytest.mark.parametrize("name", USES)
async def test_a_damaged_version_or_statement_costs_nothing(name: str, tmp_path: Path) -> None:
    """Each byte of the version, and each tenth byte of a statement of the schema, is put right."""
    whole = await whole_file(name, tmp_path)
    begin = whole.content.index(b"CREATE TABLE")
    for place in [60, 61, 62, 63, *range(begin, whole.content.index(b")", begin), 10)]:
        path = flipped(whole, name, tmp_path / f"{place}", place, 1)
        assert await USES[name](path) == whole.found, f"byte {place}"
        assert not path.with_suffix(".damaged").exists(), f"byte {place}"


@pytest.mark.parametrize("name", USES)
async def test_a_damaged_header_costs_nothing(name: str, tmp_path: Path) -> None:
    """The size in a file's header is put right by the file's own, its counters by SQLite."""
    whole = await whole_file(name, tmp_path)
    sizes = [(place, 1 << bit) for place in range(28, 32) for bit in range(8)]
    for place, bit in [*sizes, *((place, 1) for place in (*range(24, 28), *range(92, 96)))]:
        path = flipped(whole, name, tmp_path / f"{place}-{bit}", place, bit)
        assert await USES[name](path) == whole.found, f"byte {place}, bit {bit}"
        assert not path.with_suffix(".damaged").exists(), f"byte {place}, bit {bit}"
