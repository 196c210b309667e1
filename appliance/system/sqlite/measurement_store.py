"""Store of measurements in SQLite: probes, baselines, events.

A probe, the detector states that follow from it and its events are written in one transaction, and
are on the disk when `add` returns (synchronous=FULL). No fault of the file ends the process:

=====================================  ======================================================
fault                                  what happens
=====================================  ======================================================
written by a newer version             `open` raises `StoreError`; nothing is touched
damaged, at the opening or later       renamed, rows that can be read are copied to a new one,
                                       event STORE_RECOVERED
disk full or failing, no directory     measurements are dropped and counted (`trouble`); states
                                       and events wait in memory until the file takes them
a single damaged row                   left out
=====================================  ======================================================
"""

import json
import logging
import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from appliance.model.measurements import (
    CanaryRun,
    EventKind,
    MeasurementEvent,
    Probe,
    StoredBench,
    TrafficSums,
)
from appliance.model.words import Series
from appliance.status.history import RateSummary, down_sampled, fitted
from appliance.system.sqlite.database import is_corrupt, transaction
from appliance.system.sqlite.measurement_tables import (
    HOUR_S,
    MEASUREMENTS,
    compact,
    history,
    to_probe,
    to_probe_row,
)
from appliance.system.sqlite.store import (
    RETRY_AFTER_S,
    Row,
    SqliteStore,
    decoded,
    from_row,
    insert,
    rows_as,
    to_row,
)

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 1000
"""Events that wait for the disk; older ones go first."""
T = TypeVar("T")
_Write = Callable[[sqlite3.Connection], object]
StateKey = tuple[str, str]
"""Profile, and a `Series` or another key of its states, such as that of a canary."""


class MeasurementStore(SqliteStore):
    """Store of measurements.

    Args:
        path: The database.
        retry_after_s: Pause before a file that refused is tried again.
    """

    def __init__(self, path: Path, *, retry_after_s: float = RETRY_AFTER_S) -> None:
        super().__init__(path, MEASUREMENTS, retry_after_s=retry_after_s)
        self._last_event: int | None = None
        """Highest number of an event; None: not known, the file could not be read yet."""
        self._states: dict[StateKey, str] = {}
        """States that the file does not have yet."""
        self._events: list[MeasurementEvent] = []
        """Events that the file does not have yet."""
        self._dropped = 0

    @property
    def trouble(self) -> str | None:
        """Sentence about a file that takes no rows; None: it takes them."""
        if self._fault is None:
            return None
        dropped = f"{self._dropped} measurements dropped" if self._dropped else "nothing lost yet"
        return (
            f"measurements cannot be stored in {self._path} ({self._fault}): {dropped};"
            f" see df -h {self._path.parent}"
        )

    @property
    def last_event(self) -> int:
        """Highest number of an event, from memory; 0: there is none, or none is known."""
        return self._last_event or 0

    # --- writing ---------------------------------------------------------------------

    async def add(
        self,
        *,
        probe: Probe | None = None,
        canary_runs: Sequence[CanaryRun] = (),
        states: Mapping[StateKey, str] | None = None,
        events: Sequence[MeasurementEvent] = (),
    ) -> Sequence[MeasurementEvent]:
        """Store all of it in one transaction; returns the events with their numbers."""

        def measurements(db: sqlite3.Connection) -> None:
            if probe is not None:
                insert(db, "probes", to_probe_row(probe))
            for run in canary_runs:
                insert(db, "canary_runs", to_row(run))

        def add() -> Sequence[MeasurementEvent]:
            numbered = self._wait(states or {}, events)
            if not self._store(measurements, rows=(probe is not None) + len(canary_runs)):
                self._write()  # States and events may fit where the probe did not.
            return numbered

        return await self._run(add)

    async def add_traffic(self, profile: str, sums: TrafficSums) -> None:
        """Add to the sums of an hour."""
        hour = int(sums.unix_s // HOUR_S)
        row = {"profile": profile, "hour": hour, **to_row(sums, "unix_s")}
        await self._run(self._store, lambda db: insert(db, "traffic", row, _ADD_TRAFFIC))

    async def add_bench(self, name: str, unix_s: float, document: Mapping[str, object]) -> bool:
        """Store the result of a bench; returns whether it could be stored."""
        row = {"unix_s": unix_s, "name": name, "document": json.dumps(document)}
        return await self._run(self._store, lambda db: insert(db, "benches", row))

    async def compact(self, now_unix_s: float) -> bool:
        """Take one step of retention, of a day at most; returns whether more is to be done."""
        return await self._run(lambda: self._try(lambda db: compact(db, now_unix_s), default=False))

    # --- reading ---------------------------------------------------------------------

    async def states(self) -> Mapping[StateKey, str]:
        """Return the states of all detectors."""
        sql = "SELECT profile, series, state FROM detectors"

        def read(db: sqlite3.Connection) -> Mapping[StateKey, str]:
            return dict(decoded(db.execute(sql), _to_state))

        nothing: Mapping[StateKey, str] = {}
        return await self._run(lambda: {**self._try(read, nothing), **self._states})

    async def events(
        self, after: int = 0, *, profile: str | None = None, most: int = 100
    ) -> Sequence[MeasurementEvent]:
        """Return the newest events with a number above `after`, oldest first.

        Args:
            after: 0: all.
            profile: Of one profile and of the box; None: of all.
            most: At most so many.
        """
        own = "" if profile is None else " AND profile IN (:profile, '')"
        sql = f"SELECT * FROM events WHERE id > :after{own} ORDER BY id DESC LIMIT :most"  # noqa: S608
        values = {"after": after, "profile": profile, "most": most}

        def read() -> Sequence[MeasurementEvent]:
            nothing: list[MeasurementEvent] = []
            stored = self._try(
                lambda db: rows_as(MeasurementEvent, db.execute(sql, values)), nothing
            )
            waiting = [
                event
                for event in self._events
                if event.id > after and (profile is None or event.profile in {profile, ""})
            ]
            return [*reversed(stored), *waiting][-most:]

        return await self._run(read)

    async def probes(
        self,
        profile: str,
        since_unix_s: float = 0.0,
        *,
        most: int = 1000,
        until_unix_s: float | None = None,
    ) -> Sequence[Probe]:
        """Return the newest probes of any outcome since then, oldest first.

        Args:
            profile: Its name.
            since_unix_s: From then on.
            most: At most so many.
            until_unix_s: Only those before; None: all up to now.
        """
        sql = (
            "SELECT * FROM probes WHERE profile=? AND began_unix_s>=? AND began_unix_s<?"
            " ORDER BY began_unix_s DESC LIMIT ?"
        )
        until = math.inf if until_unix_s is None else until_unix_s
        return (await self._rows(sql, (profile, since_unix_s, until, most), to_probe))[::-1]

    async def history(
        self, profile: str, series: Series, since_unix_s: float, *, span_s: float | None = None
    ) -> Sequence[RateSummary]:
        """Return the rates of a series, oldest first; arguments as of `histories`."""
        found = await self.histories(profile, (series,), since_unix_s, span_s=span_s)
        return found[series]

    async def histories(
        self,
        profile: str,
        wanted: Collection[Series],
        since_unix_s: float,
        *,
        span_s: float | None = None,
        most: int | None = None,
    ) -> Mapping[Series, Sequence[RateSummary]]:
        """Return the rates of several series, oldest first.

        Args:
            profile: Its name.
            wanted: The series.
            since_unix_s: From then on.
            span_s: Span of time to join in one row; None: each probe, and each hour of the time
                before those that are kept.
            most: At most so many rows of each series, joined in longer spans where there are more;
                None: all.
        """

        def read(db: sqlite3.Connection) -> Mapping[Series, Sequence[RateSummary]]:
            return {
                series: _joined(rows, span_s, most)
                for series, rows in history(db, profile, wanted, since_unix_s).items()
            }

        nothing: Mapping[Series, Sequence[RateSummary]] = dict.fromkeys(wanted, ())
        return await self._run(self._try, read, nothing)

    async def canary_runs(self, profile: str, since_unix_s: float) -> Sequence[CanaryRun]:
        """Return the runs of a profile's canaries since then, oldest first."""
        sql = (
            "SELECT profile, canary, unix_s, passed, detail FROM canary_runs"
            " WHERE profile=? AND unix_s>=? ORDER BY unix_s"
        )
        return await self._rows(sql, (profile, since_unix_s), partial(from_row, CanaryRun))

    async def traffic(self, profile: str, since_unix_s: float) -> Sequence[TrafficSums]:
        """Return the sums of each hour since then, oldest first."""
        sql = (
            "SELECT hour * 3600.0 AS unix_s, output_tokens, decode_s, prompt_tokens, cached_tokens"
            " FROM traffic WHERE profile=? AND hour>=? ORDER BY hour"
        )
        return await self._rows(
            sql, (profile, since_unix_s // HOUR_S), partial(from_row, TrafficSums)
        )

    async def benches(self, *, most: int = 10) -> Sequence[StoredBench]:
        """Return the newest results of benches, newest first."""
        sql = "SELECT * FROM benches ORDER BY id DESC LIMIT ?"
        return await self._rows(sql, (most,), partial(from_row, StoredBench))

    # --- in the store's thread -------------------------------------------------------

    async def _rows(
        self, sql: str, values: Sequence[object], decode: Callable[[Row], T]
    ) -> list[T]:
        """Return the rows of a query, without damaged ones; none if the file cannot be read."""
        nothing: list[T] = []
        return await self._run(
            self._try, lambda db: decoded(db.execute(sql, values), decode), nothing
        )

    def _wait(
        self, states: Mapping[StateKey, str], events: Iterable[MeasurementEvent]
    ) -> Sequence[MeasurementEvent]:
        """Keep states and events for the next write; returns the events with their numbers.

        Where the numbers that were given away are not known, the next is the Unix second.
        """
        numbered = []
        for event in events:
            self._last_event = (
                int(time.time()) if self._last_event is None else self._last_event + 1
            )
            numbered.append(event.replaced(id=self._last_event))
        self._states.update(states)
        self._events = [*self._events, *numbered][-_MOST_WAITING:]
        return numbered

    def _store(self, measurements: _Write, rows: int = 1) -> bool:
        """Write rows of measurements, or count them as dropped; returns whether they are written."""
        if not self._write(measurements):
            self._dropped += rows
            return False
        if self._fault is not None:
            _log.info("measurements are stored again; %d were dropped", self._dropped)
        self._fault, self._dropped = None, 0
        return True

    def _write(self, measurements: _Write | None = None) -> bool:
        """Write measurements, and all states and events that wait, in one transaction."""

        def write(db: sqlite3.Connection) -> bool:
            with transaction(db):
                if measurements is not None:
                    measurements(db)
                for (profile, series), state in self._states.items():
                    row = {"profile": profile, "series": series, "state": state}
                    insert(db, "detectors", row, "ON CONFLICT DO UPDATE SET state=excluded.state")
                for event in self._events:
                    insert(db, "events", to_row(event), "ON CONFLICT DO NOTHING")
            self._states, self._events = {}, []
            return True

        return self._attempt(write, default=False)

    def _try(self, job: Callable[[sqlite3.Connection], T], default: T) -> T:
        """Do a job that reads, after writing what waited."""
        if (self._states or self._events) and self._is_due():
            self._write()
        return self._attempt(job, default)

    def _opened(self, db: sqlite3.Connection, recovery: str | None) -> None:
        (highest,) = db.execute("SELECT coalesce(max(id), 0) FROM events").fetchone()
        # Which numbers a damaged file had given away is not known.
        highest = highest if recovery is None else int(time.time())
        self._last_event = max(self._last_event or 0, highest)
        if recovery is not None:
            self._wait({}, [_recovered(recovery)])
        if self._states or self._events:
            self._write()

    def _failed(self, error: Exception) -> None:
        if self._fault is None:
            _log.error("measurements cannot be stored in %s: %s", self._path, error)
        super()._failed(error)
        if is_corrupt(error):
            self._close_file()  # Opening it anew replaces it.


def _recovered(text: str) -> MeasurementEvent:
    return MeasurementEvent(
        unix_s=time.time(), profile="", kind=EventKind.STORE_RECOVERED, text=text
    )


_ADD_TRAFFIC: Final = """ON CONFLICT DO UPDATE SET
  output_tokens = output_tokens + excluded.output_tokens, decode_s = decode_s + excluded.decode_s,
  prompt_tokens = prompt_tokens + excluded.prompt_tokens,
  cached_tokens = cached_tokens + excluded.cached_tokens"""


def _joined(
    rows: Sequence[RateSummary], span_s: float | None, most: int | None
) -> Sequence[RateSummary]:
    joined = rows if span_s is None else down_sampled(rows, span_s)
    return tuple(joined if most is None else fitted(joined, most))


def _to_state(row: Row) -> tuple[StateKey, str]:
    if not all(isinstance(value, str) for value in row):
        raise ValueError("the state of a detector is no text")
    profile, series, state = row
    return (profile, series), state
