"""Figures of the gateway and of engines, read in the background: no status waits for an engine.

===========  =============================================================================
the gateway  every 2 s for a minute after a person has looked, else every 12 s at least
engines      every 5 s for a minute after a person has looked, and with the gateway while that
             has requests with one of them: an engine may log every question, and answers it
             between two steps of its model
===========  =============================================================================

A program that scrapes the status has the gateway asked once, and the engines once where that was not done
within 5 s. Its next scrape has their answer; one that comes after more than 30 s waits for it a moment.

Counters for statistics are these figures of the gateway, and the operations that ended since the supervisor's start.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from appliance.model.gateway import EngineLoad
from appliance.model.operations import Finished, Kind, Outcome
from appliance.model.profile import Applied, Catalogue
from appliance.status.engine_load import counts_prefixes
from appliance.supervisor.memory_sampler import LastLook
from appliance.supervisor.unit_memory import WATCHED_S, StatusReader
from appliance.system.ports import Backend, Clock, Gateway

_EVERY_S: Final = 2.0
_UNWATCHED_EVERY_S: Final = 12.0
"""Longer than the pause of the stall watch (10 s), whose readings serve here too."""
_FRESH_S: Final = 1.0
_ENGINES_EVERY_S: Final = 5.0
_WORTH_SHOWING_S: Final = 30.0
"""Age beyond which figures of engines are not shown."""
_PATIENCE_S: Final = 0.25
"""Longest time that a scrape waits for engines: one that is idle answers within milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Figures that were read last, and their age."""

    stats: Mapping[str, object] | None
    """Counters of the gateway; None: it did not answer."""
    age_s: float
    loads: Mapping[str, EngineLoad | None] = field(default_factory=dict)
    """Loads by profile that serves; None: not reported, or not asked recently."""
    loads_age_s: float | None = None
    """Age of the loads; None: no engine was asked recently."""


class TrafficFigures:
    """Reader of the figures, in a loop of its own.

    Args:
        look: The supervisor's last look at the box.
        gateway: Is asked what it has measured.
        backend: Asks the engines.
        clock: For ages.
    """

    def __init__(self, look: LastLook, *, gateway: Gateway, backend: Backend, clock: Clock) -> None:
        self._look = look
        self._gateway = gateway
        self._backend = backend
        self._clock = clock
        self._stats: Mapping[str, object] | None = None
        self._read_s = float("-inf")
        self._watched_s = float("-inf")
        self._loads: Mapping[str, EngineLoad | None] = {}
        self._loads_s = float("-inf")
        self._asked_s = float("-inf")
        self._asking: asyncio.Task[None] | None = None
        self._counting: set[tuple[str, str]] = set()
        """Profiles, each with its engine, that have told how much of their prompts was cached."""

    async def run(self) -> None:
        """Read for ever."""
        while True:
            if self._is_watched() or self._age_s() >= _UNWATCHED_EVERY_S:
                await self.turn()
            await asyncio.sleep(_EVERY_S)

    async def stats(self) -> Mapping[str, object] | None:
        """Read the gateway's figures now; None: it does not answer."""
        await self.turn()
        return self._stats

    async def counters(self) -> Mapping[str, object] | None:
        """Return the gateway's counters, at most a second old, those of the prefix cache as engines have them.

        None: the gateway does not answer. Responses tell of the prefix cache only to clients that ask for their usage. The counters of an engine
        begin with its start, so they never alternate with the gateway's: while the engine does not tell
        they are absent.
        """
        if self._age_s() > _FRESH_S:
            await self.turn()
        stats = self._stats
        catalogue, observed = self._look()
        serving = [name for name in observed.serving() if name in catalogue]
        loads = (await self.latest(catalogue, serving, StatusReader.SCRAPER)).loads
        if stats is None:
            return None
        profiles = stats.get("profiles")
        rows = dict(profiles) if isinstance(profiles, Mapping) else {}
        for name in rows.keys() | loads.keys():
            row = rows.get(name, {})
            if name in catalogue and isinstance(row, Mapping) and self._counts(catalogue[name]):
                load = loads.get(name) or EngineLoad()
                own = {"prompt_tokens": load.prefix_queries, "cached_tokens": load.prefix_hits}
                rows[name] = {**row, **own}
        return {**stats, "profiles": rows}

    def _counts(self, applied: Applied) -> bool:
        return counts_prefixes(applied.engine) or (applied.name, applied.engine) in self._counting

    async def turn(self) -> None:
        """Read the gateway's figures, and begin to ask the engines when due."""
        self._stats = await self._gateway.stats()
        self._read_s = self._clock.monotonic_s()
        catalogue, observed = self._look()
        serving = [name for name in observed.serving() if name in catalogue]
        if self._is_watched() or _in_flight(self._stats, serving):
            self._ask(catalogue, serving)

    async def latest(
        self,
        catalogue: Catalogue,
        serving: Sequence[str],
        reader: StatusReader = StatusReader.PERSON,
    ) -> Figures:
        """Return the last figures; the first call in a minute, or of a late loop, asks the gateway.

        Args:
            catalogue: Every applied profile.
            serving: Those that serve, whose engines are to be asked.
            reader: Reader of the figures; for a person the questions are repeated for a minute.
        """
        if reader is StatusReader.PERSON:
            self._watched_s = self._clock.monotonic_s()
        if self._age_s() > 2 * _EVERY_S:
            await self.turn()
        self._ask(catalogue, serving)
        if reader is StatusReader.SCRAPER and self._asking and not self._are_loads_shown():
            await asyncio.wait({self._asking}, timeout=_PATIENCE_S)
        return self._figures(serving)

    def known(self, serving: Sequence[str]) -> Figures | None:
        """Return the last figures of these profiles; None: none was read yet.

        Nobody is asked, now or later: this is for processes that look at the box all day.
        """
        return None if self._read_s < 0 else self._figures(serving)

    def _figures(self, serving: Sequence[str]) -> Figures:
        now_s, shown = self._clock.monotonic_s(), self._are_loads_shown()
        return Figures(
            stats=self._stats,
            age_s=now_s - self._read_s,
            loads={name: self._loads.get(name) if shown else None for name in serving},
            loads_age_s=now_s - self._loads_s if shown else None,
        )

    def _are_loads_shown(self) -> bool:
        return self._clock.monotonic_s() - self._loads_s < _WORTH_SHOWING_S

    def _is_watched(self) -> bool:
        return self._clock.monotonic_s() - self._watched_s < WATCHED_S

    def _age_s(self) -> float:
        """Return the age of the gateway's figures."""
        return self._clock.monotonic_s() - self._read_s

    def _ask(self, catalogue: Catalogue, serving: Sequence[str]) -> None:
        """Begin to ask the engines that serve, if they were not asked just now."""
        now_s = self._clock.monotonic_s()
        due = now_s - self._asked_s > _ENGINES_EVERY_S or not self._loads.keys() >= set(serving)
        if serving and due and self._asking is None:
            self._asked_s = now_s
            self._asking = asyncio.create_task(self._ask_now(catalogue, serving))

    async def _ask_now(self, catalogue: Catalogue, serving: Sequence[str]) -> None:
        try:
            told = await asyncio.gather(*(self._backend.load(catalogue[n]) for n in serving))
            self._loads = dict(zip(serving, told, strict=True))
            self._loads_s = self._clock.monotonic_s()
            self._counting |= {
                (name, catalogue[name].engine)
                for name, load in self._loads.items()
                if load is not None and load.prefix_queries is not None
            }
        finally:
            self._asking = None


def _in_flight(stats: Mapping[str, object] | None, serving: Sequence[str]) -> bool:
    """Tell whether the gateway has requests in flight to one of these profiles."""
    profiles = (stats or {}).get("profiles")
    figures = profiles if isinstance(profiles, Mapping) else {}
    rows = (figures.get(name) for name in serving)
    return any(isinstance(row, Mapping) and row.get("in_flight") for row in rows)


DURATION_BOUNDS_S: Final = (
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0),
)
"""Upper bounds of the durations of phases: a switch of the smallest model takes 0.1 s for all of them, and
the load of a large one from a slow disk half an hour."""


class OperationTally:
    """Counts of operations by kind and outcome, and durations of the phases of switches."""

    def __init__(self) -> None:
        self._outcomes = {kind: dict.fromkeys(Outcome, 0) for kind in Kind}
        self._phases: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def add(self, finished: Finished) -> None:
        """Count an operation that has ended."""
        kind = finished.operation.kind
        self._outcomes[kind][finished.outcome] += 1
        if kind is Kind.SWITCH:
            for phase, ms in finished.phases_ms.items():
                self._add_phase(phase, ms / 1000)

    def document(self) -> Mapping[str, object]:
        """Return the tally for JSON; the last count of a phase is that of longer ones than any bound."""
        return {
            "outcomes": {
                kind.value: {outcome.value: count for outcome, count in counts.items()}
                for kind, counts in self._outcomes.items()
            },
            "bounds_s": DURATION_BOUNDS_S,
            "switch_phases": {
                phase: {"counts": list(counts), "sum_s": round(self._sums_s[phase], 6)}
                for phase, counts in self._phases.items()
            },
        }

    def _add_phase(self, phase: str, seconds: float) -> None:
        counts = self._phases.setdefault(phase, [0] * (len(DURATION_BOUNDS_S) + 1))
        counts[bisect_left(DURATION_BOUNDS_S, seconds)] += 1
        self._sums_s[phase] = self._sums_s.get(phase, 0.0) + seconds


async def counters_document(traffic: TrafficFigures, tally: OperationTally) -> Mapping[str, object]:
    """Return the gateway's counters and the tally for JSON."""
    return {"gateway": await traffic.counters(), "operations": tally.document()}
