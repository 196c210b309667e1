"""Measurement of a probe: engine timings, growth of metrics, arrival of the stream."""

import json

import pytest

from appliance.model.measurements import (
    RawTimings,
    TimingSource,
    decode_steps_per_s,
    prefill_tok_s,
    tokens_per_step,
)
from appliance.model.words import ProbeOutcome
from appliance.speed.event_stream import EventStreamParser
from appliance.speed.measurement import (
    Measurement,
    ObservedStream,
    RequestCounters,
    clock_moved,
    finished_between,
    measure,
    one_request,
    piece_times,
    read_counters,
)

# Lines as vLLM 0.32 writes them (vllm/v1/metrics/loggers.py, vllm/v1/spec_decode/metrics.py).
VLLM_PAGE = """\
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
    page = VLLM_PAGE.format(
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
    assert one_request(before, after) == {
        "finished": 1,
        "prefill_s": 0.25,
        "decode_s": 3.0,
        "cached_tokens": 0,
        "drafted_tokens": 300,
        "accepted_tokens": 128,
    }


def test_one_request_of_sglang_is_measured() -> None:
    """A counter that appears with the first request began at 0; labels are added up."""
    before, after = read_counters(SGLANG_BEFORE), read_counters(SGLANG_AFTER)
    assert one_request(before, after) == {
        "finished": 1,
        "prefill_s": 0.5,
        "decode_s": 2.5,
        "cached_tokens": 3,
        "verify_steps": 100,
    }


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


BEFORE = {"finished": 4, "prefill_s": 1.0, "decode_s": 20.0}
AFTER = {"finished": 5, "prefill_s": 1.25, "decode_s": 21.0}
WANTED = 9


def without(counter: str) -> RequestCounters:
    return {name: value for name, value in AFTER.items() if name != counter}


Chunks = list[dict[str, object]]
# Chunks of llama.cpp b11549, as the embedded engine wrote them.
TOKEN: dict[str, object] = {
    "choices": [{"finish_reason": None, "index": 0, "delta": {"content": "I"}}]
}
LLAMA_CPP: Chunks = [
    {"choices": [{"finish_reason": None, "index": 0, "delta": {"role": "assistant"}}]},
    *[TOKEN] * 9,
    {"choices": [{"finish_reason": "length", "index": 0, "delta": {}}]},
    {
        "choices": [],
        "usage": {
            "completion_tokens": 9,
            "prompt_tokens": 100,
            "prompt_tokens_details": {"cached_tokens": 0},
        },
        "timings": {
            "cache_n": 0,
            "prompt_n": 100,
            "prompt_ms": 500.0,
            "predicted_n": 9,
            "predicted_ms": 800.0,
        },
    },
]
# Chunks of vLLM 0.32 (entrypoints/openai/chat_completion/serving.py): a chunk may hold several
# tokens, thinking has a member of its own, and the usage is null until the end.
VLLM: Chunks = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}], "usage": None},
    {"choices": [{"index": 0, "delta": {"reasoning": "We need"}}], "usage": None},
    {"choices": [{"index": 0, "delta": {"content": "a heap"}}], "usage": None},
    {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "length"}]},
    {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 9}},
]
# Chunks of SGLang 0.5 (srt/entrypoints/openai/serving_completions.py) for a text completion.
SGLANG: Chunks = [
    {"choices": [{"index": 0, "text": "def", "finish_reason": None}], "usage": None},
    {"choices": [{"index": 0, "text": " get", "finish_reason": "length"}], "usage": None},
    {
        "choices": [],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
    },
]


def observed(chunks: Chunks, *, done: bool = True) -> ObservedStream:
    """A response that was sent for at 10 s and whose chunks arrive every half second."""
    stream, parser = ObservedStream(sent_s=10.0), EventStreamParser()
    texts = [*map(json.dumps, chunks), *(["[DONE]"] if done else [])]
    for number, text in enumerate(texts, start=1):
        for event in parser.feed(f"data: {text}\n\n".encode()):
            stream.take(event, 10.0 + number / 2)
    return stream


def with_member(name: str, value: object) -> Chunks:
    """Chunks of llama.cpp whose last has another value at a dotted name."""
    chunks = json.loads(json.dumps(LLAMA_CPP))
    *path, last = name.split(".")
    place = chunks[-1]
    for key in path:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return list(chunks)


def measured(
    chunks: Chunks,
    before: RequestCounters | None = None,
    after: RequestCounters | None = None,
) -> Measurement:
    return measure(observed(chunks), ended_s=20.0, wanted_tokens=WANTED, before=before, after=after)


def test_timings_of_the_engine_go_first() -> None:
    """The engine's own times are taken although metrics and arrival tell times, too."""
    assert measured(LLAMA_CPP, BEFORE, AFTER) == Measurement(
        outcome=ProbeOutcome.VALID,
        raw=RawTimings(
            source=TimingSource.ENGINE,
            prompt_tokens=100,
            cached_tokens=0,
            prefill_s=0.5,
            output_tokens=9,
            decoded_tokens=8,
            decode_s=0.8,
            drafted_tokens=0,
            accepted_tokens=0,
            ttft_s=1.0,
            wall_s=10.0,
        ),
    )


def test_timings_of_the_engine_need_no_usage() -> None:
    """A response without usage is measured by the counts in its timings."""
    found = measured(with_member("usage", None))
    assert found.outcome is ProbeOutcome.VALID
    assert found.raw is not None
    assert (found.raw.prompt_tokens, found.raw.output_tokens) == (100, 9)


@pytest.mark.parametrize(("prompt", "cached"), [(100, 0), (103, 3), (90, 0), (None, None)])
def test_the_cached_part_of_a_prompt_is_what_was_not_evaluated(
    prompt: int | None, cached: int | None
) -> None:
    """Builds of llama.cpp without cache_n tell it by the difference from the usage."""
    chunks = with_member("timings.cache_n", None)
    chunks[-1]["usage"] = {"prompt_tokens": prompt, "completion_tokens": 9}
    found = measured(chunks)
    assert found.raw is not None
    assert found.raw.cached_tokens == cached


def test_metrics_go_before_the_stream() -> None:
    """The growth of the metrics is taken when exactly one request ended meanwhile."""
    found = measured(VLLM, BEFORE, AFTER)
    assert found.outcome is ProbeOutcome.VALID
    assert found.raw == RawTimings(
        source=TimingSource.METRICS,
        prompt_tokens=100,
        cached_tokens=None,
        prefill_s=0.25,
        output_tokens=9,
        decoded_tokens=8,
        decode_s=1.0,
        ttft_s=1.0,
        wall_s=10.0,
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (BEFORE, AFTER | {"finished": 6}),
        (BEFORE, BEFORE),
        (BEFORE, AFTER | {"decode_s": 20.0}),
        (BEFORE, without("decode_s")),
        (None, AFTER),
        (BEFORE, None),
    ],
)
def test_without_metrics_of_one_request_the_stream_is_measured(
    before: RequestCounters | None, after: RequestCounters | None
) -> None:
    """Tokens come from the usage, not from the two chunks with text."""
    found = measured(VLLM, before, after)
    assert found.outcome is ProbeOutcome.VALID
    assert found.raw == RawTimings(
        source=TimingSource.STREAM,
        prompt_tokens=100,
        cached_tokens=None,
        prefill_s=1.0,
        output_tokens=9,
        decoded_tokens=8,
        decode_s=0.5,
        ttft_s=1.0,
        wall_s=10.0,
    )


def test_drafts_of_metrics_are_counted() -> None:
    """The counters of vLLM tell drafted and accepted tokens, those of SGLang the steps."""
    after = AFTER | {"drafted_tokens": 12.0, "accepted_tokens": 4.0, "cached_tokens": 2.0}
    raw = measured(VLLM, BEFORE, after).raw
    assert raw is not None
    assert (raw.drafted_tokens, raw.accepted_tokens, raw.cached_tokens) == (12, 4, 2)
    assert tokens_per_step(raw) == 2.0
    assert decode_steps_per_s(raw) == 4.0
    raw = measured(SGLANG, BEFORE, AFTER | {"verify_steps": 2.0}).raw
    assert raw is not None
    assert (raw.drafted_tokens, raw.accepted_tokens, raw.cached_tokens) == (None, 6, 1)
    assert prefill_tok_s(raw) == pytest.approx(99 / 0.25)


def test_a_text_completion_is_observed() -> None:
    """Text of a completion counts as text of a chat does."""
    raw = measured(SGLANG).raw
    assert raw is not None
    assert (raw.ttft_s, raw.decode_s, raw.cached_tokens) == (0.5, 0.5, 1)


@pytest.mark.parametrize(("cached", "outcome"), [(5, "valid"), (6, "cached")])
def test_a_cached_prompt_makes_a_probe_invalid(cached: int, outcome: str) -> None:
    """The prefix cache may hold 5 % of the prompt, and no more."""
    chunks = with_member("timings.cache_n", cached)
    chunks[-1]["timings"]["prompt_n"] = 100 - cached  # type: ignore[index]
    found = measured(chunks)
    assert found.outcome == outcome
    assert (found.detail == "") == (outcome == "valid")
    assert found.raw is not None


def test_a_short_answer_makes_a_probe_invalid() -> None:
    """An engine that ends before the number of tokens is told as such."""
    found = measure(observed(LLAMA_CPP), ended_s=20.0, wanted_tokens=10)
    assert (found.outcome, found.detail) == (ProbeOutcome.ENDED_EARLY, "9 of 10 tokens")
    assert found.raw is not None
    found = measured([*VLLM[:-1], {"usage": {"completion_tokens": 1}}])
    assert found == Measurement(outcome=ProbeOutcome.ENDED_EARLY, detail="1 of 9 tokens")


@pytest.mark.parametrize(
    "chunks",
    [
        LLAMA_CPP[:-1],
        [*VLLM[:-1], {"usage": {"completion_tokens": "9"}}],
        [*VLLM[:2], *VLLM[3:]],
        [*VLLM[:1], *VLLM[3:]],
    ],
)
def test_a_response_without_times_is_unmeasured(chunks: Chunks) -> None:
    """Without usage, or with text at one moment alone, there is no rate."""
    assert measured(chunks).outcome is ProbeOutcome.UNMEASURED


@pytest.mark.parametrize("member", ["timings.predicted_ms", "timings.predicted_n"])
def test_timings_of_no_duration_are_not_taken(member: str) -> None:
    """An engine that tells no time, or one token, is measured by the stream."""
    found = measured(with_member(member, 0))
    assert found.raw is not None
    assert found.raw.source is TimingSource.STREAM


def test_a_stream_that_breaks_off_has_failed() -> None:
    """A response without its end measures nothing, whatever has arrived."""
    stream = observed(LLAMA_CPP[:5], done=False)
    found = measure(stream, ended_s=20.0, wanted_tokens=WANTED)
    assert (found.outcome, found.raw) == (ProbeOutcome.FAILED, None)


def test_a_stream_without_done_has_ended_with_its_reason() -> None:
    """A finish reason ends a response, too."""
    stream = observed(LLAMA_CPP, done=False)
    assert measure(stream, ended_s=20.0, wanted_tokens=9).outcome is ProbeOutcome.VALID


def test_a_stream_for_ever_is_too_long() -> None:
    """A response that was given up measures nothing."""
    stream = observed(LLAMA_CPP[:5], done=False)
    found = measure(stream, ended_s=20.0, wanted_tokens=WANTED, too_long=True)
    assert (found.outcome, found.detail) == (ProbeOutcome.TOO_LONG, "no end within 10.0 s")


@pytest.mark.parametrize("error", [{"code": 500, "message": "secret prompt"}, "secret prompt"])
def test_an_error_event_ends_a_probe(error: object) -> None:
    """A response with an error measures nothing; no text of an error is kept."""
    found = measured([*LLAMA_CPP, {"error": error}])
    assert (found.outcome, found.raw) == (ProbeOutcome.FAILED, None)
    assert "secret" not in found.detail


def piece_of(evaluated: int, cached: int) -> RawTimings:
    return RawTimings(
        source=TimingSource.ENGINE,
        prompt_tokens=evaluated + cached,
        cached_tokens=cached,
        prefill_s=0.01,
        output_tokens=1,
        decoded_tokens=0,
        decode_s=0.0,
        ttft_s=0.02,
    )


def in_pieces(*pieces: tuple[int, int], last: tuple[int, int]) -> Measurement:
    """Measure a prompt whose pieces evaluated and reused so many tokens, in 10 ms and 20 ms each."""
    chunks = with_member("timings.prompt_n", last[0])
    chunks[-1]["timings"]["cache_n"] = last[1]  # type: ignore[index]
    times = [piece_of(new, old) for new, old in pieces]
    return measure(observed(chunks), ended_s=20.0, wanted_tokens=WANTED, pieces=times)


def test_pieces_are_measured_as_one_prompt() -> None:
    """The prefill rate is that of all evaluated tokens, the templates of pieces included."""
    found = in_pieces((38, 0), (40, 32), last=(36, 64))
    assert found.outcome is ProbeOutcome.VALID
    assert found.raw is not None
    assert (found.raw.prompt_tokens, found.raw.cached_tokens) == (38 + 40 + 36, 0)
    assert prefill_tok_s(found.raw) == pytest.approx(114 / (0.5 + 0.02))
    assert found.raw.ttft_s == pytest.approx(1.04)
    assert found.raw.wall_s == pytest.approx(10.04)


@pytest.mark.parametrize(
    ("first", "last", "cached"),
    [((30, 8), (36, 64), 8), ((38, 0), (6, 94), 22), ((38, 0), (99, 0), 0)],
)
def test_what_another_left_in_the_cache_is_not_the_probes_own(
    first: tuple[int, int], last: tuple[int, int], cached: int
) -> None:
    """Tokens that were cached before the first piece, or between two, make a probe invalid."""
    found = in_pieces(first, (40, 32), last=last)
    assert found.outcome is (ProbeOutcome.CACHED if cached else ProbeOutcome.VALID)
    assert found.raw is not None
    assert found.raw.cached_tokens == cached


def test_pieces_need_times_of_the_last_request() -> None:
    """Where the end of a prompt was not timed, its pieces tell nothing; text may come at once."""
    pieces = [piece_of(38, 0)]
    for after in (without("prefill_s"), AFTER | {"finished": 1.0}):
        stream = observed(VLLM)
        found = measure(
            stream, ended_s=20.0, wanted_tokens=9, before=BEFORE, after=after, pieces=pieces
        )
        assert found.raw is not None
    stream = observed([*LLAMA_CPP[:1], *LLAMA_CPP[-2:]])
    silent = measure(stream, ended_s=20.0, wanted_tokens=9, pieces=pieces)
    assert silent.raw is not None
    assert silent.raw.ttft_s is None


def test_a_piece_has_its_own_times() -> None:
    """Evaluated and cached tokens come from the timings, or from the difference to the usage."""
    piece = piece_times(observed(LLAMA_CPP), ended_s=20.0)
    assert piece is not None
    assert (piece.evaluated_tokens, piece.cached_tokens) == (100, 0)
    assert (piece.prefill_s, piece.ttft_s) == (0.5, 1.0)
    assert piece_times(observed(VLLM), ended_s=20.0) is None
    silent = piece_times(observed([*LLAMA_CPP[:1], *LLAMA_CPP[-2:]]), ended_s=20.0)
    assert silent is not None
    assert silent.ttft_s == 10.0
    chunks = with_member("timings.cache_n", None)
    chunks[-1]["usage"] = {"prompt_tokens": 132}
    found = piece_times(observed(chunks), ended_s=20.0)
    assert found is not None
    assert found.cached_tokens == 32


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[",
        b"[" * 100_000,
        b"1",
        b"[]",
        b'{"choices":{}}',
        b'{"choices":[1]}',
        b'{"choices":[{"delta":"x"}]}',
        b'{"choices":[{"delta":{"content":1}}]}',
        b'{"usage":1,"timings":1,"error":null}',
        b'{"usage":{"prompt_tokens_details":1}}',
    ],
)
def test_a_malformed_event_is_ignored(data: bytes) -> None:
    """An event of another form changes nothing."""
    stream = ObservedStream(sent_s=10.0)
    stream.take(data, 11.0)
    assert stream == ObservedStream(sent_s=10.0)


@pytest.mark.parametrize(
    ("monotonic_s", "wall_s", "boot_s", "moved"),
    [
        (5.0, 5.0, 5.0, False),
        (5.0, 5.2, 5.0, False),
        (5.0, 3605.0, 3605.0, True),
        (5.0, 5.0, 8.0, True),
        (5.0, -90.0, 5.0, True),
    ],
)
def test_a_suspended_box_or_a_set_clock_is_found(
    monotonic_s: float, wall_s: float, boot_s: float, *, moved: bool
) -> None:
    """Three clocks that count the same time differently show it."""
    assert clock_moved(monotonic_s=monotonic_s, wall_s=wall_s, boot_s=boot_s) == moved
