"""Routes of the metrics: GET /metrics."""

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Info, generate_latest
from starlette.responses import Response

from appliance import __version__
from appliance.web.box_documents import BoxSource


def metrics_router(_box: BoxSource) -> APIRouter:
    """Return the router of the metrics.

    Args:
        _box: Where the documents come from.
    """
    router = APIRouter()
    registry = CollectorRegistry(auto_describe=False)
    build = Info("appliance_build", "Release of the appliance.", registry=registry)
    build.info({"version": __version__})

    @router.get("/metrics", tags=["metrics"])
    async def metrics() -> Response:
        """Return the metrics of the box in the text format of Prometheus."""
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    return router
