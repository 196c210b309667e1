"""Table of the metrics of the box: names, labels and what they count.

The page of metrics, its reference in the documentation and the tests of dashboard and rules are made from it.
Where engines have a name for a quantity, its end is used: ``vllm:kv_cache_usage_perc`` and its kin.

Labels have few values: names of profiles, targets and GPUs, which an administrator gives, and words of ours.

``python -m appliance.web.metrics.table`` writes the table into docs/reference/metrics.md; the rest of that page is written by
hand, and a test fails while the table is not what this would write.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final


class MetricKind(StrEnum):
    """Type of a metric in Prometheus's text format."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric: a family of time series."""

    name: str
    """Name as queries have it; of a counter with its ending ``_total``."""
    kind: MetricKind
    help: str
    """Sentence for people, with the unit."""
    labels: Sequence[str] = ()


METRICS: Final[dict[str, Metric]] = {}
"""Every metric, by name, in the order of the page."""


def _add(kind: MetricKind, name: str, text: str, *labels: str) -> Metric:
    metric = METRICS[name] = Metric(name=name, kind=kind, help=text, labels=labels)
    return metric


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return _add(MetricKind.GAUGE, name, text, *labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return _add(MetricKind.COUNTER, name, text, *labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return _add(MetricKind.HISTOGRAM, name, text, *labels)


# --- the box -------------------------------------------------------------------------

BUILD_INFO: Final = _gauge(
    "appliance_build_info", "Release of the web process; always 1.", "version"
)
SOURCE_UP: Final = _gauge(
    "appliance_source_up",
    "Whether a daemon answers; the metrics made from its figures are absent while it does not.",
    "source",
)
VERDICT: Final = _gauge(
    "appliance_verdict", "Verdict on the box: 1 for the state that it is in, else 0.", "state"
)
HOLD: Final = _gauge("appliance_hold", "Whether an operator holds the GPUs for other work.")
OPERATION_RUNNING: Final = _gauge(
    "appliance_operation_running", "Whether an operation runs, such as a switch."
)
RAM_TOTAL: Final = _gauge("appliance_ram_total_bytes", "Main memory of the machine in bytes.")
RAM_AVAILABLE: Final = _gauge(
    "appliance_ram_available_bytes",
    "Main memory in bytes that a new program can have without swapping.",
)

# --- profiles ------------------------------------------------------------------------

PROFILE_STATE: Final = _gauge(
    "appliance_profile_state",
    "State of a profile: 1 for the state that it is in, else 0.",
    "profile",
    "state",
)
PROFILE_MARK: Final = _gauge(
    "appliance_profile_mark",
    "Mark of a profile, which decides who is told: 1 for its mark, else 0.",
    "profile",
    "mark",
)
PROFILE_COMMITTED: Final = _gauge(
    "appliance_profile_committed", "Whether a boot starts the profile.", "profile"
)
PROFILE_UPTIME: Final = _gauge(
    "appliance_profile_uptime_seconds",
    "Time in seconds for which a profile has been ready; absent while it is not.",
    "profile",
)
PROFILE_STALLED: Final = _gauge(
    "appliance_profile_stalled",
    "Whether the engine of a profile that serves has requests and makes no progress.",
    "profile",
)
PROFILE_RAM: Final = _gauge(
    "appliance_profile_ram_bytes", "Resident memory of a profile's processes in bytes.", "profile"
)

# --- operations ----------------------------------------------------------------------

SWITCHES: Final = _counter(
    "appliance_switches_total",
    "Number of switches that have ended since the supervisor's start, by result.",
    "result",
)
OPERATIONS: Final = _counter(
    "appliance_operations_total",
    "Number of operations that have ended since the supervisor's start, by kind and result; repairs after"
    " crashes are of the kind repair.",
    "kind",
    "result",
)
SWITCH_DURATION: Final = _histogram(
    "appliance_switch_duration_seconds",
    "Duration of each phase of switches in seconds; phases of a roll-back begin with roll-back.",
    "phase",
)

# --- requests ------------------------------------------------------------------------

GATEWAY_UP: Final = _gauge("appliance_gateway_up", "Whether the gateway answers the supervisor.")
REQUESTS: Final = _counter(
    "appliance_requests_total",
    "Number of requests to a profile since the gateway's start, with those in flight and held.",
    "profile",
)
REQUEST_ERRORS: Final = _counter(
    "appliance_request_errors_total",
    "Number of requests that were answered with a status from 500 on, or cut.",
    "profile",
)
REQUESTS_ABANDONED: Final = _counter(
    "appliance_requests_abandoned_total",
    "Number of requests whose client closed the connection before the end.",
    "profile",
)
REQUESTS_RETRIED: Final = _counter(
    "appliance_requests_retried_total",
    "Always 0, since a request is sent to an engine once; of earlier releases.",
    "profile",
)
REQUESTS_IN_FLIGHT: Final = _gauge(
    "appliance_requests_in_flight",
    "Number of requests that an engine has and has not finished.",
    "profile",
)
REQUESTS_HELD: Final = _gauge(
    "appliance_requests_held",
    "Number of requests that wait in the gateway, for a switch, a load or a restart.",
    "profile",
)
QUIET: Final = _gauge(
    "appliance_engine_quiet_seconds",
    "Time in seconds for which an engine has owed bytes and sent none; absent while it owes none.",
    "profile",
)
TIME_TO_FIRST_TOKEN: Final = _histogram(
    "appliance_time_to_first_token_seconds",
    "Time in seconds from a request's arrival, its wait in the gateway included, to the first piece of its"
    " stream.",
    "profile",
)
INTER_TOKEN_LATENCY: Final = _histogram(
    "appliance_inter_token_latency_seconds",
    "Time in seconds between two pieces of a stream; one less than a tenth below a bound may be counted under"
    " the next bound.",
    "profile",
)
E2E_LATENCY: Final = _histogram(
    "appliance_e2e_request_latency_seconds",
    "Time in seconds from a request's arrival to the last byte of its response, of successful ones.",
    "profile",
)
PROMPT_TOKENS: Final = _counter(
    "appliance_prompt_tokens_total",
    "Number of prompt tokens, as the responses report them.",
    "profile",
)
GENERATION_TOKENS: Final = _counter(
    "appliance_generation_tokens_total",
    "Number of generated tokens, as the responses report them.",
    "profile",
)
PREFIX_CACHE_QUERIES: Final = _counter(
    "appliance_prefix_cache_queries_total",
    "Number of prompt tokens that were looked up in the prefix cache: by the engine's own count since its"
    " start, or where it has none, of the responses that report how many of them were cached.",
    "profile",
)
PREFIX_CACHE_HITS: Final = _counter(
    "appliance_prefix_cache_hits_total",
    "Number of those prompt tokens that the engine's prefix cache held.",
    "profile",
)
RESPONSE_BYTES: Final = _counter(
    "appliance_response_bytes_total", "Size of the bodies of responses in bytes.", "profile"
)
KV_CACHE_USAGE: Final = _gauge(
    "appliance_kv_cache_usage_ratio",
    "Share of an engine's KV cache that is in use, 0 to 1, as the engine reports it.",
    "profile",
)
ENGINE_RUNNING: Final = _gauge(
    "appliance_num_requests_running",
    "Number of requests that an engine works on, as the engine reports it.",
    "profile",
)
ENGINE_WAITING: Final = _gauge(
    "appliance_num_requests_waiting",
    "Number of requests that wait inside an engine, as the engine reports it.",
    "profile",
)

# --- probes --------------------------------------------------------------------------

PROBE_DECODE: Final = _gauge(
    "appliance_probe_decode_tokens_per_second",
    "Speed of decoding in the last probe that measured, in tokens a second.",
    "profile",
)
PROBE_BASELINE: Final = _gauge(
    "appliance_probe_baseline_tokens_per_second",
    "Accepted speed of decoding in tokens a second.",
    "profile",
)
PROBE_BAND: Final = _gauge(
    "appliance_probe_band_tokens_per_second",
    "Distance from the accepted speed of decoding, either way, within which single probes are usual, in tokens"
    " a second.",
    "profile",
)
PROBE_PREFILL: Final = _gauge(
    "appliance_probe_prefill_tokens_per_second",
    "Speed of prefill in the last probe that measured, in prompt tokens a second.",
    "profile",
)
PROBE_PREFILL_BASELINE: Final = _gauge(
    "appliance_probe_prefill_baseline_tokens_per_second",
    "Accepted speed of prefill in prompt tokens a second.",
    "profile",
)
PROBE_REGRESSED: Final = _gauge(
    "appliance_probe_regressed",
    "Whether a lasting loss of speed is reported, for decode and prefill.",
    "profile",
    "series",
)
PROBE_FIRST_TOKEN: Final = _gauge(
    "appliance_probe_time_to_first_token_seconds",
    "Time to the first token in the last probe that measured, in seconds.",
    "profile",
)
PROBE_LAST_SUCCESS: Final = _gauge(
    "appliance_probe_last_success_timestamp_seconds",
    "Time of the last probe that measured, in seconds since 1970.",
    "profile",
)
QUALITY: Final = _gauge(
    "appliance_quality_pass_ratio", "Share of canaries that passed lately, 0 to 1.", "profile"
)

# --- GPUs ----------------------------------------------------------------------------

GPU_INFO: Final = _gauge(
    "appliance_gpu_info", "Model of a GPU, and its UUID; always 1.", "gpu", "uuid", "name"
)
GPU_OK: Final = _gauge("appliance_gpu_ok", "Whether a GPU works, by its driver's word.", "gpu")
GPU_MEMORY_TOTAL: Final = _gauge(
    "appliance_gpu_memory_total_bytes", "Memory of a GPU in bytes.", "gpu"
)
GPU_MEMORY_USED: Final = _gauge(
    "appliance_gpu_memory_used_bytes",
    "Memory of a GPU in bytes that an owner holds: a profile, foreign processes, or what the driver attributes"
    " to no process.",
    "gpu",
    "owner",
)
GPU_ENERGY: Final = _counter(
    "appliance_gpu_energy_joules_total",
    "Energy in joules that a GPU has used since its driver was loaded.",
    "gpu",
)
GPU_POWER: Final = _gauge("appliance_gpu_power_watts", "Power of a GPU in watts.", "gpu")
GPU_TEMPERATURE: Final = _gauge(
    "appliance_gpu_temperature_celsius", "Temperature of a GPU in degrees Celsius.", "gpu"
)
GPU_CLOCK: Final = _gauge(
    "appliance_gpu_sm_clock_hertz", "Clock of a GPU's multiprocessors in hertz.", "gpu"
)
GPU_THROTTLED: Final = _gauge(
    "appliance_gpu_throttled",
    "Whether the driver limits a GPU's clocks for a reason: 1 for each reason that holds now.",
    "gpu",
    "reason",
)
GPU_BUSY: Final = _gauge(
    "appliance_gpu_busy_ratio",
    "Share of the last moments in which a kernel ran on a GPU, 0 to 1.",
    "gpu",
)
GPU_ECC_ERRORS: Final = _counter(
    "appliance_gpu_uncorrected_errors_total",
    "Number of uncorrectable memory errors in a GPU's lifetime.",
    "gpu",
)

# --- alerts --------------------------------------------------------------------------

ALERTS_FIRING: Final = _gauge(
    "appliance_alerts_firing", "Number of alerts that fire, by severity.", "severity"
)
SILENCES: Final = _gauge("appliance_silences", "Number of silences in force.")
OUTBOX_OLDEST: Final = _gauge(
    "appliance_outbox_oldest_seconds",
    "Time in seconds for which the oldest message could have been sent; 0: none waits.",
)
OUTBOX_WAITING: Final = _gauge("appliance_outbox_waiting", "Number of messages that wait.")
OUTBOX_DEAD: Final = _gauge(
    "appliance_outbox_dead", "Number of messages that were given up in the last days."
)
NOTIFICATIONS: Final = _counter(
    "appliance_notifications_total",
    "Number of attempts to send a message to a target since the agent's start: sent, retry (later again) or"
    " refused (for good).",
    "target",
    "result",
)
HEARTBEAT: Final = _gauge(
    "appliance_heartbeat_last_success_timestamp_seconds",
    "Time of the last sign of life that was taken outside, in seconds since 1970.",
)

# --- the engines' own pages ----------------------------------------------------------

ENGINE_PAGE: Final = _gauge(
    "appliance_engine_page",
    "Page of metrics of an engine, on /metrics/engine: 1 for what became of it: complete, truncated after a"
    " MiB, absent, or left out for want of room.",
    "profile",
    "state",
)
ENGINE_LINES_DROPPED: Final = _gauge(
    "appliance_engine_lines_dropped",
    "Number of lines of an engine's page, on /metrics/engine, that are not in the text format or repeat a"
    " series.",
    "profile",
)

ON_ENGINE_PAGE: Final = frozenset({ENGINE_PAGE.name, ENGINE_LINES_DROPPED.name})
"""Metrics that are on /metrics/engine, beside the engines' own."""


PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
BEGIN: Final = (
    "<!-- Generated by python -m appliance.web.metrics.table: change"
    " appliance/web/metrics/table.py instead. -->\n"
)
END: Final = "<!-- End of what is generated. -->\n"
_HEAD: Final = "| Metric | Type | Labels | What it is |\n| --- | --- | --- | --- |\n"


def table() -> str:
    """Return the table of all metrics."""
    return _HEAD + "".join(map(_row, METRICS.values()))


def with_table(page: str) -> str:
    """Return a page with its table renewed. Raises `ValueError`: the page has no place for it."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError("the page has no place for the table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _row(metric: Metric) -> str:
    ending = "_bucket, _sum, _count" if metric.kind is MetricKind.HISTOGRAM else ""
    kind = f"{metric.kind} ({ending})" if ending else metric.kind.value
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {kind} | {labels} | {metric.help} |\n"


def main() -> int:
    """Write the table into the page of the checkout that this module is in."""
    PAGE.write_text(with_table(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
