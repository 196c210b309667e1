"""Families of metrics under construction, in the classes of the Prometheus client."""

from collections.abc import Sequence
from itertools import accumulate
from typing import assert_never

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from appliance.web.metrics.metric_table import METRICS, Metric, MetricKind
from appliance.wire.json_values import Json, number_in, object_in

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily


class MetricFamilies:
    """Families of metrics, to which samples are added. A value that is None is not known: it is absent."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def add(self, metric: Metric, value: float | None, *labels: str) -> None:
        """Add a sample."""
        if value is None:
            return
        family = self._families.get(metric.name) or self._begin(metric)
        if not isinstance(family, HistogramMetricFamily):
            family.add_metric(labels, value)

    def add_choice(self, metric: Metric, choices: Sequence[str], chosen: str, *labels: str) -> None:
        """Add 1 for one of several words and 0 for the others; one of a later release is added too."""
        for choice in choices if chosen in choices else (*choices, chosen):
            self.add(metric, choice == chosen, *labels, choice)

    def add_histogram(
        self, metric: Metric, bounds: Sequence[float], histogram: Json, *labels: str
    ) -> None:
        """Add a histogram of a document, with ``counts`` and ``sum_s``; one that makes no sense is absent."""
        counts, total = histogram.get("counts"), number_in(histogram, "sum_s")
        if not isinstance(counts, list) or len(counts) != len(bounds) + 1 or total is None:
            return
        if not all(type(count) is int and count >= 0 for count in counts):
            return
        ends = [*(repr(float(bound)) for bound in bounds), "+Inf"]
        buckets = list(zip(ends, accumulate(counts), strict=True))
        family = self._families.get(metric.name) or self._begin(metric)
        if isinstance(family, HistogramMetricFamily):
            family.add_metric(labels, buckets, total)

    def _begin(self, metric: Metric) -> Family:
        family: Family
        match metric.kind:
            case MetricKind.GAUGE:
                family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
            case MetricKind.COUNTER:
                family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            case MetricKind.HISTOGRAM:
                family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
            case never:
                assert_never(never)
        self._families[metric.name] = family
        return family

    def collect(self) -> Sequence[Family]:
        """Return the families in the order of the table."""
        return [self._families[name] for name in METRICS if name in self._families]


def bounds_in(source: Json, key: str) -> Sequence[float]:
    """Return the upper bounds of a histogram; empty: there are none that make sense."""
    bounds = source.get(key)
    numbers = bounds if isinstance(bounds, list) else []
    if not all(isinstance(bound, int | float) for bound in numbers):
        return ()
    return numbers if numbers == sorted(set(numbers)) else ()


def rows_in(source: Json, key: str) -> Sequence[tuple[str, Json]]:
    """Return the objects of an object, by name."""
    found = object_in(source, key)
    return [(name, row) for name, row in found.items() if isinstance(row, dict)]
