"""Resources of the status API."""

from typing import Any

from fastapi import APIRouter

from appliance.web.box_documents import BoxSource
from appliance.web.problem import ProblemError


def api_router(box: BoxSource) -> APIRouter:
    """Return the router of the API.

    Args:
        box: Where the documents come from.
    """
    router = APIRouter()

    @router.get("/livez", tags=["checks"])
    async def livez() -> dict[str, str]:
        """Tell that the web process answers."""
        return {"status": "ok"}

    @router.get("/api/v1/status", tags=["box"])
    async def status() -> dict[str, Any]:
        """Return the status document, as `appliance status --json` prints it."""
        documents = await box.look()
        if documents.status is None:
            raise ProblemError(
                503,
                "the supervisor does not answer",
                hint="sudo systemctl start appliance-supervisor",
            )
        return dict(documents.status)

    return router
