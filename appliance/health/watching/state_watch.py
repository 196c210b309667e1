"""Watch of profiles' states: each status document of the supervisor adds to their record, and to the events."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from appliance.health.agent import HealthAgent
from appliance.health.clock import HealthClock
from appliance.model.measurements import MeasurementEvent
from appliance.model.speeds import LOST_PHASES, SpeedReport
from appliance.presentation.health_sections import UNRESPONSIVE
from appliance.status.engine_events import EngineHistory
from appliance.status.state_record import DEGRADED
from appliance.system.sqlite.state_store import StateStore
from appliance.wire.status_stream import Documents


class EventStore(Protocol):
    """Store of events."""

    async def add(self, *, events: Sequence[MeasurementEvent] = ()) -> object:
        """Store events."""


class StateWatch:
    """Watch of the states.

    Args:
        agent: Has the view of the box, and the speeds.
        store: Keeps the record.
        events: Keeps what engines did.
        clock: Of the box.
        unresponsive: Returns the profiles whose engines run and do not answer.
    """

    def __init__(
        self,
        agent: HealthAgent,
        store: StateStore,
        events: EventStore,
        clock: HealthClock,
        *,
        unresponsive: Callable[[], Collection[str]],
    ) -> None:
        self._unresponsive = unresponsive
        self._agent = agent
        self._store = store
        self._events = events
        self._engines = EngineHistory()
        self._clock = clock

    async def watched(self, documents: Documents) -> Documents:
        """Yield status documents on to the agent, and record the states that it then knows."""
        async for document in documents:
            yield document
            if self._agent.view.connected:
                now = self._clock.unix_s()
                await self._store.observe(shown_states(self._agent, self._unresponsive()), now)
                if document is not None and (found := self._engines.take(document, unix_s=now)):
                    await self._events.add(events=found)


def shown_states(agent: HealthAgent, unresponsive: Collection[str]) -> Mapping[str, str]:
    """Return the state of each profile as the page shows it."""
    reports = agent.reports()
    found = {}
    for name, profile in agent.view.profiles.items():
        is_degraded = profile.serving and _is_slow(reports.get(name))
        state = DEGRADED if is_degraded else profile.state
        found[name] = UNRESPONSIVE if name in unresponsive else state
    return found


def _is_slow(report: SpeedReport | None) -> bool:
    """Tell whether a lasting loss of speed is reported."""
    if report is None:
        return False
    return any(series.phase in LOST_PHASES for series in report.series)
