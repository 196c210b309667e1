"""Tables of measurements: probes as rows, retention, and the history of rates.

A row of `probes` with the evidence of two GPUs takes about 0.8 KiB, one of `hourly` 50 bytes: ten
years of a probe every 15 minutes are 15 MiB (`make bench-history`).
"""

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec import to_builtins

from appliance.model.measurements import (
    Probe,
    ProbeKind,
    RawTimings,
    TimingSource,
    rate_of,
)
from appliance.model.words import ProbeOutcome, Series
from appliance.status.history import RateSummary, summarise
from appliance.system.sqlite.database import Schema, transaction
from appliance.system.sqlite.store import (
    Row,
    columns_of,
    decoded,
    drop_old,
    from_row,
    insert,
    row_document,
    to_json,
    to_row,
)

HOUR_S: Final = 3600.0
_RAW_S: Final = 90 * 86400.0
"""Age up to which probes with their evidence, and runs of canaries, are kept."""
_HOURS_A_STEP: Final = 24
_PAGES_A_STEP: Final = 256
"""Free pages that one step gives back to the disk: 1 MiB."""
_KEPT_EVENTS: Final = 10_000
_KEPT_BENCHES: Final = 50
RAW_COLUMNS: Final = columns_of(RawTimings)
_CLOCKS: Final[Mapping[str, TimingSource]] = {source.value: source for source in TimingSource}
_SERIES: Final = tuple(Series)
_COUNTS: Final = f"outcome = '{ProbeOutcome.VALID}' AND kind <> '{ProbeKind.WARM_UP}'"
_COLUMNS: Final = ", ".join(("profile", "began_unix_s", *RAW_COLUMNS))
_MEASURED: Final = f"SELECT {_COLUMNS} FROM probes WHERE {_COUNTS}"  # noqa: S608 - our names
"""Beginning of a query for the probes that count."""

MEASUREMENTS: Final = Schema(
    version=1,
    # `evidence` is last, so that a query for the times does not read the pages that it overflows to.
    tables={
        "detectors": """
  profile TEXT NOT NULL, series TEXT NOT NULL, state TEXT NOT NULL,
  PRIMARY KEY (profile, series)) STRICT, WITHOUT ROWID""",
        "events": """
  id INTEGER PRIMARY KEY, unix_s REAL NOT NULL, profile TEXT NOT NULL, kind TEXT NOT NULL,
  series TEXT, change REAL, cause TEXT, rate REAL, baseline REAL, since_unix_s REAL,
  likely TEXT NOT NULL, text TEXT NOT NULL) STRICT""",
        "hourly": """
  profile TEXT NOT NULL, series TEXT NOT NULL, hour INTEGER NOT NULL, count INTEGER NOT NULL,
  low REAL NOT NULL, median REAL NOT NULL, high REAL NOT NULL,
  PRIMARY KEY (profile, series, hour)) STRICT, WITHOUT ROWID""",
        "traffic": """
  profile TEXT NOT NULL, hour INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
  decode_s REAL NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
  PRIMARY KEY (profile, hour)) STRICT, WITHOUT ROWID""",
        "probes": """
  id INTEGER PRIMARY KEY, profile TEXT NOT NULL, began_unix_s REAL NOT NULL,
  began_s REAL NOT NULL, boot_id TEXT NOT NULL, kind TEXT NOT NULL, prompt TEXT NOT NULL,
  outcome TEXT NOT NULL, detail TEXT NOT NULL, source TEXT, prompt_tokens INTEGER,
  cached_tokens INTEGER, prefill_s REAL, output_tokens INTEGER, decoded_tokens INTEGER,
  decode_s REAL, drafted_tokens INTEGER, accepted_tokens INTEGER, ttft_s REAL, wall_s REAL,
  evidence TEXT NOT NULL) STRICT""",
        "canary_runs": """
  id INTEGER PRIMARY KEY, profile TEXT NOT NULL, canary TEXT NOT NULL, unix_s REAL NOT NULL,
  passed INTEGER NOT NULL, detail TEXT NOT NULL) STRICT""",
        "benches": """
  id INTEGER PRIMARY KEY, unix_s REAL NOT NULL, name TEXT NOT NULL,
  document TEXT NOT NULL) STRICT""",
    },
    indexes=(
        "CREATE INDEX probes_of ON probes (profile, began_unix_s)",
        "CREATE INDEX probes_age ON probes (began_unix_s)",
        "CREATE INDEX canary_runs_of ON canary_runs (profile, unix_s)",
    ),
    pragmas=("auto_vacuum=INCREMENTAL", "synchronous=FULL"),
)


# --- probes as rows ------------------------------------------------------------------


def to_probe_row(probe: Probe) -> dict[str, Any]:
    """Return the columns of a probe; those of its times are NULL if nothing was measured."""
    times = dict.fromkeys(RAW_COLUMNS) if probe.raw is None else to_row(probe.raw)
    # None, the default of each field of the evidence, takes room in every row.
    evidence = to_json(_without_none(to_builtins(probe.evidence)))
    return {**to_row(probe, "raw", "evidence"), **times, "evidence": evidence}


def to_probe(row: Row) -> Probe:
    """Return the probe of a row. Raises ValueError for a damaged one."""
    raw = None if row["source"] is None else row_document(RawTimings, row)
    return from_row(Probe, row, raw=raw)


def to_raw(values: Sequence[Any]) -> RawTimings:
    """Return the times of the columns `RAW_COLUMNS`, unchecked, of which a history needs thousands.

    Raises ValueError for an unknown clock.
    """
    source, *numbers = values
    clock = _CLOCKS.get(source)
    if clock is None:
        raise ValueError(f"{source} is no clock")
    return RawTimings(source=clock, **dict(zip(RAW_COLUMNS[1:], numbers, strict=True)))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list | tuple) else value


# --- retention -----------------------------------------------------------------------


def compact(db: sqlite3.Connection, now_unix_s: float) -> bool:
    """Take one bounded step of down-sampling; returns whether more is to be done."""
    end_hour = int((now_unix_s - _RAW_S) // HOUR_S)
    with transaction(db):
        steps = 0
        while steps < _HOURS_A_STEP and (hour := _oldest_hour(db)) is not None and hour < end_hour:
            _down_sample(db, hour)
            steps += 1
        db.execute("DELETE FROM canary_runs WHERE unix_s < ?", (end_hour * HOUR_S,))
        for table, kept in (("events", _KEPT_EVENTS), ("benches", _KEPT_BENCHES)):
            drop_old(db, table, kept=kept)
    # `execute` stops after one page, because the statement has rows without columns.
    db.executescript(f"PRAGMA incremental_vacuum({_PAGES_A_STEP})")
    return steps == _HOURS_A_STEP


def _oldest_hour(db: sqlite3.Connection) -> int | None:
    (oldest,) = db.execute("SELECT min(began_unix_s) FROM probes").fetchone()
    return None if oldest is None else int(oldest // HOUR_S)


def _down_sample(db: sqlite3.Connection, hour: int) -> None:
    """Replace the probes of an hour by its summaries, or add to those from before a clock jump."""
    span = " began_unix_s >= ? AND began_unix_s < ?"
    bounds = (hour * HOUR_S, (hour + 1) * HOUR_S)
    rates: dict[tuple[str, Series], list[float]] = {}
    for profile, _, *times in db.execute(f"{_MEASURED} AND {span}", bounds):
        for series, rate in _rates_of(times):
            rates.setdefault((profile, series), []).append(rate)
    for (profile, series), values in rates.items():
        summary = summarise(hour * HOUR_S, values)
        row = {
            "profile": profile,
            "series": series,
            "hour": hour,
            "count": summary.probes,
            **{name: getattr(summary, name) for name in ("low", "median", "high")},
        }
        insert(db, "hourly", row, _JOIN_HOUR)
    db.execute(f"DELETE FROM probes WHERE {span}", bounds)  # noqa: S608 - our names


_JOIN_HOUR: Final = """ON CONFLICT DO UPDATE SET
  median = (median * count + excluded.median * excluded.count) / (count + excluded.count),
  count = count + excluded.count, low = min(low, excluded.low), high = max(high, excluded.high)"""


def _rates_of(times: Sequence[Any]) -> Sequence[tuple[Series, float]]:
    """Return the rates that a probe measured, by today's definition; none for a damaged row."""
    found = []
    try:
        raw = to_raw(times)
        for series in _SERIES:
            rate = rate_of(series, raw)
            if rate is not None:
                found.append((series, rate))
    except (ValueError, TypeError, ArithmeticError):
        return ()
    return found


def history(
    db: sqlite3.Connection, profile: str, wanted: Collection[Series], since_unix_s: float
) -> Mapping[Series, list[RateSummary]]:
    """Return each probe that counts, and the hours before those that are kept, oldest first.

    The probes are read once for all series.
    """
    rows = {series: _hours(db, profile, series, since_unix_s) for series in wanted}
    sql = f"{_MEASURED} AND profile=? AND began_unix_s>=? ORDER BY began_unix_s"
    for _, began_unix_s, *times in db.execute(sql, (profile, since_unix_s)):
        for series, rate in _rates_of(times):
            if series in rows and isinstance(began_unix_s, float):
                rows[series].append(RateSummary(began_unix_s, 1, rate, rate, rate))
    for found in rows.values():
        found.sort(key=lambda row: row.unix_s)  # Both overlap only where the clock was set back.
    return rows


def _hours(
    db: sqlite3.Connection, profile: str, series: Series, since_unix_s: float
) -> list[RateSummary]:
    sql = (
        "SELECT hour * 3600.0, count, low, median, high FROM hourly"
        " WHERE profile=? AND series=? AND hour>=? ORDER BY hour"
    )
    found = db.execute(sql, (profile, series, since_unix_s // HOUR_S))
    return decoded(found, _to_summary)


def _to_summary(row: Sequence[Any]) -> RateSummary:
    """Return the summary of a row. Raises ValueError or TypeError for a damaged one."""
    begin_s, count, *rates = row
    low, middle, high = map(float, rates)
    return RateSummary(float(begin_s), int(count), low, middle, high)
