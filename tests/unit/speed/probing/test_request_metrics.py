"""Times of one request as the difference of an engine's metrics."""

import pytest

from appliance.speed.probing.request_metrics import (
    RequestCounters,
    finished_between,
    one_request,
    read_counters,
)

# Lines as vLLM 0.32 writes them (vllm/v1/metrics/loggers.py, vllm/v1/spec_decode/metrics.py).
VLLM = """\
# HELP vllm:request_success_total Count of successfully processed requests.
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} 3.0
vllm:request_success_total{{engine="0",finished_reason="length",model_name="m"}} {finished}
vllm:request_success_total{{engine="0",finished_reason="abort",model_name="m"}} 1.0
vllm:request_prefill_time_seconds_bucket{{engine="0",le="0.3",model_name="m"}} 4.0
vllm:request_prefill_time_seconds_count{{engine="0",model_name="m"}} 4.0
vllm:request_prefill_time_seconds_sum{{engine="0",model_name="m"}} {prefill}
vllm:{decode_name}_sum{{engine="0",model_name="m"}} {decode}
vllm:{cached_name}{{engine="0",model_name="m"}} 16.0
vllm:spec_decode_num_draft_tokens_total{{engine="0",model_name="m"}} {drafted}
vllm:spec_decode_num_accepted_tokens_total{{engine="0",model_name="m"}} {accepted}
"""
# Lines as SGLang 0.5 writes them (srt/observability/metrics_collector.py); a counter with labels
# appears with its first request.
SGLANG_BEFORE = """\
# TYPE sglang:num_requests_total counter
# TYPE sglang:time_to_first_token_seconds histogram
sglang:spec_verify_calls_total{model_name="m"} 100.0
sglang:num_aborted_requests_total{model_name="m"} 2.0
"""
SGLANG_AFTER = """\
sglang:num_requests_total{is_streaming="true",model_name="m"} 1.0
sglang:time_to_first_token_seconds_sum{is_streaming="true",model_name="m"} 0.5
sglang:inter_token_latency_seconds_sum{model_name="m"} 2.5
sglang:inter_token_latency_seconds_count{model_name="m"} 255.0
sglang:cached_tokens_total{cache_source="device",model_name="m"} 2.0
sglang:cached_tokens_total{cache_source="host",model_name="m"} 1.0
sglang:spec_verify_calls_total{model_name="m"} 200.0
"""


def vllm(
    *,
    finished: float = 5.0,
    prefill: float = 1.0,
    decode: float = 9.0,
    drafted: float = 0.0,
    accepted: float = 0.0,
    decode_name: str = "request_decode_time_seconds",
    cached_name: str = "prompt_tokens_cached_total",
) -> RequestCounters:
    page = VLLM.format(
        finished=finished,
        prefill=prefill,
        decode=decode,
        drafted=drafted,
        accepted=accepted,
        decode_name=decode_name,
        cached_name=cached_name,
    )
    return read_counters(page)


@pytest.mark.parametrize(
    "decode_name",
    ["request_decode_time_seconds", "inter_token_latency_seconds", "time_per_output_token_seconds"],
)
@pytest.mark.parametrize("cached_name", ["prompt_tokens_cached_total", "prefix_cache_hits_total"])
def test_one_request_of_vllm_is_measured(decode_name: str, cached_name: str) -> None:
    """The growth of the sums is the request's own time, by the names of several releases."""
    before = vllm(decode_name=decode_name, cached_name=cached_name)
    after = vllm(
        finished=6,
        prefill=1.25,
        decode=12.0,
        drafted=300,
        accepted=128,
        decode_name=decode_name,
        cached_name=cached_name,
    )
    assert finished_between(before, after) == 1
    assert one_request(before, after) == RequestCounters(
        finished=1,
        prefill_s=0.25,
        decode_s=3.0,
        cached_tokens=0,
        drafted_tokens=300,
        accepted_tokens=128,
        verify_steps=None,
    )


def test_one_request_of_sglang_is_measured() -> None:
    """A counter that appears with the first request began at 0; labels are added up."""
    before, after = read_counters(SGLANG_BEFORE), read_counters(SGLANG_AFTER)
    assert one_request(before, after) == RequestCounters(
        finished=1,
        prefill_s=0.5,
        decode_s=2.5,
        cached_tokens=3,
        drafted_tokens=None,
        accepted_tokens=None,
        verify_steps=100,
    )


@pytest.mark.parametrize(("finished", "count"), [(5, 0), (7, 2), (0, None)])
def test_another_number_of_requests_measures_nothing(finished: float, count: int | None) -> None:
    """No request, two requests, or a restart of the engine between leave the time unknown."""
    before, after = vllm(), vllm(finished=finished, decode=12.0)
    assert finished_between(before, after) == count
    assert one_request(before, after) is None


def test_an_engine_without_such_metrics_measures_nothing() -> None:
    """The metrics of llama.cpp, and an empty page, count no requests."""
    empty = read_counters("llamacpp:prompt_tokens_total 46\n")
    assert finished_between(empty, empty) is None
    assert one_request(empty, read_counters("")) is None
