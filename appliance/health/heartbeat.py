"""Heartbeat: signs of life to the outside, which cease when this box or its watchdog dies.

=================================  ===========================================================
The watchdog looks, rows are sent  each beat pings the outside watch, and pushes the message
                                   "box silent", which a target keeps, further into the future
Otherwise                          no beat: the watch misses its ping, the message is delivered
Planned shutdown                   the message is pushed by the time that a reboot takes
Stop of the agent by hand          the message is taken back, and the journal says so
Start after it was delivered       the same entry on the phone says that the box is back
=================================  ===========================================================

A target that refuses (it keeps no scheduled messages, no watch is configured) is tried again after an
hour, or when the targets change.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from appliance.alerts.box_messages import BoxWords, box_back, box_silent, silent_sequence_id
from appliance.health.clock import HealthClock
from appliance.model.alerts import Message, SendOutcome, SendResult
from appliance.model.errors import ApplianceError
from appliance.model.json_reader import decode_json
from appliance.wire.typed_json import from_json

_log = logging.getLogger(__name__)

BEAT_EVERY_S: Final = 50.0
"""Below the 60 s after which an idle notifier leaves: at a shutdown, when systemd starts nothing any
more, the notifier is still there."""
_ASK_REFUSED_AGAIN_S: Final = 3600.0
_END_S: Final = 8.0
"""Time for the last words: well below TimeoutStopSec= of the unit."""
_MOST_RECORD_BYTES: Final = 64 << 10
_PING: Final = ""
"""Key of the outside watch among the targets that refuse."""


class BeatNotifier(Protocol):
    """Notifier, as far as the heartbeat uses it."""

    async def send(self, target: str, message: Message) -> SendResult:
        """Send a message now."""

    async def schedule(self, target: str, message: Message, delay_s: float) -> SendResult:
        """Have a message delivered later, in place of the last one of its sequence id."""

    async def cancel(self, target: str, sequence_id: str) -> SendResult:
        """Take a scheduled message back."""

    async def ping(self) -> SendResult:
        """Ping the outside watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatFacts:
    """Heartbeat as a status tells it."""

    ping_unix_s: float | None = None
    """Time of the last ping that the outside watch took; None: none since the agent's start, or no watch is set."""
    armed: tuple[str, ...] = ()
    """Targets that deliver "box silent" unless this box goes on pushing it away."""
    armed_unix_s: float | None = None
    """Time of the last push."""
    unreached_unix_s: float | None = None
    """Time since which no attempt has reached the outside watch or a target; None: the last one did, or none was made."""
    trouble: str = ""
    """Sentence about why the last beat was left out or failed; empty: it was complete."""

    @property
    def is_set(self) -> bool:
        """Tell whether anybody outside would notice the death of this box."""
        return self.ping_unix_s is not None or bool(self.armed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scheduled:
    """Message "box silent" that a target keeps."""

    target: str
    pushed_unix_s: float
    due_unix_s: float
    """Time at which the target delivers it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Record:
    """Scheduled messages, remembered over restarts and power cuts."""

    scheduled: tuple[_Scheduled, ...] = ()


class Heartbeat:
    """Sender of the signs of life.

    Args:
        notifier: Reaches other machines.
        targets: Function that returns the targets which may keep scheduled messages.
        changes: Function that returns a value which differs after each change of the targets' settings.
        trouble: Function that returns why there is no beat now, as a sentence; empty: there is one.
        words: Name of this machine, and its clock.
        silent_after_s: Time after which a target delivers "box silent".
        reboot_takes_s: Time that a planned shutdown adds to that.
        record: File that remembers scheduled messages.
        clock: Of the box.
    """

    def __init__(
        self,
        *,
        notifier: BeatNotifier,
        targets: Callable[[], Sequence[str]],
        changes: Callable[[], object] = str,
        trouble: Callable[[], str],
        words: BoxWords,
        silent_after_s: float,
        reboot_takes_s: float,
        record: Path,
        clock: HealthClock,
    ) -> None:
        self._notifier = notifier
        self._targets = targets
        self._changes = changes
        self._trouble = trouble
        self._words = words
        self._silent_after_s = silent_after_s
        self._reboot_takes_s = reboot_takes_s
        self._path = record
        self._clock = clock
        self._known: Sequence[str] = ()
        self._last_change: object = None
        self._refused: dict[str, float] = {}
        """Times of the last refusals, by the monotonic clock."""
        self._scheduled = {one.target: one for one in _read(record).scheduled}
        self.facts = HeartbeatFacts(armed=tuple(sorted(self._scheduled)))

    def present_facts(self) -> HeartbeatFacts:
        """Return the facts of the last beat, without targets that were removed since."""
        armed = tuple(sorted({*self.facts.armed}.intersection(self._targets())))
        pushed_unix_s = self.facts.armed_unix_s if armed else None
        return replace(self.facts, armed=armed, armed_unix_s=pushed_unix_s)

    async def run(self) -> None:
        """Beat for ever."""
        while True:
            await self.beat()
            await self._clock.sleep_until(self._clock.monotonic_s() + BEAT_EVERY_S)

    async def beat(self) -> None:
        """Ping, and push "box silent" away on each target that keeps it; nothing in trouble."""
        if trouble := self._trouble():
            self._set(replace(self.facts, trouble=f"no heartbeat: {trouble}"))
            return
        self._take_targets()
        pinged = await self._ask(_PING, self._notifier.ping)
        now_s = self._clock.unix_s()
        is_watched = _PING not in self._refused
        missed = [] if pinged or not is_watched else ["the outside watch"]
        reached = pinged
        for name in self._known:
            pushed = await self._push(name, self._silent_after_s)
            missed += [] if pushed or name in self._refused else [name]
            reached = reached or pushed
        self._keep()
        unreached_s = self.facts.unreached_unix_s
        self._set(
            HeartbeatFacts(
                ping_unix_s=now_s if pinged else self.facts.ping_unix_s if is_watched else None,
                armed=tuple(sorted(self._scheduled)),
                armed_unix_s=max((s.pushed_unix_s for s in self._scheduled.values()), default=None),
                unreached_unix_s=(unreached_s or now_s) if missed and not reached else None,
                trouble=f"not reached: {', '.join(missed)}" if missed else "",
            )
        )

    async def end(self, *, is_shutdown: bool) -> None:
        """Leave each target as the end of this process asks for, within a bounded time.

        Args:
            is_shutdown: Whether the box shuts down; otherwise the agent alone was told to end.
        """
        try:
            async with asyncio.timeout(_END_S):
                for name in tuple(self._scheduled):
                    if is_shutdown:
                        await self._push(name, self._silent_after_s + self._reboot_takes_s)
                    elif await self._ask(
                        name, partial(self._notifier.cancel, name, silent_sequence_id(self._words))
                    ):
                        del self._scheduled[name]
        except TimeoutError:
            _log.warning("the notifier does not answer: a target may tell that the box is silent")
        self._keep()
        if not is_shutdown:
            _log.warning("the health agent ends: nobody is told of faults, nor of a dead box")

    def _take_targets(self) -> None:
        self._known = tuple(self._targets())
        if (change := (self._known, self._changes())) != self._last_change:
            self._last_change = change
            self._refused.clear()
        for name in self._scheduled.keys() - set(self._known):
            del self._scheduled[name]

    async def _push(self, name: str, delay_s: float) -> bool:
        """Schedule the message anew; one that was delivered is taken back first."""
        now_s = self._clock.unix_s()
        before = self._scheduled.get(name)
        if before is not None and before.due_unix_s <= now_s:
            back = box_back(self._words, silent_unix_s=before.pushed_unix_s, now_unix_s=now_s)
            if not await self._ask(name, partial(self._notifier.send, name, back)):
                return False
            del self._scheduled[name]
        silent = box_silent(self._words, now_s)
        if not await self._ask(name, partial(self._notifier.schedule, name, silent, delay_s)):
            return False
        self._scheduled[name] = _Scheduled(
            target=name, pushed_unix_s=now_s, due_unix_s=now_s + delay_s
        )
        return True

    async def _ask(self, key: str, ask: Callable[[], Awaitable[SendResult]]) -> bool:
        """Ask the notifier, unless the same was refused lately; tell whether it was done."""
        refused_s, now_s = self._refused.get(key), self._clock.monotonic_s()
        if refused_s is not None and now_s - refused_s < _ASK_REFUSED_AGAIN_S:
            return False
        try:
            outcome = (await ask()).outcome
        except ApplianceError as error:
            _log.debug("%s", error)
            outcome = SendOutcome.RETRY
        self._refused.pop(key, None)
        if outcome is SendOutcome.REFUSED:
            self._refused[key] = now_s
        return outcome is SendOutcome.SENT

    def _set(self, facts: HeartbeatFacts) -> None:
        if facts.trouble != self.facts.trouble:
            _log.warning("%s", facts.trouble or "the heartbeat is complete again")
        self.facts = facts

    def _keep(self) -> None:
        """Remember what is scheduled; without a sync: a lost record costs one message "heard again"."""
        record = _Record(scheduled=tuple(self._scheduled.values()))
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(asdict(record)), "utf-8")
            new.replace(self._path)
        except OSError as error:
            _log.debug("%s", error)


def _read(path: Path) -> _Record:
    """Return the record; an empty one where there is none, or none that can be read."""
    try:
        with path.open("rb") as file:
            return from_json(_Record, decode_json(file.read(_MOST_RECORD_BYTES)))
    except (OSError, ValueError):
        return _Record()
