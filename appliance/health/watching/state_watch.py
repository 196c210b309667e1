"""Watch of profiles' states: each status document of the supervisor adds to their record."""

from collections.abc import AsyncIterator, Mapping

from appliance.adapters.sqlite.state_store import StateStore
from appliance.health.agent import HealthAgent
from appliance.health.clock import HealthClock
from appliance.planning.speeds import SpeedReport
from appliance.planning.status.speed_row import LOST_PHASES
from appliance.planning.status.state_record import DEGRADED

Document = Mapping[str, object] | None


class StateWatch:
    """Watch of the states.

    Args:
        agent: Has the view of the box, and the speeds.
        store: Keeps the record.
        clock: Of the box.
    """

    def __init__(self, agent: HealthAgent, store: StateStore, clock: HealthClock) -> None:
        self._agent = agent
        self._store = store
        self._clock = clock

    async def watched(self, documents: AsyncIterator[Document]) -> AsyncIterator[Document]:
        """Yield status documents on to the agent, and record the states that it then knows."""
        async for document in documents:
            yield document
            if self._agent.view.connected:
                await self._store.observe(shown_states(self._agent), self._clock.unix_s())


def shown_states(agent: HealthAgent) -> Mapping[str, str]:
    """Return the state of each profile as the page shows it."""
    reports = agent.reports()
    found = {}
    for name, profile in agent.view.profiles.items():
        is_degraded = profile.serving and (profile.stalled or _is_slow(reports.get(name)))
        found[name] = DEGRADED if is_degraded else profile.state
    return found


def _is_slow(report: SpeedReport | None) -> bool:
    """Tell whether a lasting loss of speed is reported."""
    if report is None:
        return False
    return any(series.phase in LOST_PHASES for series in report.series)
