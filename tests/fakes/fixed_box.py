"""Box whose documents are given, for the routes of the web process."""

from dataclasses import dataclass, field, replace

import httpx
from starlette.types import ASGIApp

from appliance.web.box_documents import BoxDocuments, Document, EnginePages
from appliance.web.page.page_documents import FocusDocuments


@dataclass(slots=True)
class FixedBox:
    """Source of one value, which a test may replace."""

    documents: BoxDocuments = field(default_factory=lambda: BoxDocuments(unix_s=0.0))
    counted: Document | None = None
    pages: EnginePages | None = None

    async def look(self) -> BoxDocuments:
        """Return it."""
        return self.documents

    async def counters(self) -> Document | None:
        """Return the counters that a test has set."""
        return self.counted

    async def engine_pages(self) -> EnginePages | None:
        """Return the pages that a test has set."""
        return self.pages


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
