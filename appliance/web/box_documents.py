"""Documents of the box, as the web process has them from the daemons' sockets.

API, metrics and page are made from one value of this kind, so that they show the same truth.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from appliance.model.status import StatusDocument
from appliance.presentation.health_sections import alert_section, with_alerts
from appliance.wire.alert_requests import ActRequest
from appliance.wire.health_socket import HealthEvent, HealthRequest
from appliance.wire.status_socket import StatusSocketEvent, StatusSocketRequest

Document = Mapping[str, Any]
"""JSON object, as decoded."""
STALE_S: Final = 30.0
"""Age from which on a document says nothing of now: its figures are absent, and nothing is judged by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxDocuments:
    """Documents of one moment. None: its daemon does not answer, and never did since this process began."""

    unix_s: float
    """Time of this value."""
    status: StatusDocument | None = None
    """Status document of the supervisor (docs/reference/status-document.md), the last one there was."""
    status_age_s: float | None = None
    """Time since the supervisor sent it; a daemon that has gone leaves an old document behind."""
    speeds: Document | None = None
    """Answer of the health agent to `speeds` (docs/reference/agent-sockets.md): profiles, trouble, alerts."""
    speeds_age_s: float | None = None
    """Time since the health agent sent it."""
    gpus: Document | None = None
    """Answer of the supervisor to `gpus`: clocks, power, heat, energy, health, who holds memory."""
    gpus_age_s: float | None = None
    """Time since the supervisor sent it."""

    def judged(self, status: StatusDocument) -> StatusDocument:
        """Return a status document with the alerts, and with the states that the health agent has found."""
        section = None if self.speeds is None else alert_section(self.speeds)
        is_fresh = (self.speeds_age_s or 0.0) < STALE_S
        return with_alerts(status, section, is_fresh=is_fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePages:
    """Metrics that the engines publish themselves."""

    states: Mapping[str, str]
    """Outcome of each page, by profile: ``complete``, ``truncated``, ``absent`` or ``left-out``."""
    texts: Mapping[str, str]
    """Pages by profile, in Prometheus's text format."""


class BoxSource(Protocol):
    """Source of the box's documents for API, metrics and page. Questions raise `ApplianceError`."""

    async def look(self, *, for_person: bool = False, with_gpus: bool = True) -> BoxDocuments:
        """Return the documents of now, none older than about two seconds while its daemon answers.

        Args:
            for_person: Whether a person looks, and is likely to look again: the supervisor then keeps figures of
                the engines fresh for a minute. Collectors and scripts are no persons.
            with_gpus: Whether the GPUs' evidence is asked for; without, it is None.
        """
        ...

    async def counters(self) -> Document | None:
        """Return the supervisor's answer to `counters`, at most two seconds old; None: it has none."""
        ...

    async def engine_pages(self) -> EnginePages | None:
        """Return the engines' own metrics of now; None: the supervisor does not answer."""
        ...

    async def ask_supervisor(self, request: StatusSocketRequest) -> Document:
        """Return the supervisor's answer to a question on the status socket."""
        ...

    async def ask_agent(self, request: HealthRequest) -> Document:
        """Return the health agent's answer to a question on the view socket."""
        ...

    async def ask_agent_events(self, request: HealthRequest) -> Sequence[HealthEvent]:
        """Return the events of the health agent's answer, without the closing one."""
        ...

    async def act(self, request: ActRequest) -> str:
        """Have the health agent do what a button is for; return its sentence about that."""
        ...

    def follow_supervisor(
        self, request: StatusSocketRequest
    ) -> AbstractAsyncContextManager[AsyncGenerator[StatusSocketEvent, None]]:
        """Begin a conversation with the supervisor."""
        ...

    def follow_agent(
        self, request: HealthRequest
    ) -> AbstractAsyncContextManager[AsyncGenerator[HealthEvent, None]]:
        """Begin a conversation with the health agent."""
        ...
