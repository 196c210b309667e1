"""Traffic through the gateway, in one line for each profile."""

from __future__ import annotations

from appliance.protocol.json_values import Json, number_in, object_in, objects_in, text_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from appliance.planning.status.document import StatusDocument


def traffic(document: StatusDocument, name: str) -> str:
    """Return the line of profile `name`; empty: no traffic."""
    rows = objects_in(_gateway(document), "profiles")
    row = next((r for r in rows if text_in(r, "name") == name), {})
    parts = [_requests(row), *_speeds(row), *_engine(object_in(row, "engine"))]
    said = " · ".join(part for part in parts if part)
    return f"traffic {said}" if said else ""


def no_gateway(document: StatusDocument) -> Iterable[str]:
    """Return the line that the gateway is down: backends still answer on their own ports."""
    if document["supervisor"]["state"] == "up" and text_in(_gateway(document), "state") == "down":
        yield "no gateway: sudo systemctl start appliance-gateway.socket"


def _gateway(document: Json | StatusDocument) -> Json:
    """Return the gateway's row; empty in the document of an older supervisor."""
    return object_in(document, "gateway")


def _requests(row: Json) -> str:
    total, under_way, waiting, errors = (
        int(number_in(row, key) or 0) for key in ("requests", "in_flight", "queued", "errors")
    )
    if not total:
        return ""
    now = f"{under_way} in flight" + (f", {waiting} waiting" if waiting else "")
    return f"{now}, {total} so far" + (f", {errors} failed" if errors else "")


def _speeds(row: Json) -> Iterable[str]:
    if speed := number_in(row, "tok_s"):
        yield f"{speed:.1f} tok/s"
    if first := number_in(object_in(row, "ttft_ms"), "p50"):
        yield f"TTFT {first / 1000:.2f} s"


def _engine(engine: Json) -> Iterable[str]:
    if queued := number_in(engine, "queued"):
        yield f"{queued:.0f} queued in the engine"
    if cache := number_in(engine, "kv_cache"):
        yield f"KV cache {cache * 100:.0f} %"
