"""Notes of the prober on one engine, from its start until its next start."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from appliance.engines.shared.engine import Probing
from appliance.health.measuring.lane_requests import LaneRequests, ProbeEndedError
from appliance.model.measurements import RawTimings
from appliance.model.profile import Applied
from appliance.speed.measurement import RequestCounters, read_counters
from appliance.speed.probe_prompts import PieceSize, continues, probing_of

_METRICS_PAGE: Final = "/metrics"
_VERSION_TRIES: Final = 3
_MOST_LOST: Final = 2
"""Prompts in a row that an engine began anew after a piece, after which it gets them in one."""


@dataclass(slots=True, kw_only=True)
class EngineNotes:
    """Notes on one engine."""

    started_unix_s: float | None
    """Start of the engine; None: not known."""
    engine: str
    fingerprint: str
    """Name of the engine and fingerprint of the profile, which notes hold for."""
    probing: Probing
    size: PieceSize = field(default_factory=PieceSize)
    in_pieces: bool = True
    """Whether prompts are sent in pieces."""
    lost: int = 0
    """Prompts in a row that the engine began anew after a piece."""
    has_metrics: bool = True
    """Whether the engine's metrics may tell the times of a request."""
    crowded: bool = False
    """Whether other programs made the steps of the engine long when it was last asked."""
    version: str | None = None
    version_tries: int = 0

    @classmethod
    def of(cls, applied: Applied, started_unix_s: float | None) -> "EngineNotes":
        """Return the notes on an engine that has just started."""
        probing = probing_of(applied)
        return cls(
            started_unix_s=started_unix_s,
            engine=applied.engine,
            fingerprint=applied.fingerprint,
            probing=probing,
            in_pieces=probing.piece_parameters is not None,
            has_metrics=probing.has_metrics,
        )

    def hold_for(self, applied: Applied, started_unix_s: float | None) -> bool:
        """Tell whether the notes are on the engine of a profile since this start."""
        mine = (self.started_unix_s, self.engine, self.fingerprint)
        return mine == (started_unix_s, applied.engine, applied.fingerprint)

    def note_piece(self, before: RawTimings | None, piece: RawTimings) -> bool:
        """Note a piece; returns whether the engine evaluated it from where the one before ended."""
        if before is None or continues(before, piece):
            return True
        self.lost += 1
        if self.lost >= _MOST_LOST:
            self.in_pieces = False
        return False

    async def counters(self, requests: LaneRequests) -> RequestCounters | None:
        """Return the engine's counters; None: it has none. Raises `ProbeEndedError`."""
        if not self.has_metrics:
            return None
        page = await requests.page(_METRICS_PAGE)
        self.has_metrics = page is not None
        return None if page is None else read_counters(page)

    async def read_version(
        self, requests: LaneRequests, module_version: Callable[[str], str | None]
    ) -> None:
        """Read the engine's version unless it is known, or was looked for often enough."""
        if self.version is not None or self.version_tries >= _VERSION_TRIES:
            return
        self.version_tries += 1
        if self.probing.version_of_module:
            self.version = module_version(self.probing.version_of_module)
        elif self.probing.version_page is not None:
            try:
                text = await requests.page(self.probing.version_page.path)
            except ProbeEndedError:
                return
            self.version = None if text is None else self.probing.version_page.read(text)
