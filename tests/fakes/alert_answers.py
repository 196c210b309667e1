"""Answers of a health agent about alerts, as the command line sees them."""

from collections.abc import Mapping, Sequence

from appliance.wire.conversation import ResultEvent

Row = Mapping[str, object]


def alert_answer(at_unix_s: float, **more: object) -> dict[str, object]:
    """Return the row of an alert that fired at a time and was sent two minutes later."""
    return {
        "alert": "A17",
        "subject": "profile:genesis",
        "rule": "slow",
        "episode": 1,
        "severity": "warning",
        "fact": "slow: 27.1 tok/s (was 41.0)",
        "details": ["4 probes, −34 %"],  # noqa: RUF001 - a minus sign
        "likely": "11 of 49 layers on the CPU",
        "command": "appliance status genesis",
        "since_unix_s": at_unix_s,
        "fired_unix_s": at_unix_s,
        "ended_unix_s": None,
        "over": "",
        "sent_unix_s": at_unix_s + 120,
        "acked_by": "",
        "acked_unix_s": None,
        "gate": None,
        "reason": "",
        "flapping": False,
        **more,
    }


def delivery_answer(**more: object) -> dict[str, object]:
    """Return the figures of a delivery that works."""
    return {
        "enabled": True,
        "targets": 1,
        "waiting": 0,
        "dead": 0,
        "oldest_s": None,
        "trouble": "",
        "heartbeat_set": True,
        "heartbeat_s": 14.0,
        "heartbeat_trouble": "",
        "attempts": {"phone": {"sent": 2, "retry": 0, "refused": 0}},
        **more,
    }


def alerts_answer(
    alerts: Sequence[Row] = (),
    *,
    silences: Sequence[Row] = (),
    windows: Sequence[Row] = (),
    **delivery: object,
) -> dict[str, object]:
    """Return what the agent answers to `alerts` with `list`."""
    return {
        "alerts": list(alerts),
        "silences": list(silences),
        "windows": list(windows),
        "delivery": delivery_answer(**delivery),
    }


def speeds_with_alerts(answer: Row) -> ResultEvent:
    """Return the answer to `speeds` of an agent that keeps alerts."""
    return ResultEvent(details={"profiles": {}, "trouble": [], "alerts": answer})
