"""Row of the gateway in the status document: its measurements, and the load of engines."""

from collections.abc import Mapping
from typing import Final, Literal

from appliance.model.gateway import EngineLoad
from appliance.model.status import (
    EngineRow,
    GatewayRow,
    ListeningRow,
    Percentiles,
    TrafficRow,
)
from appliance.wire.json_values import texts_in

_NOT_SAID: Final = EngineLoad()
_Tls = Literal["off", "on", "waiting", "renewed"]
_TLS: Final[Mapping[object, _Tls]] = {"on": "on", "waiting": "waiting", "renewed": "renewed"}


def gateway_row(
    stats: Mapping[str, object] | None,
    loads: Mapping[str, EngineLoad | None],
    *,
    age_s: float,
    loads_age_s: float | None,
) -> GatewayRow:
    """Return the gateway's row.

    Args:
        stats: What the gateway answered; None: nothing.
        loads: What the engines that serve say about themselves, by profile.
        age_s: How long ago the gateway was asked.
        loads_age_s: How long ago the engines were asked; None: not lately.
    """
    told = stats or {}
    profiles, keys = _objects(told, "profiles"), _objects(told, "keys")
    return GatewayRow(
        state="down" if stats is None else "up",
        uptime_s=_number(told, "uptime_s"),
        sampled_age_s=round(age_s, 1),
        engines_age_s=None if loads_age_s is None else round(loads_age_s, 1),
        listening=_listening(told.get("listening")),
        profiles=[
            _traffic(name, profiles.get(name, {}), loads.get(name))
            for name in sorted({*profiles, *loads})
        ],
        keys=[_traffic(name, figures, None) for name, figures in sorted(keys.items())],
    )


def _listening(found: object) -> ListeningRow | None:
    if not isinstance(found, dict):
        return None  # a gateway of an older release
    return ListeningRow(
        addresses=list(texts_in(found, "addresses")),
        absent=list(texts_in(found, "absent")),
        tls=_TLS.get(found.get("tls"), "off"),
        keys=_whole(found, "keys"),
        closed=found.get("closed") is True,
        engine_keys=list(texts_in(found, "engine_keys")),
    )


def _traffic(name: str, figures: Mapping[str, object], load: EngineLoad | None) -> TrafficRow:
    return TrafficRow(
        name=name,
        requests=_whole(figures, "requests"),
        in_flight=_whole(figures, "in_flight"),
        queued=_whole(figures, "queued"),
        quiet_s=_number(figures, "quiet_s"),
        errors=_whole(figures, "errors"),
        gone=_whole(figures, "gone"),
        retried=_whole(figures, "retried"),
        bytes=_whole(figures, "bytes"),
        output_tokens=_whole(figures, "output_tokens"),
        decoded_tokens=_whole(figures, "decoded_tokens"),
        decode_s=_number(figures, "decode_s") or 0.0,
        prompt_tokens=_whole(figures, "prompt_tokens"),
        cached_tokens=_whole(figures, "cached_tokens"),
        tok_s=_number(figures, "tok_s"),
        wait_ms=_percentiles(figures, "wait_ms"),
        ttft_ms=_percentiles(figures, "ttft_ms"),
        gap_ms=_percentiles(figures, "gap_ms"),
        engine=_engine(load),
    )


def _engine(load: EngineLoad | None) -> EngineRow | None:
    if load is None or load == _NOT_SAID:
        return None
    return EngineRow(running=load.running, queued=load.queued, kv_cache=load.kv_cache)


def _objects(source: Mapping[str, object], key: str) -> dict[str, Mapping[str, object]]:
    """Return objects by name; another release may have left them out."""
    found = source.get(key)
    pairs = found.items() if isinstance(found, dict) else ()
    return {str(name): value for name, value in pairs if isinstance(value, dict)}


def _percentiles(figures: Mapping[str, object], key: str) -> Percentiles | None:
    found = figures.get(key)
    if not isinstance(found, dict):
        return None
    p50, p99 = _number(found, "p50"), _number(found, "p99")
    return None if p50 is None or p99 is None else Percentiles(p50=p50, p99=p99)


def _whole(figures: Mapping[str, object], key: str) -> int:
    value = figures.get(key)
    return value if isinstance(value, int) else 0


def _number(figures: Mapping[str, object], key: str) -> float | None:
    value = figures.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value)
