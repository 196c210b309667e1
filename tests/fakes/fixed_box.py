"""Box whose documents are given, for the routes of the web process."""

from dataclasses import dataclass, field, replace

import httpx
from starlette.types import ASGIApp

from appliance.domain.errors import ApplianceError, PermissionDeniedError
from appliance.protocol.record import Record
from appliance.web.box_documents import BoxDocuments, Document
from appliance.web.page.operator_desk import AlertChange, BoxRequest
from appliance.web.page.page_documents import FocusDocuments


@dataclass(slots=True)
class FixedBox:
    """Source of one value, which a test may replace."""

    documents: BoxDocuments = field(default_factory=lambda: BoxDocuments(unix_s=0.0))

    async def look(self) -> BoxDocuments:
        """Return it."""
        return self.documents


def browse(application: ASGIApp, host: str = "127.0.0.1:8011") -> httpx.AsyncClient:
    """Return a client of an application in this process."""
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")


@dataclass(slots=True)
class FixedFocus:
    """Source of what is known of one profile; counts the looks, and for how many a log was asked."""

    documents: FocusDocuments | None = None
    """Documents of every profile, apart from its name; None: nothing is known."""
    looks: list[tuple[str, bool]] = field(default_factory=list)

    async def operations(self) -> tuple[Document, ...]:
        """Return none."""
        return ()

    async def look_at(self, name: str, *, with_log: bool) -> FocusDocuments:
        """Return it, under the name that was asked for."""
        self.looks.append((name, with_log))
        known = self.documents or FocusDocuments(name=name, since_unix_s=0.0)
        return replace(known, name=name, log=known.log if with_log else None)


@dataclass(slots=True)
class FakeDesk:
    """Desk for the operators of some tokens; keeps what each has asked for."""

    operators: dict[str, str] = field(default_factory=lambda: {"good-token": "ana (token phone)"})
    asked: list[tuple[str, Record]] = field(default_factory=list)
    refusal: ApplianceError | None = None
    """Error with which every request is refused; None: each is carried out."""

    async def operator_of(self, token: str) -> str:
        """Return the operator of a token."""
        if token not in self.operators:
            raise PermissionDeniedError("this token is not known")
        return self.operators[token]

    async def change_box(self, token: str, request: BoxRequest) -> None:
        """Keep a request to the supervisor."""
        self._take(token, request)

    async def change_alerts(self, token: str, request: AlertChange) -> None:
        """Keep a request to the health agent."""
        self._take(token, request)

    def _take(self, token: str, request: Record) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((token, request))
