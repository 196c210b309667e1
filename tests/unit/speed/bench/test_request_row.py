"""Observer of a response: times, counts, and why a response is none to count."""

import json
from collections.abc import Mapping

import pytest

from appliance.speed.bench.request_row import Part, RequestLabel, RequestRow, ResponseObserver

LABEL = RequestLabel(profile="a", part=Part.SINGLE, run=1, concurrency=1, prompt="lru-cache")


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def piece(text: str, **more: object) -> bytes:
    return event({"choices": [{"delta": {"content": text}, **more}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 5}})
DONE = b"data: [DONE]\n\n"


def observed(*pieces: bytes, keep_text: bool = False) -> ResponseObserver:
    observer = ResponseObserver(LABEL, keep_text=keep_text)
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
    observer = ResponseObserver(LABEL)
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
