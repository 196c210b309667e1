"""The health agent: monitors of the profiles, fed with views of the box.

=====================  ============================================================
Profile                Monitors
=====================  ============================================================
applied, generates     one of speed and one of quality, from then on
serves                 are told so; probes and canaries run
retired                as if it did not serve
no longer applied      end
=====================  ============================================================

No monitor asks anything while an operation runs, requests are held, a bench has the box, or the
supervisor does not answer: then nobody knows of operations. What a monitor raises ends the process, and
systemd starts it again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from appliance.health.box_view import NOT_CONNECTED, BoxView, ProfileView, view_of
from appliance.health.clock import HealthClock
from appliance.model.errors import StoreError
from appliance.model.measurements import TrafficSums
from appliance.model.profile import Applied, Catalogue, WarmUp
from appliance.model.speeds import BaselineReport, SpeedReport
from appliance.model.status import StatusDocument
from appliance.model.words import Mark
from appliance.speed.probe_schedule import ProbeConditions
from appliance.wire.health_socket import ProbeProgressEvent
from appliance.wire.status_stream import Documents


class RealTraffic:
    """Differences of the gateway's counters.

    The first counters give none: their traffic may be of days. Counters that have fallen are of a
    gateway that has started since, and count from zero.
    """

    def __init__(self) -> None:
        self._last: dict[str, TrafficSums] | None = None

    def news(self, counters: Mapping[str, TrafficSums]) -> Mapping[str, TrafficSums]:
        """Return the traffic since the last call, of profiles that had any.

        Args:
            counters: Counters by profile; empty: the gateway did not answer, and a later call tells
                of this traffic too.
        """
        if not counters:
            return {}
        last, self._last = self._last, {**(self._last or {}), **counters}
        if last is None:
            return {}
        grown = {name: _grown(last.get(name), now) for name, now in counters.items()}
        return {name: sums for name, sums in grown.items() if _has_any(sums)}


def _grown(before: TrafficSums | None, now: TrafficSums) -> TrafficSums:
    if before is None or not _is_later(before, now):
        return now
    return replace(
        now,
        output_tokens=now.output_tokens - before.output_tokens,
        decode_s=now.decode_s - before.decode_s,
        prompt_tokens=now.prompt_tokens - before.prompt_tokens,
        cached_tokens=now.cached_tokens - before.cached_tokens,
    )


def _is_later(before: TrafficSums, now: TrafficSums) -> bool:
    """Tell whether no counter has fallen."""
    return (
        now.output_tokens >= before.output_tokens
        and now.decode_s >= before.decode_s
        and now.prompt_tokens >= before.prompt_tokens
        and now.cached_tokens >= before.cached_tokens
    )


def _has_any(sums: TrafficSums) -> bool:
    return sums.output_tokens > 0 or sums.prompt_tokens > 0


_log = logging.getLogger(__name__)

_TELL_EVERY_S: Final = 10.0
"""A third of the unit's WatchdogSec=."""
_COMPACT_AFTER_S: Final = 60.0
_COMPACT_EVERY_S: Final = 3600.0
_GENERATING: Final = frozenset({WarmUp.COMPLETION, WarmUp.CHAT})
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
AWAY: Final = "the supervisor does not answer: systemctl status appliance-supervisor"
"""Sentence for whoever asks meanwhile."""


class ProfileWatch(Protocol):
    """Monitor of one profile."""

    def observe(self, view: ProfileView, conditions: ProbeConditions) -> None:
        """Take in how the profile is, and whether it may be asked."""

    async def run(self) -> None:
        """Watch for ever."""


class SpeedWatch(ProfileWatch, Protocol):
    """Monitor of the speed of one profile."""

    @property
    def last_probe_unix_s(self) -> float | None:
        """Time of the last probe; None: there was none."""

    @property
    def trouble(self) -> str:
        """Sentence about what keeps probes from running or being judged; empty: nothing."""

    def add_traffic(self, sums: TrafficSums) -> None:
        """Take in real traffic."""

    def report(self) -> SpeedReport:
        """Return the present speed, from memory."""

    def baseline(self) -> BaselineReport:
        """Return the baselines, and what an accept would make of them."""

    async def accept(self, by: str) -> None:
        """Accept the present level. Raises `ApplianceError`."""

    async def reset(self, by: str) -> None:
        """Forget the baseline."""

    def probe_now(self) -> AsyncIterator[ProbeProgressEvent]:
        """Probe at once; yields how it goes on."""


class QualityWatch(ProfileWatch, Protocol):
    """Monitor of the answers of one profile."""

    @property
    def pass_rate(self) -> float | None:
        """Share of canaries that passed lately; None: none ran."""

    @property
    def last_round_unix_s(self) -> float | None:
        """Time of the last round of canaries since the start; None: none was."""

    @property
    def is_lost(self) -> bool:
        """Whether a loss of quality is reported that has not ended."""

    @property
    def trouble(self) -> str:
        """Sentence about what keeps canaries from running; empty: nothing."""

    async def accept(self, by: str) -> None:
        """Accept the present share of passed canaries."""

    async def reset(self) -> None:
        """Forget the accepted share."""


class CompactingStore(Protocol):
    """Store that drops what is older than its retention."""

    @property
    def trouble(self) -> str | None:
        """Sentence about a file that takes no rows; None: it takes them."""

    async def compact(self, now_unix_s: float) -> bool:
        """Take one step of retention; returns whether more is to be done."""


MakeWatches = Callable[[Sequence[str]], Awaitable[Mapping[str, tuple[SpeedWatch, QualityWatch]]]]
"""Maker of the monitors of profiles, each by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Monitors of one profile, and the tasks that run them."""

    speed: SpeedWatch
    quality: QualityWatch
    tasks: tuple[asyncio.Task[None], ...]


class HealthAgent:
    """The health agent.

    Args:
        catalogue: Reads the applied profiles. Raises `StoreError`.
        make_watches: Makes the monitors of profiles.
        store: Of the measurements.
        is_leased: Tells whether a bench has the box.
        clock: Of the box.
        on_alive: Called every few seconds with the text of the agent's state.
        why_off: Reason why nothing is measured, as a sentence; empty: it is.
    """

    def __init__(
        self,
        *,
        catalogue: Callable[[], Catalogue],
        make_watches: MakeWatches,
        store: CompactingStore,
        is_leased: Callable[[], bool],
        clock: HealthClock,
        on_alive: Callable[[str], None],
        why_off: str = "",
    ) -> None:
        self._read_catalogue = catalogue
        self._make_watches = make_watches
        self._store = store
        self._is_leased = is_leased
        self._clock = clock
        self._on_alive = on_alive
        self._why_off = why_off
        self._catalogue: Catalogue = {}
        self._fault = ""
        """Reason why documents or the applied profiles cannot be read; empty: they can."""
        self._traffic = RealTraffic()
        self.view: BoxView = NOT_CONNECTED
        self.watched: dict[str, Watched] = {}

    def profiles(self) -> Sequence[str]:
        """Return the names of applied profiles, as they were read last."""
        return sorted(self._catalogue)

    def monitor(self, name: str) -> SpeedWatch | None:
        """Return the monitor of a profile's speed; None: it is not measured."""
        watched = self.watched.get(name)
        return None if watched is None else watched.speed

    async def accept(self, name: str, by: str) -> None:
        """Accept the present speed and quality of a watched profile. Raises `ApplianceError`."""
        await self.watched[name].speed.accept(by)
        await self.watched[name].quality.accept(by)

    async def reset(self, name: str, by: str) -> None:
        """Forget the baselines of a watched profile. Raises `ApplianceError`."""
        await self.watched[name].speed.reset(by)
        await self.watched[name].quality.reset()

    def serving(self) -> Sequence[str]:
        """Return the profiles that serve and are measured."""
        return sorted(n for n, p in self.view.profiles.items() if p.serving and n in self.watched)

    async def run(self, documents: Documents) -> None:
        """Watch for ever.

        Args:
            documents: Status documents, one after each change; None: the supervisor does not answer.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._tell())
            if not self._why_off:
                tasks.create_task(self._compact())
            async for document in documents:
                await self._take(document, tasks)
                self._on_alive(self.status())

    def observe(self) -> None:
        """Tell every monitor how its profile is, after a change of what the agent knows."""
        for name, watched in self.watched.items():
            profile = self.view.profiles.get(name) or _absent(name, self._catalogue.get(name))
            conditions = self._conditions(profile)
            watched.speed.observe(profile, conditions)
            watched.quality.observe(profile, conditions)

    def reports(self) -> Mapping[str, SpeedReport]:
        """Return the speed of each profile that serves or was measured, from memory."""
        found = {}
        for name, watched in sorted(self.watched.items()):
            profile = self.view.profiles.get(name)
            serves = profile is not None and profile.serving
            if serves or watched.speed.last_probe_unix_s is not None:
                found[name] = watched.speed.report().replaced(
                    quality_pass_rate=watched.quality.pass_rate,
                    last_canaries_unix_s=watched.quality.last_round_unix_s,
                )
        return found

    def quality_lost(self) -> frozenset[str]:
        """Return the watched profiles of which a loss of quality is reported."""
        return frozenset(name for name, watched in self.watched.items() if watched.quality.is_lost)

    def troubles(self) -> Sequence[str]:
        """Return sentences about what keeps the agent from measuring."""
        return self._troubles_of(sorted(self.watched))

    def _troubles_of(self, names: Sequence[str]) -> Sequence[str]:
        """Return the troubles of the agent itself, and of some watched profiles."""
        if self._why_off:
            return [self._why_off]
        found = [self._store.trouble or "", self._fault]
        if not self.view.connected:
            found.append(AWAY)
        for name in names:
            watched = self.watched[name]
            told = (watched.speed.trouble, watched.quality.trouble)
            found += [f"{name}: {text}" for text in told if text]
        return [text for text in found if text]

    def status(self) -> str:
        """Return the line that `systemctl status` shows."""
        serving = self.serving()
        parts = [f"{len(serving)} profile{'s' * (len(serving) != 1)} watched"]
        last = max((self.watched[n].speed.last_probe_unix_s or 0.0 for n in serving), default=0.0)
        if last:
            parts.append(f"last probe {_age_text(self._clock.unix_s() - last)} ago")
        return " · ".join([*parts, *self._troubles_of(serving)])

    # --- what the supervisor says ----------------------------------------------------

    async def _take(self, document: StatusDocument | None, tasks: asyncio.TaskGroup) -> None:
        self._load()
        if document is None:
            self.view = replace(self.view, connected=False)
        else:
            self.view = view_of(
                document,
                self._catalogue,
                self._clock.unix_s(),
                self._clock.monotonic_s(),
            )
        await self._watch_applied(tasks)
        self.observe()
        for name, sums in self._traffic.news(self.view.traffic).items():
            if name in self.watched:
                self.watched[name].speed.add_traffic(sums)

    def _load(self) -> None:
        try:
            self._catalogue = self._read_catalogue()
        except StoreError as error:
            self._set_fault(str(error))
        else:
            self._fault = ""

    def _set_fault(self, fault: str) -> None:
        if fault != self._fault:
            _log.error("%s", fault)
        self._fault = fault

    async def _watch_applied(self, tasks: asyncio.TaskGroup) -> None:
        """Begin to watch profiles that are applied now, and end watching the others."""
        generating = {n for n, a in self._catalogue.items() if a.warm_up in _GENERATING}
        wanted = set() if self._why_off else generating
        for name in self.watched.keys() - wanted:
            for task in self.watched.pop(name).tasks:
                task.cancel()
        if not (new := sorted(wanted - self.watched.keys())):
            return
        for name, (speed, quality) in (await self._make_watches(new)).items():
            running = (
                tasks.create_task(speed.run(), name=f"speed of {name}"),
                tasks.create_task(quality.run(), name=f"quality of {name}"),
            )
            self.watched[name] = Watched(speed=speed, quality=quality, tasks=running)

    def _conditions(self, profile: ProfileView) -> ProbeConditions:
        return ProbeConditions(
            serving=profile.serving and profile.mark != Mark.RETIRED,
            operation=self.view.running is not None,
            held=profile.held or not self.view.connected,
            bench=self._is_leased(),
        )

    # --- beside that -----------------------------------------------------------------

    async def _tell(self) -> None:
        while True:
            self._on_alive(self.status())
            await self._clock.sleep_until(self._clock.monotonic_s() + _TELL_EVERY_S)

    async def _compact(self) -> None:
        """Keep the store within its retention; the first time soon, in case of short lives."""
        await self._clock.sleep_until(self._clock.monotonic_s() + _COMPACT_AFTER_S)
        while True:
            while await self._store.compact(self._clock.unix_s()):
                pass
            await self._clock.sleep_until(self._clock.monotonic_s() + _COMPACT_EVERY_S)


def _absent(name: str, applied: Applied | None) -> ProfileView:
    """Return the view of a profile of which the supervisor says nothing."""
    return ProfileView(
        name=name,
        applied=applied,
        serving=False,
        started_unix_s=None,
        main_pid=None,
        mark=None,
        held=False,
    )


def _age_text(seconds: float) -> str:
    """Return an age in minutes, or in hours: the text is not to change each time it is told."""
    if seconds < _MINUTE_S:
        return "under a minute"
    if seconds < 2 * _HOUR_S:
        return f"{seconds // _MINUTE_S:.0f} min"
    return f"{seconds // _HOUR_S:.0f} h"
