"""Box whose documents are given, for the routes of the web process."""

from dataclasses import dataclass, field

import httpx
from starlette.types import ASGIApp

from appliance.web.box_documents import BoxDocuments


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
