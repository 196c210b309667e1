"""Families of metrics, in the classes of the Prometheus client: of box and profiles, of probes and alerts, of requests."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, assert_never

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from appliance.model.alerts import Severity
from appliance.model.status import (
    PROFILE_STATES,
    VERDICT_STATES,
    GpuRow,
    ProfileRow,
    StatusDocument,
)
from appliance.model.words import Mark
from appliance.status.speed_figures import DECODE, PREFILL, speed_of
from appliance.web.metrics import table
from appliance.web.metrics.table import METRICS, Metric, MetricKind
from appliance.wire.json_values import (
    Json,
    number_in,
    object_in,
    objects_in,
    text_in,
    texts_in,
)

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


FOREIGN: Final = "foreign processes"
"""Owner of memory that no profile holds; with a space, which no name of a profile has."""
UNATTRIBUTED: Final = "no process"


def add_box(families: MetricFamilies, status: StatusDocument) -> None:
    """Add the metrics of a status document."""
    families.add_choice(table.VERDICT, VERDICT_STATES, status.verdict.state)
    families.add(table.HOLD, status.hold is not None)
    families.add(table.OPERATION_RUNNING, status.operation is not None)
    if status.memory is not None:
        families.add(table.RAM_TOTAL, status.memory.ram_total_bytes)
        families.add(table.RAM_AVAILABLE, status.memory.ram_available_bytes)
        for gpu in status.memory.gpus:
            _add_gpu_memory(families, gpu)
    for profile in status.profiles:
        _add_profile(families, profile)
    for row in () if status.gateway is None else status.gateway.profiles:
        if row.engine is not None:
            families.add(table.KV_CACHE_USAGE, row.engine.kv_cache, row.name)
            families.add(table.ENGINE_RUNNING, row.engine.running, row.name)
            families.add(table.ENGINE_WAITING, row.engine.queued, row.name)


def _add_profile(families: MetricFamilies, profile: ProfileRow) -> None:
    name, state, memory = profile.name, profile.state, profile.memory
    families.add_choice(table.PROFILE_STATE, PROFILE_STATES, state, name)
    if profile.mark:
        families.add_choice(table.PROFILE_MARK, tuple(Mark), profile.mark, name)
    families.add(table.PROFILE_COMMITTED, profile.committed, name)
    families.add(table.PROFILE_UPTIME, profile.uptime_s, name)
    if state in {"serving", "unresponsive"}:
        families.add(table.PROFILE_STALLED, profile.stall is not None, name)
    families.add(table.PROFILE_RAM, None if memory is None else memory.ram_bytes, name)


def _add_gpu_memory(families: MetricFamilies, gpu: GpuRow) -> None:
    name = str(gpu.index)
    families.add(table.GPU_MEMORY_TOTAL, gpu.total_bytes, name)
    held: dict[str, float] = {}
    for holder in gpu.holders or ():
        if holder.held_bytes is not None:
            owner = holder.profile or FOREIGN
            held[owner] = held.get(owner, 0.0) + holder.held_bytes
    for owner, held_bytes in held.items():
        families.add(table.GPU_MEMORY_USED, held_bytes, name, owner)
    families.add(table.GPU_MEMORY_USED, gpu.unattributed_bytes, name, UNATTRIBUTED)


_MEGAHERTZ: Final = 1e6


def add_health(families: MetricFamilies, speeds: Json, unix_s: float) -> None:
    """Add the metrics of an answer to `speeds`.

    Args:
        families: Takes them.
        speeds: The answer.
        unix_s: Time of the answer.
    """
    for profile, report in rows_in(speeds, "profiles"):
        _add_speed(families, profile, report)
    section = object_in(speeds, "alerts")
    if "alerts" in section:
        _add_alerts(families, section)
        _add_delivery(families, object_in(section, "delivery"), unix_s)


def _add_speed(families: MetricFamilies, profile: str, report: Json) -> None:
    row = speed_of(report)
    decode, prefill = row.of(DECODE), row.of(PREFILL)
    if decode is not None:
        families.add(table.PROBE_DECODE, decode.rate, profile)
        families.add(table.PROBE_BASELINE, decode.baseline, profile)
        families.add(table.PROBE_BAND, decode.band, profile)
        families.add(table.PROBE_REGRESSED, decode.is_lost, profile, DECODE)
    if prefill is not None:
        families.add(table.PROBE_PREFILL, prefill.rate, profile)
        families.add(table.PROBE_PREFILL_BASELINE, prefill.baseline, profile)
        families.add(table.PROBE_REGRESSED, prefill.is_lost, profile, PREFILL)
    families.add(table.PROBE_FIRST_TOKEN, row.ttft_s, profile)
    families.add(table.PROBE_LAST_SUCCESS, row.last_valid_unix_s, profile)
    families.add(table.QUALITY, row.quality_pass_rate, profile)


def _add_alerts(families: MetricFamilies, section: Json) -> None:
    firing = dict.fromkeys(Severity, 0)
    least = Severity.CRITICAL
    for alert in objects_in(section, "alerts"):
        word = text_in(alert, "severity")
        if word in firing and number_in(alert, "ended_unix_s") is None:
            least = Severity(word)
            firing[least] += 1
    # Those that fire come first, and of them the most severe, so that those without room are no more severe than the last.
    firing[least] += round(number_in(section, "left_off") or 0)
    for severity, count in firing.items():
        families.add(table.ALERTS_FIRING, count, severity)
    families.add(table.SILENCES, len(objects_in(section, "silences")))


def _add_delivery(families: MetricFamilies, delivery: Json, unix_s: float) -> None:
    if not delivery:
        return
    families.add(table.OUTBOX_OLDEST, number_in(delivery, "oldest_s") or 0.0)
    families.add(table.OUTBOX_WAITING, number_in(delivery, "waiting"))
    families.add(table.OUTBOX_DEAD, number_in(delivery, "dead"))
    for target, outcomes in rows_in(delivery, "attempts"):
        for outcome in outcomes:
            families.add(table.NOTIFICATIONS, number_in(outcomes, outcome), target, outcome)
    age_s = number_in(delivery, "heartbeat_s")
    families.add(table.HEARTBEAT, None if age_s is None else unix_s - age_s)


def add_gpus(families: MetricFamilies, gpus: Json) -> None:
    """Add the metrics of the supervisor's answer to `gpus`."""
    for health in objects_in(gpus, "health"):
        if (index := number_in(health, "index")) is None:
            continue
        gpu = f"{index:.0f}"
        families.add(table.GPU_INFO, 1, gpu, text_in(health, "uuid"), text_in(health, "name"))
        families.add(table.GPU_OK, text_in(health, "state") == "ok", gpu)
        families.add(table.GPU_BUSY, number_in(health, "busy_share"), gpu)
        families.add(table.GPU_ECC_ERRORS, number_in(health, "uncorrected_errors"), gpu)
    for sample in objects_in(gpus, "gpus"):
        if (index := number_in(sample, "index")) is None:
            continue
        gpu, evidence = f"{index:.0f}", object_in(sample, "evidence")
        families.add(table.GPU_ENERGY, number_in(evidence, "energy_j"), gpu)
        families.add(table.GPU_POWER, number_in(evidence, "power_w"), gpu)
        families.add(table.GPU_TEMPERATURE, number_in(evidence, "temperature_c"), gpu)
        clock_mhz = number_in(evidence, "sm_clock_mhz")
        families.add(table.GPU_CLOCK, None if clock_mhz is None else clock_mhz * _MEGAHERTZ, gpu)
        for reason in texts_in(evidence, "throttle_reasons"):
            families.add(table.GPU_THROTTLED, 1, gpu, reason)


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
