"""Code that llama-server and the embedded engine share: both are llama.cpp's own server."""

from collections.abc import Mapping
from typing import Final

from appliance.engines.shared.engine import Metrics
from appliance.engines.shared.probing import Probing, ResponseTimings, count, seconds

METRICS: Final = Metrics(
    running=("llamacpp:requests_processing",),
    queued=("llamacpp:requests_deferred",),
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
