"""Routes of the page: GET /."""

from html import escape

from fastapi import APIRouter
from starlette.responses import HTMLResponse

from appliance.protocol.json_values import objects_in, text_in
from appliance.web.box_documents import BoxSource


def page_router(box: BoxSource) -> APIRouter:
    """Return the router of the page.

    Args:
        box: Where the documents come from.
    """
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def page() -> HTMLResponse:
        documents = await box.look()
        status = documents.status or {}
        rows = (
            f"<li>{escape(text_in(row, 'name'))}: {escape(text_in(row, 'state'))}</li>"
            for row in objects_in(status, "profiles")
        )
        return HTMLResponse(
            "<!doctype html><html lang=en><meta charset=utf-8><title>appliance</title>"
            f"<h1>{escape(text_in(status, 'host'))}</h1><ul>{''.join(rows)}</ul></html>"
        )

    return router
