"""Metrics of probes, alerts and their delivery, from the health agent's answer to `speeds`; and of GPUs."""

from typing import Final

from appliance.model.alerts import Severity
from appliance.status.speed_row import DECODE, PREFILL, speed_row
from appliance.web.metrics import metric_table as table
from appliance.web.metrics.metric_families import MetricFamilies, rows_in
from appliance.wire.json_values import (
    Json,
    number_in,
    object_in,
    objects_in,
    text_in,
    texts_in,
)

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
    row = speed_row(report)
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
    families.add(table.QUALITY, row.quality, profile)


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
