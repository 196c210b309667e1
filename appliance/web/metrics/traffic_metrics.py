"""Metrics of requests and operations, from the supervisor's answer to `counters`."""

from typing import Final

from appliance.web.metrics import metric_table as table
from appliance.web.metrics.metric_families import MetricFamilies, bounds_in, rows_in
from appliance.wire.json_values import Json, number_in, object_in

_FIGURES: Final = (
    (table.REQUESTS, "requests"),
    (table.REQUEST_ERRORS, "errors"),
    (table.REQUESTS_ABANDONED, "gone"),
    (table.REQUESTS_RETRIED, "retried"),
    (table.REQUESTS_IN_FLIGHT, "in_flight"),
    (table.REQUESTS_HELD, "queued"),
    (table.QUIET, "quiet_s"),
    (table.PROMPT_TOKENS, "input_tokens"),
    (table.GENERATION_TOKENS, "output_tokens"),
    (table.PREFIX_CACHE_QUERIES, "prompt_tokens"),
    (table.PREFIX_CACHE_HITS, "cached_tokens"),
    (table.RESPONSE_BYTES, "bytes"),
)
"""Metrics of a profile, and the gateway's names for them."""
_HISTOGRAMS: Final = (
    (table.TIME_TO_FIRST_TOKEN, "time_to_first_token"),
    (table.INTER_TOKEN_LATENCY, "inter_token_latency"),
    (table.E2E_LATENCY, "e2e_request_latency"),
)


def add_traffic(families: MetricFamilies, counters: Json) -> None:
    """Add the metrics of an answer to `counters`."""
    gateway = counters.get("gateway")
    families.add(table.GATEWAY_UP, gateway is not None)
    if isinstance(gateway, dict):
        _add_requests(families, gateway)
    _add_operations(families, object_in(counters, "operations"))


def _add_requests(families: MetricFamilies, gateway: Json) -> None:
    bounds = object_in(gateway, "bounds_s")
    for profile, figures in rows_in(gateway, "profiles"):
        for metric, key in _FIGURES:
            families.add(metric, number_in(figures, key), profile)
        histograms = object_in(figures, "histograms")
        for metric, key in _HISTOGRAMS:
            histogram = object_in(histograms, key)
            families.add_histogram(metric, bounds_in(bounds, key), histogram, profile)


def _add_operations(families: MetricFamilies, operations: Json) -> None:
    for kind, outcomes in rows_in(operations, "outcomes"):
        for outcome in outcomes:
            count = number_in(outcomes, outcome)
            families.add(table.OPERATIONS, count, kind, outcome)
            if kind == "switch":
                families.add(table.SWITCHES, count, outcome)
    bounds = bounds_in(operations, "bounds_s")
    for phase, histogram in rows_in(operations, "switch_phases"):
        families.add_histogram(table.SWITCH_DURATION, bounds, histogram, phase)
