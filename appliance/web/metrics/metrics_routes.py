"""Routes of the metrics: GET /metrics, of the box, and GET /metrics/engine, of its engines."""

import asyncio
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from appliance.web.box_documents import BoxSource, EnginePages
from appliance.web.metrics.merged_pages import merge
from appliance.web.metrics.metric_families import MetricFamilies
from appliance.web.metrics.metric_table import ENGINE_LINES_DROPPED, ENGINE_PAGE, SOURCE_UP
from appliance.web.metrics.text_exposition import encode, render_box

_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_PAGES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}}
}


def metrics_router(box: BoxSource) -> APIRouter:
    """Return the router of the metrics.

    Args:
        box: Where the documents come from.
    """
    router = APIRouter(tags=["metrics"], default_response_class=Response)

    @router.get("/metrics", responses=_PAGES)
    async def metrics(request: Request) -> Response:
        """Return the metrics of the box, for Prometheus: see docs/reference/metrics.md."""
        documents, counters = await asyncio.gather(box.look(), box.counters())
        accept = request.headers.get("accept")
        content_type, page = await asyncio.to_thread(render_box, documents, counters, accept)
        return Response(page, headers={"Content-Type": content_type})

    @router.get("/metrics/engine", responses=_PAGES)
    async def engine_metrics() -> Response:
        """Return the engines' own metrics, each series with its profile as a label."""
        pages = await box.engine_pages()
        page = await asyncio.to_thread(render_engines, pages)
        return Response(page, headers={"Content-Type": _TEXT})

    return router


def render_engines(pages: EnginePages | None) -> bytes:
    """Return the page of the engines; None: the supervisor does not answer."""
    families = MetricFamilies()
    families.add(SOURCE_UP, pages is not None, "supervisor")
    if pages is None:
        return encode(families, None)[1]
    merged = merge(pages.texts)
    for profile, state in sorted(pages.states.items()):
        families.add(ENGINE_PAGE, 1, profile, state)
        families.add(ENGINE_LINES_DROPPED, merged.dropped.get(profile), profile)
    return encode(families, None)[1] + merged.render().encode(errors="replace")
