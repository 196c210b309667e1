"""Texts about alerts, silences, planned windows, delivery and heartbeat."""

from __future__ import annotations

import time

from appliance.model.amounts import age
from appliance.presentation.clock_times import local_minute
from appliance.wire.json_values import Json, number_in, object_in, text_in, texts_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from appliance.model.status import AlertSection

_WITHIN_DAY_S: Final = 86_400.0


def subject_name(key: str) -> str:
    """Return the name of a subject for people: ``genesis``, ``GPU GPU-1a2b…``, ``the box``."""
    kind, _, name = key.partition(":")
    if not name:
        return "the box"
    return f"GPU {name}" if kind == "gpu" else name


def moment(unix_s: float, now: float) -> str:
    """Return a time by the reader's clock, with the day if it is not of the last hours: ``04:10``."""
    if abs(now - unix_s) < _WITHIN_DAY_S:
        return time.strftime("%H:%M", time.localtime(unix_s))
    return local_minute(unix_s)


def alert_text(alert: Json, now: float) -> str:
    """Return an alert without its subject: ``#A17 slow: 27 tok/s (was 41), since 04:10 (35 min), sent 04:12``.

    One that comes and goes says so, and while its subject is well since when:
    ``#A4 comes and goes: down: restarting, serves again since 03:46 (10 min), sent 03:44``.
    """
    since = number_in(alert, "since_unix_s") or number_in(alert, "fired_unix_s")
    ended = number_in(alert, "ended_unix_s")
    flaps = "comes and goes: " if alert.get("flapping") is True else ""
    fact = text_in(alert, "fact") or text_in(alert, "rule")
    parts = [f"#{text_in(alert, 'alert')} {flaps}{fact}"]
    if ended is not None:
        over = text_in(alert, "over") or "well"
        parts.append(f"{over} since {moment(ended, now)} ({age(now - ended)})")
    elif since is not None:
        parts.append(f"since {moment(since, now)} ({age(now - since)})")
    return ", ".join([*parts, _delivery_of(alert, now)])


def alert_severity(alert: Json) -> str:
    """Return the severity that an alert has now: ``info`` while its subject is well."""
    return "info" if number_in(alert, "ended_unix_s") is not None else text_in(alert, "severity")


def alert_glyph(alert: Json) -> str:
    """Return the sign before an alert: ``≈`` where it comes and goes."""
    return "≈" if alert.get("flapping") is True else "▼"


def _delivery_of(alert: Json, now: float) -> str:
    """Return whether people know of an alert, and why they do not."""
    if by := text_in(alert, "acked_by"):
        return f"acked by {by}"
    sent = number_in(alert, "sent_unix_s")
    if sent is not None:
        return f"sent {moment(sent, now)}"
    return text_in(alert, "reason") or text_in(alert, "gate") or "not sent"


def alerts_of(section: AlertSection | None, name: str) -> list[Json]:
    """Return the alerts on one profile."""
    rows = [] if section is None else section.alerts
    return [row for row in rows if text_in(row, "subject") == f"profile:{name}"]


def silence_text(silence: Json, now: float) -> str:
    """Return a silence: ``nas is silent until 06:10, by ana: its disks are replaced``."""
    subject = object_in(silence, "subject")
    name = subject_name(f"{text_in(subject, 'kind')}:{text_in(subject, 'name')}")
    until = moment(number_in(silence, "until_unix_s") or 0.0, now)
    by, reason = text_in(silence, "by"), text_in(silence, "reason")
    return f"{name} is silent until {until}, by {by}" + (f": {reason}" if reason else "")


def window_text(window: Json) -> str:
    """Return a planned window: ``backup  mon, tue  02:00 for 90 min  nas  (its disks are busy)``."""
    days = ", ".join(texts_in(window, "days")) or "every day"
    minutes = number_in(window, "minutes") or 0.0
    subjects = ", ".join(texts_in(window, "subjects")) or "everything"
    reason = text_in(window, "reason")
    text = f"{text_in(window, 'name')}  {days}  {text_in(window, 'begin')} for {minutes:.0f} min"
    return f"{text}  {subjects}" + (f"  ({reason})" if reason else "")


def delivery_line(delivery: Json) -> str:
    """Return the line on heartbeat and outbox: ``heartbeat ok 14 s ago · outbox empty``."""
    return f"{_heartbeat(delivery)} · {_outbox(delivery)}"


def _heartbeat(delivery: Json) -> str:
    if delivery.get("enabled") is False:
        return "nobody is told of alerts: alerts.enabled is false"
    is_set = delivery.get("heartbeat_set") is True
    beat_s = number_in(delivery, "heartbeat_s")
    when = "" if beat_s is None else f" {age(beat_s)} ago"
    beat = f"heartbeat ok{when}"
    if trouble := text_in(delivery, "heartbeat_trouble"):
        beat = f"{trouble} (last heartbeat{when or ': none'})"
    if not number_in(delivery, "targets"):
        untold = "nobody is told of alerts: sudo appliance target add NAME"
        return f"{untold} · {beat}" if is_set else untold
    if not is_set and not trouble:
        return "nobody would notice if this box died: sudo appliance target heartbeat"
    return beat


def _outbox(delivery: Json) -> str:
    waiting, dead = (int(number_in(delivery, key) or 0) for key in ("waiting", "dead"))
    oldest_s = number_in(delivery, "oldest_s")
    old = "" if oldest_s is None else f", the oldest for {age(oldest_s)}"
    parts = [f"outbox: {waiting} waiting{old}" if waiting else "outbox empty"]
    parts += [f"{dead} given up"] if dead else []
    parts += [trouble] if (trouble := text_in(delivery, "trouble")) else []
    return ", ".join(parts)
