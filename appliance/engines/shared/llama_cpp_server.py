"""Code that llama-server and the embedded engine share: both are llama.cpp's own server."""

from collections.abc import Mapping
from typing import Final

from appliance.engines.shared.engine import Metrics
from appliance.engines.shared.probing import Probing, ResponseTimings, count, seconds
from appliance.model.json_reader import decode_json

METRICS: Final = Metrics(
    running=("llamacpp:requests_processing",),
    queued=("llamacpp:requests_deferred",),
    # Gone since 2026, and read where an older build has it; else /slots tells.
    kv_cache=("llamacpp:kv_cache_usage_ratio",),
)


def _exact_length(output_tokens: int, _salt: str) -> Mapping[str, object]:
    return {"n_predict": output_tokens, "ignore_eos": True, "cache_prompt": False}


def timings_in(event: Mapping[str, object]) -> ResponseTimings | None:
    """Return the member ``timings`` of a response's last event (server-task.cpp, result_timings).

    ``predicted_ms`` begins with the first token, and so covers one token fewer than
    ``predicted_n``: since mid-2026 ``predicted_per_token_ms`` divides by as many. The members about
    drafts are left out where nothing was drafted.
    """
    timings = event.get("timings")
    if not isinstance(timings, dict):
        return None
    evaluated, predicted = count(timings.get("prompt_n")), count(timings.get("predicted_n"))
    prefill_s = seconds(timings.get("prompt_ms"))
    decode_s = seconds(timings.get("predicted_ms"))
    if evaluated is None or predicted is None or prefill_s is None or decode_s is None:
        return None
    return ResponseTimings(
        evaluated_tokens=evaluated,
        prefill_s=prefill_s,
        cached_tokens=count(timings.get("cache_n")),
        output_tokens=predicted,
        decode_s=decode_s,
        drafted_tokens=count(timings.get("draft_n", 0)),
        accepted_tokens=count(timings.get("draft_n_accepted", 0)),
    )


PROBING: Final = Probing(
    parameters=_exact_length,
    timings=timings_in,
    piece_parameters={"cache_prompt": True},
    has_metrics=False,
)


def kv_cache_in_slots(slots: str, shares_cache: bool) -> float | None:  # noqa: FBT001 - see KvCachePage
    """Return the share of the context that requests take; None: no slots listed.

    ``n_prompt_tokens`` of a slot also counts what was generated since, and with a cache that all
    requests share each slot has the whole of it as ``n_ctx`` (server-context.cpp, b11549).
    """
    try:
        document = decode_json(slots)
    except ValueError:
        return None
    rows = [row for row in document if isinstance(row, dict)] if isinstance(document, list) else []
    contexts = [_whole(row.get("n_ctx")) for row in rows]
    total = max(contexts, default=0) if shares_cache else sum(contexts)
    return round(min(1.0, sum(map(_tokens, rows)) / total), 4) if total else None


def _tokens(row: Mapping[str, object]) -> int:
    """Count the tokens in a slot's context; an idle slot keeps only what may be dropped."""
    if row.get("is_processing") is not True:
        return 0
    return _whole(row.get("n_past")) or _whole(row.get("n_prompt_tokens"))


def _whole(value: object) -> int:
    return value if type(value) is int and value > 0 else 0
