"""Verifier of engines: what each reports about itself, against its profile.

An operation verifies what it starts. What systemd starts, after a boot, a crash or by hand, is
verified here within seconds: a mismatch is then told, and nothing is stopped for it.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from appliance.model.errors import UnitError
from appliance.model.journal_events import JournalEvent, event_fields
from appliance.model.observed import ObservedUnit
from appliance.model.profile import Applied
from appliance.model.status import VerificationRow
from appliance.status.verification import difference_note, verification_row
from appliance.supervisor.memory_sampler import LastLook
from appliance.switch.verification import (
    Verification,
    build_facts,
    compare,
    log_description,
    together,
)
from appliance.system.ports import Backend, Clock, Host, Units

_log = logging.getLogger(__name__)

EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedStart:
    """Result of the comparison of one start."""

    row: VerificationRow
    started_unix_s: float
    """Unix seconds of the start; 0: not known."""
    main_pid: int
    applied: Applied
    """Profile that the engine was compared with."""


class EngineVerifier:
    """Verifier of every engine that serves, once for each of its starts.

    Args:
        look: The supervisor's last look at the box.
        backend: Asks an engine for its pages.
        host: Reads its log.
        units: Tell when it was started.
        clock: For the time of a result.
    """

    def __init__(
        self, look: LastLook, *, backend: Backend, host: Host, units: Units, clock: Clock
    ) -> None:
        self._look = look
        self._backend = backend
        self._host = host
        self._units = units
        self._clock = clock
        self._known: dict[str, VerifiedStart] = {}
        self._count = 0

    async def run(self, is_operating: Callable[[], bool]) -> None:
        """Verify for ever what serves and was not verified; operations verify what they start."""
        while True:
            if not is_operating():
                await self.turn()
            await asyncio.sleep(EVERY_S)

    def known(self) -> Mapping[str, VerificationRow]:
        """Return the last result of each profile that served when it was last looked at."""
        return {name: one.row for name, one in self._known.items()}

    @property
    def count(self) -> int:
        """Return how many starts were verified: another number is another state."""
        return self._count

    async def turn(self) -> None:
        """Verify the profiles that serve since the last turn; forget those that do not any more."""
        catalogue, observed = self._look()
        serving = [n for n in observed.serving() if n in catalogue and catalogue[n].declared]
        for name in self._known.keys() - set(serving):
            del self._known[name]
        try:
            units = (await self._units.observe(serving, full=True)).units if serving else {}
        except UnitError:
            return  # the supervisor's own look reports it
        for name, unit in units.items():
            if unit.serving and not self._is_known(catalogue[name], unit):
                await self._verified(catalogue[name], unit)

    def _is_known(self, applied: Applied, unit: ObservedUnit) -> bool:
        known = self._known.get(applied.name)
        return known is not None and (known.started_unix_s, known.main_pid, known.applied) == (
            unit.started_unix_s,
            unit.main_pid,
            applied,
        )

    async def verify(self, applied: Applied) -> VerificationRow:
        """Return how the engine that serves `applied` compares with it. Raises `UnitError`."""
        if not applied.declared:
            return verification_row(Verification(), at_unix_s=self._clock.unix_s())
        observed = await self._units.observe((applied.name,), full=True)
        return await self._verified(applied, observed.unit(applied.name))

    async def _verified(self, applied: Applied, unit: ObservedUnit) -> VerificationRow:
        told, lines, build = await asyncio.gather(
            self._backend.describe(applied),
            self._first_lines(applied.name, unit),
            self._host.build(applied),
        )
        described = together((told, log_description(applied, lines)))
        verification = compare((*applied.declared, *build_facts(build)), described)
        row = verification_row(verification, at_unix_s=self._clock.unix_s())
        if note := difference_note(row):
            mismatch = event_fields(JournalEvent.PROFILE_MISMATCH, profiles=(applied.name,))
            _log.warning("%s %s", applied.name, note, extra=mismatch)
        self._count += 1
        self._known[applied.name] = VerifiedStart(
            row=row,
            started_unix_s=unit.started_unix_s,
            main_pid=unit.main_pid,
            applied=applied,
        )
        return row

    async def _first_lines(self, name: str, unit: ObservedUnit) -> tuple[str, ...]:
        if not unit.started_unix_s:
            return ()  # lines of an earlier start would tell of another engine
        return tuple(await self._host.log_head(name, since_unix_s=unit.started_unix_s))
