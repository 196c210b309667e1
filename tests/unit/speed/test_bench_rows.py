"""Rows of a bench: the observer of a response, rates and latencies."""

import json
from collections.abc import Mapping

import pytest

from appliance.speed.bench_rows import (
    Part,
    ReachedConcurrency,
    RequestRow,
    ResponseObserver,
    contention,
    energy_j,
    joules_per_token,
    latencies_ms,
    level_rates,
    levels,
    mean_rate,
    percentile,
    prompt_rates,
    reached,
    request_tok_s,
    speedup,
)
from tests.fakes.bench_rows import bench_row, gpus_with

REQUEST = RequestRow(
    profile="a",
    part=Part.SINGLE,
    run=1,
    concurrency=1,
    prompt="lru-cache",
    sent_s=0.0,
    ended_s=0.0,
)


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def piece(text: str, **more: object) -> bytes:
    return event({"choices": [{"delta": {"content": text}, **more}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 5}})
DONE = b"data: [DONE]\n\n"


def observed(*pieces: bytes, keep_text: bool = False) -> ResponseObserver:
    observer = ResponseObserver(REQUEST, keep_text=keep_text)
    for number, data in enumerate(pieces):
        observer.feed(data, 11.0 + number)
    return observer


def row_of(*pieces: bytes, fault: str = "") -> RequestRow:
    return observed(*pieces).row(sent_s=10.0, ended_s=20.0, fault=fault)


def test_times_run_from_sending() -> None:
    """TTFT, end, gaps and time an output token are those of the events with text."""
    row = row_of(piece("a"), piece("b"), piece("c", finish_reason="stop"), USAGE, DONE)
    assert row.arrivals_s == (11.0, 12.0, 13.0)
    assert (row.ttft_s, row.e2e_s, row.wall_s) == (1.0, 3.0, 10.0)
    assert row.itls_s == [1.0, 1.0]
    assert row.tpot_s == (3.0 - 1.0) / 4
    assert (row.input_tokens, row.output_tokens, row.cached_tokens, row.error) == (40, 5, None, "")


def test_times_count_from_the_beginning_of_the_bench() -> None:
    """Times are moved alike, so that every duration stays."""
    row = row_of(piece("a"), piece("b"), USAGE, DONE)
    moved = row.after(8.0)
    assert (moved.sent_s, moved.arrivals_s, moved.ended_s) == (2.0, (3.0, 4.0), 12.0)
    assert (moved.ttft_s, moved.e2e_s, moved.wall_s) == (row.ttft_s, row.e2e_s, row.wall_s)


def test_events_that_arrive_together_count_each() -> None:
    """Two events in one piece of the stream have one time, and a gap of nothing."""
    row = row_of(piece("a") + piece("b"), USAGE, DONE)
    assert row.arrivals_s == (11.0, 11.0)


def test_events_without_text_have_no_time() -> None:
    """The event with the role, and that with the usage, are no content."""
    role = event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
    row = row_of(role, piece("a"), USAGE, DONE)
    assert row.arrivals_s == (12.0,)
    assert row.ttft_s == 2.0


def test_timings_of_the_engine_are_kept() -> None:
    """llama.cpp's timings give prefill and decode times, and counts where no usage is told."""
    timings: Mapping[str, object] = {
        "cache_n": 4,
        "prompt_n": 36,
        "prompt_ms": 500.0,
        "predicted_n": 5,
        "predicted_ms": 800.0,
    }
    last = event({"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": timings})
    row = row_of(piece("a"), last, DONE)
    assert (row.input_tokens, row.output_tokens, row.cached_tokens) == (40, 5, 4)
    assert row.prefill_s == 0.5
    assert row.decode_s is not None


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ([piece("a"), USAGE], "broke off"),
        ([piece("a"), DONE], "no usage"),
        ([USAGE, DONE], "no text"),
        ([piece("a"), event({"usage": {"completion_tokens": 0}}), DONE], "no output"),
        ([event({"error": {"message": "secret"}})], "error in the stream"),
    ],
)
def test_response_that_does_not_count(pieces: list[bytes], error: str) -> None:
    """The reason is told without a word of the response, and the row has no tokens."""
    row = row_of(*pieces)
    assert (row.error, row.output_tokens) == (error, 0)


def test_an_event_that_is_nested_without_end_is_none() -> None:
    """An engine's event of 100,000 brackets costs that event, and no request of the bench fails with a traceback."""
    nested = b"data: " + b"[" * 100_000 + b"\n\n"
    row = row_of(piece("a"), nested, USAGE, DONE)
    assert (row.error, row.output_tokens) == ("", row_of(piece("a"), USAGE, DONE).output_tokens)


def test_fault_of_the_connection_comes_first() -> None:
    """The reason is that of the client of the connection; nothing was measured."""
    row = row_of(fault="503 model_not_active")
    assert row.error == "503 model_not_active"
    assert (row.ttft_s, row.e2e_s, row.tpot_s, row.itls_s) == (None, None, None, [])


def test_one_token_has_no_time_per_token() -> None:
    """The time of each further token needs a further token."""
    usage = event({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 1}})
    assert row_of(piece("a"), usage, DONE).tpot_s is None


def test_endless_response_is_given_up() -> None:
    """A response beyond the limit is no longer read, and says so."""
    observer = ResponseObserver(REQUEST)
    block = b": comment" + b" " * (8 << 20) + b"\n"
    for _ in range(9):
        observer.feed(block, 11.0)
    assert observer.row(sent_s=10.0, ended_s=20.0).error == "response too long"


def test_answer_is_kept_only_to_be_compared() -> None:
    """Text and reasoning are joined, up to a limit; without a reason they are forgotten."""
    completion = event({"choices": [{"text": "x"}]})
    reasoning = event({"choices": [{"delta": {"reasoning_content": "r"}}]})
    assert observed(piece("a"), reasoning, completion, DONE, keep_text=True).text == "arx"
    assert observed(piece("a"), DONE).text == ""
    long = observed(piece("y" * 65_000), piece("z" * 65_000), piece("w"), keep_text=True)
    assert len(long.text) == 65_536


PROMPTS = ("lru-cache", "merge-sort", "cron-parser", "web-route", "rate-limiter")
PUBLISHED = (
    ((170.0, 167.3, 169.6, 168.5, 170.7), 169.2),
    ((169.2, 168.8, 168.0, 168.1, 168.5), 168.5),
    ((165.9, 162.9, 163.2, 160.7, 164.5), 163.4),
    ((65.6, 65.1, 65.5, 64.9, 65.6), 65.3),
    ((41.0, 40.9, 40.9, 41.0, 41.0), 41.0),
    ((63.9, 63.5, 63.7, 63.4, 63.8), 63.7),
)
"""Rates of the published table and the mean that follows from them. The means printed there are 169.7,
168.4, 163.5, 65.4, 41.0 and 63.7: those of unrounded rates, but the first, which is no mean of its
row."""


def test_published_rate_of_one_request() -> None:
    """500 tokens in 27.994 s are 17.9 tok/s."""
    rate = request_tok_s(bench_row(tokens=500, wall_s=27.994))
    assert rate is not None
    assert round(rate, 1) == 17.9


@pytest.mark.parametrize(("published", "expected"), PUBLISHED)
def test_published_rates_of_five_prompts(published: tuple[float, ...], expected: float) -> None:
    """Each prompt has its rate, and their mean is that of the profile."""
    rows = [
        bench_row(prompt=name, tokens=round(rate * 20), wall_s=20.0, sent_s=20.0 * number)
        for number, (name, rate) in enumerate(zip(PROMPTS, published, strict=True))
    ]
    rates = prompt_rates(rows)
    assert rates == pytest.approx(dict(zip(PROMPTS, published, strict=True)))
    assert list(rates) == list(PROMPTS)
    mean = mean_rate(rates.values())
    assert mean is not None
    assert round(mean, 1) == expected


def test_published_contention() -> None:
    """125 tok/s a task beside three others, of 166 alone, is a contention of 25 %."""
    assert round(contention(125, 166), 2) == 0.25


def test_effective_rate_is_all_tokens_over_the_wall() -> None:
    """Four requests of 125 tokens, two at a time, in 10 s: 50 tok/s, and 25 a task."""
    rows = [
        bench_row(sent_s=start, wall_s=5.0, tokens=125, concurrency=2)
        for start in (0.0, 0.0, 5.0, 5.0)
    ]
    level = level_rates(rows, 2)
    assert (level.effective_tok_s, level.per_task_tok_s) == (50.0, 25.0)
    assert level.reached == ReachedConcurrency(most=2, mean=2.0, full_share=1.0)
    assert (level.wall_s, level.output_tokens, level.requests, level.failed) == (10.0, 500, 4, 0)
    assert (level.contention, level.speedup) == (None, None)


def test_levels_are_compared_with_the_serial_one() -> None:
    """Contention is lost speed of a task, speed-up the serial wall of the same work over the wall."""
    rows = [bench_row(sent_s=10.0 * n, wall_s=10.0, tokens=400) for n in range(4)]
    rows += [bench_row(sent_s=100.0, wall_s=20.0, tokens=400, concurrency=4) for _ in range(4)]
    serial, four = levels(rows)
    assert (serial.effective_tok_s, serial.contention, serial.speedup) == (40.0, None, None)
    assert (four.effective_tok_s, four.per_task_tok_s) == (80.0, 20.0)
    assert (four.contention, four.speedup) == (0.5, 2.0)
    assert four.speedup == speedup(serial.wall_s, four.wall_s)


def test_level_is_not_compared_with_another_than_the_serial_one() -> None:
    """Without concurrency 1 there is neither contention nor speed-up."""
    rows = [bench_row(concurrency=c) for c in (2, 3)]
    assert [(one.contention, one.speedup) for one in levels(rows)] == [(None, None)] * 2


def test_concurrency_reached_is_measured() -> None:
    """A level that asked for four and ran three and then one reached three, two on average."""
    rows = [bench_row(wall_s=5.0, concurrency=4) for _ in range(3)]
    rows.append(bench_row(sent_s=5.0, wall_s=5.0, concurrency=4))
    assert reached(rows, 4) == ReachedConcurrency(most=3, mean=2.0, full_share=0.0)
    assert reached(rows, 3).full_share == 0.5


def test_runs_of_a_level_are_not_in_flight_together() -> None:
    """The pause between two runs is neither wall time nor a time without requests."""
    rows = [bench_row(run=1, wall_s=4.0), bench_row(run=2, sent_s=1000.0, wall_s=6.0)]
    level = level_rates(rows, 1)
    assert (level.wall_s, level.effective_tok_s) == (10.0, 20.0)
    assert level.reached == ReachedConcurrency(most=1, mean=1.0, full_share=1.0)


def test_failed_requests_have_no_rate() -> None:
    """Failed requests are counted; a level of nothing else has no rates."""
    rows = [bench_row(error="503"), bench_row(sent_s=0.0, wall_s=0.0, error="503")]
    level = level_rates(rows, 1)
    assert (level.failed, level.effective_tok_s, level.per_task_tok_s) == (2, None, None)
    assert prompt_rates(rows) == {"lru-cache": None}
    assert mean_rate([None]) is None
    serial = level_rates([bench_row()], 1)
    worse = level_rates(rows, 2, serial)
    assert (worse.contention, worse.speedup) == (None, None)
    again = level_rates([bench_row(concurrency=2)], 2, level)
    assert (again.contention, again.speedup) == (None, None)


def test_rows_without_duration_reach_nothing() -> None:
    """Requests that failed at once give no mean concurrency."""
    rows = [bench_row(wall_s=0.0, error="no response", part=Part.SWARM)]
    assert reached(rows, 1) == ReachedConcurrency(most=0, mean=0.0, full_share=0.0)
    assert level_rates(rows, 1).reached == ReachedConcurrency(most=0, mean=0.0, full_share=0.0)
    assert reached([], 1) == ReachedConcurrency(most=0, mean=0.0, full_share=0.0)


@pytest.mark.parametrize(
    ("before", "after", "tokens", "expected"),
    [
        (100.0, 350.0, 500, 0.5),
        (None, 350.0, 500, None),
        (100.0, None, 500, None),
        (350.0, 100.0, 500, None),
        (100.0, 350.0, 0, None),
    ],
)
def test_energy_of_a_token(
    before: float | None, after: float | None, tokens: int, expected: float | None
) -> None:
    """The counter's growth over the tokens; none without both readings, or if it went back."""
    assert joules_per_token(before, after, tokens) == expected


def test_energy_is_the_sum_of_all_counters() -> None:
    """One GPU that tells none leaves the sum unknown, as a reading that was not made does."""
    assert energy_j(gpus_with(100.0, 20.5)) == 120.5
    assert energy_j(gpus_with(100.0, None)) is None
    assert energy_j(gpus_with()) is None
    assert energy_j(None) is None


def test_percentiles_are_interpolated() -> None:
    """Between two values lies the share of their distance, as numpy.percentile has it."""
    values = [1.0, 2.0, 4.0, 8.0]
    assert percentile(values, 50) == 3.0
    assert percentile(values, 95) == pytest.approx(7.4)
    assert percentile(values, 100) == 8.0
    assert percentile([5.0], 99) == 5.0


def test_each_latency_has_its_figures() -> None:
    """TTFT, TPOT and E2EL have one value a request, ITL one a gap."""
    rows = [
        bench_row(tokens=3, arrivals_s=(1.0, 1.5, 2.5)),
        bench_row(tokens=2, arrivals_s=(3.0, 3.5)),
        bench_row(error="503"),
    ]
    found = latencies_ms(rows)
    assert found["mean_ttft_ms"] == 2000.0
    assert found["median_ttft_ms"] == found["p50_ttft_ms"] == 2000.0
    assert found["std_ttft_ms"] == 1000.0
    assert found["mean_e2el_ms"] == 3000.0
    assert found["mean_tpot_ms"] == (750.0 + 500.0) / 2
    assert found["mean_itl_ms"] == pytest.approx((500 + 1000 + 500) / 3)
    assert found["p99_itl_ms"] == pytest.approx(990.0)
    assert len(found) == 24


def test_without_a_request_there_are_names_without_figures() -> None:
    """A level whose requests all failed has every name, so that no reader stumbles."""
    found = latencies_ms([bench_row(error="503")])
    assert len(found) == 24
    assert set(found.values()) == {None}
