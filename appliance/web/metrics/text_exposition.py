"""Page of metrics: the box in Prometheus's text format, or OpenMetrics where the collector asks for it."""

from collections.abc import Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client import Metric as MetricFamily
from prometheus_client.exposition import choose_encoder

from appliance import __version__
from appliance.web.box_documents import STALE_S, BoxDocuments, Document
from appliance.web.metrics import metric_table as table
from appliance.web.metrics.box_metrics import add_box
from appliance.web.metrics.health_metrics import add_gpus, add_health
from appliance.web.metrics.metric_families import MetricFamilies
from appliance.web.metrics.traffic_metrics import add_traffic

DocumentT = TypeVar("DocumentT")


class _Fixed:
    """Collector of families that are made already."""

    def __init__(self, families: Sequence[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Sequence[MetricFamily]:
        return self._families


def render_box(
    box: BoxDocuments, counters: Document | None, accept: str | None
) -> tuple[str, bytes]:
    """Return the content type and the page.

    Args:
        box: Documents of the box.
        counters: The supervisor's answer to `counters`; None: it has none.
        accept: Header of the collector; None: it sent none.
    """
    return encode(box_families(box, counters), accept)


def encode(families: MetricFamilies, accept: str | None) -> tuple[str, bytes]:
    """Return the content type that a collector takes, and the families in it."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Fixed(families.collect()))
    generate, content_type = choose_encoder(accept or "")
    return content_type, generate(registry)


def box_families(box: BoxDocuments, counters: Document | None) -> MetricFamilies:
    """Return the metrics of the box."""
    families = MetricFamilies()
    families.add(table.BUILD_INFO, 1, __version__)
    status = _fresh(box.status, box.status_age_s)
    speeds = _fresh(box.speeds, box.speeds_age_s)
    gpus = _fresh(box.gpus, box.gpus_age_s)
    for source, document in (("supervisor", status), ("health", speeds)):
        families.add(table.SOURCE_UP, document is not None, source)
    if status is not None:
        add_box(families, box.judged(status))
    if counters is not None:
        add_traffic(families, counters)
    if speeds is not None:
        add_health(families, speeds, box.unix_s - (box.speeds_age_s or 0.0))
    if gpus is not None:
        add_gpus(families, gpus)
    return families


def _fresh(document: DocumentT | None, age_s: float | None) -> DocumentT | None:
    return document if age_s is not None and age_s < STALE_S else None
