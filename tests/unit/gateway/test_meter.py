"""Meter: counts, times and speeds, and the usage at the end of a response."""

import time
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.gateway.meter import (
    BOUNDS_S,
    BUCKETS,
    FIRST_TOKEN_BOUNDS_S,
    GAP_BOUNDS_S,
    MOST,
    REQUEST_BOUNDS_S,
    CumulativeHistogram,
    Histogram,
    Meter,
    bucket_of,
    middle_of,
)
from appliance.gateway.response import (
    is_stream,
    parse_output_tokens,
    parse_usage,
)
from appliance.model.gateway import Key

ANA = Key(name="ana")
CHAT = (
    b'{"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":5,"completion_tokens":7}}'
)
LLAMA = (
    b'data: {"choices":[],"usage":{"completion_tokens":8,"prompt_tokens":1},"timings":'
    b'{"prompt_per_second":3.2,"predicted_n":8,"predicted_per_second":41.5}}\n\ndata: [DONE]\n\n'
)
PLAIN = b'data: {"choices":[{"delta":{}}],"usage":{"completion_tokens" : 11}}\n\ndata: [DONE]\n\n'
ANTHROPIC = (
    b'event: message_start\ndata: {"message":{"usage":{"output_tokens":1}}}\n\n'
    b'event: message_delta\ndata: {"usage":{"output_tokens":23}}\n\n'
)
QUOTED = b'{"choices":[{"text":"say \\"completion_tokens\\": 9"}],"usage":null}'


@given(st.floats(2e-6, 1e4))
def test_a_bucket_is_within_a_twentieth(seconds: float) -> None:
    """A percentile is within 5 % of the measured time."""
    assert middle_of(bucket_of(seconds)) == pytest.approx(seconds, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e-9, 1e6])
def test_any_time_has_a_bucket(seconds: float) -> None:
    """Times of zero and of hours have a bucket."""
    assert 0 <= bucket_of(seconds) < BUCKETS


def test_percentiles_are_of_the_last_two_windows() -> None:
    """Older times are forgotten; without any there is no percentile."""
    histogram = Histogram()
    assert histogram.percentiles_ms() is None
    for milliseconds in range(1, 101):
        histogram.add(milliseconds / 1000)
    told = histogram.percentiles_ms()
    assert told is not None
    assert (told["p50"], told["p99"]) == pytest.approx((50, 99), rel=0.05)
    histogram.rotate()
    assert histogram.percentiles_ms() == told
    histogram.rotate()
    assert histogram.percentiles_ms() is None


@pytest.mark.parametrize(
    ("tail", "tokens", "speed", "streamed"),
    [
        (CHAT, 7, None, False),
        (LLAMA, 8, 41.5, True),
        (PLAIN, 11, None, True),
        (ANTHROPIC, 23, None, True),
        (QUOTED, None, None, False),
        (b'{"usage":{"completion_tokens":null}}', None, None, False),
        (b'{"usage":{"completion_tokens":1.5}}', None, None, False),
        (b'{"timings":{"predicted_n":3,"predicted_per_second":0}}', 3, None, False),
        (b'{"timings":{"predicted_per_second":"fast"}}', None, None, False),
        (b'umbed as "data: x"}]}', None, None, False),
        (b"", None, None, False),
    ],
)
def test_what_a_tail_says(
    tail: bytes,
    tokens: int | None,
    speed: float | None,
    streamed: bool,  # noqa: FBT001
) -> None:
    """The engine's last report of tokens and speed counts; a model's text does not."""
    assert parse_output_tokens(tail) == tokens
    assert (*parse_usage(tail)[:2], is_stream(tail)) == (
        tokens,
        speed,
        streamed,
    )


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b'"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":40}}', (50, 40)),
        (b'"usage":{"prompt_tokens_details":{"cached_tokens":0},"prompt_tokens":50}', (50, 0)),
        (b'"usage":{"input_tokens":9,"input_tokens_details":{"cached_tokens":9}}', (9, 9)),
        (
            b'"usage":{"prompt_tokens":9},"timings":{"cache_n":236,"prompt_n":4,"predicted_per_second":0}',
            (240, 236),
        ),
        (b'"timings":{"cache_n":236,"predicted_per_second":3.5}', None),
        (b'"timings":{"prompt_n":4,"predicted_per_second":3.5}', None),
        (b'"usage":{"prompt_tokens":50,"prompt_tokens_details":null}', (50, None)),
        (b'"usage":{"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":51}}', (50, None)),
        (b'"usage":{"prompt_tokens_details":{"cached_tokens":51}}', None),
        (b'"text":"\\"cached_tokens\\": 3, \\"prompt_tokens\\": 3"', None),
        (b"", None),
    ],
)
def test_prompt_tokens_count_with_the_cached_ones_among_them(
    tail: bytes, expected: tuple[int, int | None] | None
) -> None:
    """Prompt tokens, and the cached ones if they can be, by the names of OpenAI's API or of llama.cpp."""
    assert parse_usage(tail)[2] == expected


def test_tokens_and_their_time_are_summed() -> None:
    """Sums since the start hold the answers whose speed, or whose cached tokens, are known."""
    clock = Clock()
    meter = Meter(clock)
    cached = b',"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":40}}'
    for tail in (LLAMA, LLAMA, CHAT, PLAIN, CHAT.replace(b"}}", cached)):
        request = meter.begin_sent("aeon", None)
        if tail is PLAIN:
            request.chunk(10)
            clock.now_s += 2.0
            request.chunk(10)
        request.end(200, tail, 10)
        clock.now_s += 400.0  # two windows: sums forget nothing
    aeon = row(meter, "profiles", "aeon")
    assert (aeon["decoded_tokens"], aeon["output_tokens"]) == (27, 41)
    assert aeon["decode_s"] == pytest.approx(2 * 8 / 41.5 + 11 / (10 / 2.0), abs=0.001)
    assert (aeon["prompt_tokens"], aeon["cached_tokens"]) == (50, 40)
    assert aeon["input_tokens"] == 50 + 5 + 1 + 1


def counted(found: Mapping[str, Any], name: str) -> Mapping[float | None, int]:
    """Return the counts of a histogram that are not 0, by upper bound; None: beyond every bound."""
    counts = found["histograms"][name]["counts"]
    return {
        bound: count for bound, count in zip((*BOUNDS_S[name], None), counts, strict=True) if count
    }


OPENTELEMETRY_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
)
"""`gen_ai.server.time_to_first_token` of OpenTelemetry's semantic conventions for generative AI."""
VLLM_REQUEST = (
    *(
        0.3,
        0.5,
        0.8,
        1.0,
        1.5,
        2.0,
        2.5,
        5.0,
        10.0,
        15.0,
        20.0,
        30.0,
        40.0,
        50.0,
        60.0,
        120.0,
        240.0,
    ),
    *(480.0, 960.0, 1920.0, 7680.0),
)
"""`REQUEST_LATENCY_BUCKETS` of vLLM 0.32.0."""


def test_bounds_are_those_of_the_field() -> None:
    """Curves of the appliance and of others can be laid over each other; held requests have bounds, too."""
    beyond = (20.0, 30.0, 60.0, 120.0, 300.0)
    assert (*OPENTELEMETRY_FIRST_TOKEN, *beyond) == FIRST_TOKEN_BOUNDS_S
    assert (0.1, *VLLM_REQUEST[:-1]) == REQUEST_BOUNDS_S
    assert sum(0.01 <= bound <= 0.05 for bound in GAP_BOUNDS_S) > len(GAP_BOUNDS_S) / 3
    assert all(sorted(set(bounds)) == list(bounds) for bounds in BOUNDS_S.values())


def test_histograms_hold_all_times_since_the_start() -> None:
    """The wait of a held request belongs to its first token, and no window forgets a time."""
    clock = Clock()
    meter = Meter(clock)
    for held_s in (0.0, 250.0, 900.0):
        request = meter.begin("aeon", ANA)
        clock.now_s += held_s
        request.sent()
        clock.now_s += 0.2
        request.chunk(10)
        for _ in range(4):
            clock.now_s += 0.035
            request.chunk(10)
        request.end(200, PLAIN)
        meter.document()
    aeon = row(meter, "profiles", "aeon")
    assert counted(aeon, "time_to_first_token") == {0.25: 1, 300.0: 1, None: 1}
    assert counted(aeon, "e2e_request_latency") == {0.5: 1, 480.0: 1, 960.0: 1}
    assert counted(aeon, "inter_token_latency") == {0.04: 12}
    sums = {name: found["sum_s"] for name, found in aeon["histograms"].items()}
    assert sums == {
        "time_to_first_token": pytest.approx(1150.6),
        "e2e_request_latency": pytest.approx(1151.02),
        "inter_token_latency": pytest.approx(0.42),
    }
    assert "histograms" not in row(meter, "keys", "ana")
    assert meter.document()["bounds_s"] == BOUNDS_S


def test_only_answers_are_in_the_histogram_of_requests() -> None:
    """A refusal, a fault of the engine and a client that left tell nothing of the time of answers."""
    meter = Meter()
    for status in (0, 400, 404, 500, 503, 307):
        request = meter.begin_sent("aeon", None)
        request.chunk(10)
        request.end(status, b"{}")
    meter.begin_sent("aeon", None).end(200, CHAT)  # without a byte of a body
    aeon = row(meter, "profiles", "aeon")
    assert (counted(aeon, "e2e_request_latency"), counted(aeon, "time_to_first_token")) == ({}, {})


def test_a_long_stream_is_in_its_histogram_once() -> None:
    """Gaps that were counted while a stream lasted are not counted at its end again."""
    clock = Clock()
    meter = Meter(clock)
    request = meter.begin_sent("aeon", None)
    for number in range(40):
        clock.now_s += 1.0
        request.chunk(10)
        if number % 7 == 0:
            meter.document()
    request.end(200, PLAIN)
    aeon = row(meter, "profiles", "aeon")
    assert counted(aeon, "inter_token_latency") == {2.5: 39}
    assert aeon["histograms"]["inter_token_latency"]["sum_s"] == pytest.approx(39.0)


@given(st.lists(st.floats(1e-6, 20.0), max_size=50), st.integers(0, 3))
def test_a_gap_is_counted_under_its_bound_or_the_next(times: list[float], turns: int) -> None:
    """Windows lose none; a time within a tenth below a bound may stand under the next bound."""
    bounds_s = BOUNDS_S["inter_token_latency"]
    least, most = CumulativeHistogram(bounds_s), CumulativeHistogram(bounds_s)
    histogram = Histogram()
    for number, seconds in enumerate(times):
        histogram.add(seconds)
        least.add(seconds)
        most.add(seconds * 1.1)
        if number % 3 < turns:
            histogram.rotate()
    found = list(accumulate(histogram.counts(bounds_s)))
    lower, upper = (list(accumulate(told(one))) for one in (most, least))
    assert found[-1] == len(times)
    assert all(a <= b <= c for a, b, c in zip(lower, found, upper, strict=True))


def told(histogram: CumulativeHistogram) -> list[int]:
    counts: Any = histogram.document()["counts"]
    return list(counts)


def test_a_bound_belongs_to_its_bucket() -> None:
    """An upper bound is inclusive, as Prometheus has it."""
    histogram = CumulativeHistogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.10001, 1.0, 1.1):
        histogram.add(seconds)
    assert told(histogram) == [2, 2, 1]


@given(st.binary())
def test_any_tail_is_read(tail: bytes) -> None:
    """Any bytes can be parsed for usage."""
    for look in (parse_output_tokens, parse_usage, is_stream):
        look(b'data: "predicted_n":' + tail)


class Clock:
    """Clock that a test advances."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def row(meter: Meter, kind: str, name: str) -> Mapping[str, Any]:
    rows: Any = meter.document()[kind]
    found: Mapping[str, Any] = rows[name]
    return found


def test_quiet_is_an_engine_that_owes_bytes_and_sends_none() -> None:
    """Quiet time counts from the last byte of all responses, or from the oldest request sent."""
    clock = Clock()
    meter = Meter(clock)

    def quiet_s() -> object:
        return row(meter, "profiles", "aeon")["quiet_s"]

    first, second = meter.begin("aeon", None), meter.begin("aeon", None)
    clock.now_s += 50.0
    assert quiet_s() is None  # held
    first.sent()
    clock.now_s += 20.0
    second.sent()
    clock.now_s += 5.0
    assert quiet_s() == 25.0
    second.chunk(10)
    clock.now_s += 3.0
    assert quiet_s() == 3.0
    first.owed(owed=False)  # its client reads nothing
    second.owed(owed=False)
    assert quiet_s() is None
    clock.now_s += 100.0
    first.owed(owed=True)
    clock.now_s += 7.0
    assert quiet_s() == 7.0
    second.end(200, b"", 5)
    clock.now_s += 1.0
    assert quiet_s() == 1.0
    first.end(0, b"")
    assert quiet_s() is None


def test_a_request_is_counted_for_its_profile_and_its_key() -> None:
    """A request is counted while it waits, while the engine has it, and at its end."""
    meter = Meter()
    one = meter.begin("aeon", ANA)
    other = meter.begin("aeon", None)
    assert (meter.waiting(), meter.waiting(["aeon"]), meter.waiting(["genesis"])) == (2, 2, 0)
    one.sent()
    assert (row(meter, "profiles", "aeon")["in_flight"], meter.waiting()) == (1, 1)
    one.chunk(100)
    one.end(200, CHAT)
    one.end(200, CHAT)
    other.end(503, b"")
    aeon = row(meter, "profiles", "aeon")
    assert {k: aeon[k] for k in ("requests", "retried", "in_flight", "errors", "gone")} == {
        "requests": 2,
        "retried": 0,
        "in_flight": 0,
        "errors": 1,
        "gone": 0,
    }
    assert (aeon["bytes"], aeon["output_tokens"]) == (100, 7)
    assert aeon["wait_ms"] is not None
    # Of an answer that came at once nobody knows how long its first token took.
    assert (aeon["ttft_ms"], aeon["tok_s"]) == (None, None)
    assert row(meter, "keys", "ana")["output_tokens"] == 7
    assert row(meter, "keys", "ana")["errors"] == 0


def test_a_request_that_is_sent_at_once_waits_for_nothing() -> None:
    """A request sent at once is in flight from its beginning, with a wait of no length."""
    clock = Clock()
    meter = Meter(clock)
    one = meter.begin_sent("aeon", None)
    clock.now_s += 1.0
    assert (row(meter, "profiles", "aeon")["in_flight"], meter.waiting()) == (1, 0)
    one.end(200, CHAT, len(CHAT))
    aeon = row(meter, "profiles", "aeon")
    assert (aeon["requests"], aeon["wait_ms"]) == (1, {"p50": 0.001, "p99": 0.001})


def test_requests_that_are_counted_together_are_told_apart() -> None:
    """Requests that end in turns, many before any is counted, go to their own profiles and keys."""
    meter = Meter()
    for number in range(100):
        profile, key = ("aeon", "genesis")[number % 2], (ANA, None)[number % 3 == 0]
        meter.begin_sent(profile, key).end(200, CHAT, number)
    of = {name: row(meter, "profiles", name) for name in ("aeon", "genesis")}
    assert {name: found["bytes"] for name, found in of.items()} == {"aeon": 2450, "genesis": 2500}
    assert row(meter, "keys", "ana")["requests"] == 66


def test_a_client_that_leaves_is_no_error() -> None:
    """A request whose client hung up is counted as gone."""
    meter = Meter()
    meter.begin("aeon", None).end(0, b"")
    aeon = row(meter, "profiles", "aeon")
    assert (aeon["gone"], aeon["errors"], aeon["queued"]) == (1, 0, 0)


def test_a_request_that_moves_is_one_request() -> None:
    """A request that is rerouted after its wait counts once."""
    meter = Meter()
    meter.begin("aeon", ANA).end(307, b"")
    meter.begin("genesis", ANA).end(200, b"")
    counts = [row(meter, "profiles", name)["requests"] for name in ("aeon", "genesis")]
    assert (counts, row(meter, "keys", "ana")["requests"]) == ([0, 1], 1)


def test_streams_have_gaps_and_a_speed() -> None:
    """The first chunk brings the first token, and the others the time between them."""
    clock = Clock()
    meter = Meter(clock)
    request = meter.begin("aeon", None)
    clock.now_s += 3
    request.sent()
    clock.now_s += 0.4
    for _ in range(11):
        clock.now_s += 0.1
        request.chunk(10)
    request.end(200, PLAIN)
    aeon = row(meter, "profiles", "aeon")
    assert aeon["wait_ms"]["p50"] == pytest.approx(3000, rel=0.05)
    assert aeon["ttft_ms"]["p50"] == pytest.approx(500, rel=0.05)
    assert aeon["gap_ms"] == {
        "p50": pytest.approx(100, rel=0.05),
        "p99": pytest.approx(100, rel=0.05),
    }
    assert aeon["tok_s"] == pytest.approx(10)


def test_an_engines_own_speed_counts() -> None:
    """The speed that the engine reports is preferred to the measured one."""
    meter = Meter()
    request = meter.begin("aeon", None)
    request.sent()
    request.chunk(10)
    request.chunk(10)
    request.end(200, LLAMA)
    assert row(meter, "profiles", "aeon")["tok_s"] == 41.5


def test_a_stream_that_lasts_is_seen_before_its_end() -> None:
    """The gaps of a long stream are counted while it lasts."""
    clock = Clock()
    meter = Meter(clock)
    request = meter.begin("aeon", None)
    request.sent()
    for _ in range(3):
        clock.now_s += 1
        request.chunk(10)
    assert row(meter, "profiles", "aeon")["gap_ms"] is None
    clock.now_s += 9
    assert row(meter, "profiles", "aeon")["gap_ms"] is not None


@pytest.mark.parametrize(("later_s", "left"), [(301.0, True), (1000.0, False)])
def test_windows_turn_by_themselves(later_s: float, left: bool) -> None:  # noqa: FBT001
    """Times are of the last five to ten minutes; counts stay."""
    clock = Clock()
    meter = Meter(clock)
    request = meter.begin("aeon", None)
    request.sent()
    request.chunk(1)
    request.end(200, LLAMA)
    clock.now_s += later_s
    aeon = row(meter, "profiles", "aeon")
    assert (aeon["ttft_ms"] is not None, aeon["tok_s"] is not None) == (left, left)
    clock.now_s += later_s
    meter.begin("aeon", None).end(200, b"")
    assert row(meter, "profiles", "aeon")["requests"] == 2


def test_no_number_of_names_grows_for_ever() -> None:
    """The name that was used longest ago makes room; its open request is still counted."""
    meter = Meter()
    first = meter.begin("0", None)
    for number in range(1, MOST + 10):
        meter.begin(str(number), Key(name=str(number))).end(200, b"")
    document: Any = meter.document()
    assert (len(document["profiles"]), len(document["keys"])) == (MOST, MOST)
    assert "0" in document["profiles"]  # it is in use
    first.end(200, b"")


def test_a_chunk_costs_next_to_nothing() -> None:
    """13,000 a second must not be felt: 5 µs each would be 6 % of a core."""
    request = Meter().begin("aeon", None)
    request.sent()
    began_s = time.process_time()
    for _ in range(20_000):
        request.chunk(100)
    assert (time.process_time() - began_s) / 20_000 < 5e-6
