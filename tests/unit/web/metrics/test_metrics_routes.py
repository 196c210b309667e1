"""Routes of the metrics."""

from fastapi import FastAPI

from appliance.web.metrics.metrics_routes import metrics_router
from tests.fakes.fixed_box import FixedBox, browse
from tests.fakes.metric_documents import busy_box, counters_document, engine_pages


def with_metrics(box: FixedBox) -> FastAPI:
    application = FastAPI()
    application.include_router(metrics_router(box))
    return application


async def test_both_pages_are_served_as_a_collector_wants_them() -> None:
    """The box and its engines are two pages, so that each has an interval of its own."""
    box = FixedBox(busy_box(), counters_document(), engine_pages(aeon="x 1\n"))
    async with browse(with_metrics(box)) as web:
        page = await web.get("/metrics")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert 'appliance_requests_total{profile="aeon"} 2.0' in page.text
        strict = await web.get("/metrics", headers={"accept": "application/openmetrics-text"})
        assert strict.headers["content-type"].startswith("application/openmetrics-text")
        assert strict.text.endswith("# EOF\n")
        engines = await web.get("/metrics/engine")
        assert engines.status_code == 200
        assert engines.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert 'x{profile="aeon"} 1' in engines.text
        assert "appliance_requests_total" not in engines.text


async def test_a_box_without_daemons_still_has_pages() -> None:
    """A collector learns that the daemons are away; an error would tell it nothing."""
    async with browse(with_metrics(FixedBox())) as web:
        for path in ("/metrics", "/metrics/engine"):
            page = await web.get(path)
            assert page.status_code == 200
            assert 'appliance_source_up{source="supervisor"} 0.0' in page.text
