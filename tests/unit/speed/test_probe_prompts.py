"""Prompts of probes, their pieces, and the requests with them."""

import hashlib
import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.model.measurements import RawTimings, TimingSource
from appliance.model.profile import WarmUp
from appliance.model.words import Series
from appliance.speed.probe_prompts import (
    CODING_TASKS,
    FEWEST_PIECE_TOKENS,
    MOST_PIECE_S,
    PREFILL,
    PieceSize,
    coding_task,
    continues,
    crowd_text,
    in_one_piece,
    piece_tokens_of,
    prefill_name,
    prefixes,
    probe_request,
    prompt_text,
    series_of,
)
from tests.fakes.profiles import applied

DIGESTS = {
    "lru-cache": "5754d25cfe14fe9f",
    "merge-sort": "cc19f16ba12e33c1",
    "cron-parser": "9cbf49c9c47bec9f",
    "web-route": "4433583178402ac5",
    "rate-limiter": "a614f87fb3710728",
    "prefill": "1dee5f9fbc6ea109",
    "prefill-512": "7359daabf9f6ed9a",
}
NAMES = [*CODING_TASKS, "prefill", "prefill-512"]


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_begins_with_its_salt(name: str) -> None:
    """Two prompts with different salts differ from their first character."""
    assert prompt_text(name, "5f1c") == "5f1c" + prompt_text(name, "a07b")[4:]


def test_five_tasks_take_turns() -> None:
    """Each coding task is asked once in five probes, always in the same order."""
    turns = [coding_task(number) for number in range(12)]
    assert turns == [*CODING_TASKS, *CODING_TASKS, *CODING_TASKS][:12]
    assert len(CODING_TASKS) == 5


def test_a_text_never_changes() -> None:
    """Every prompt has a baseline of its own: a new wording needs a new name."""
    texts = {name: prompt_text(name, "") for name in NAMES}
    found = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in texts.items()}
    assert found == DIGESTS


@pytest.mark.parametrize("tokens", [128, 512, 2048])
def test_the_long_prompt_has_its_size(tokens: int) -> None:
    """At three characters a token it is at most an entry longer than wanted."""
    name = prefill_name(tokens)
    assert (name == PREFILL) == (tokens == 2048)
    assert 0 <= len(prompt_text(name, "")) - 3 * tokens < 250


@pytest.mark.parametrize(
    ("tokens", "piece_tokens", "name"),
    [(512, 64, "prefill-512/p64"), (2048, 512, "prefill/p512"), (512, 512, "prefill-512")],
)
def test_the_size_of_its_pieces_belongs_to_the_name_of_a_prompt(
    tokens: int, piece_tokens: int, name: str
) -> None:
    """Another size is another prompt with the same text; what fits into one piece has none."""
    assert prefill_name(tokens, piece_tokens) == name
    assert piece_tokens_of(name) == (piece_tokens if piece_tokens < tokens else None)
    assert in_one_piece(name) == prefill_name(tokens)
    assert prompt_text(name, "f00") == prompt_text(prefill_name(tokens), "f00")
    assert series_of(name) is Series.PREFILL


def test_no_line_of_the_long_prompt_is_repeated() -> None:
    """A prompt that repeats itself would be easier for caches and drafts than text is."""
    lines = [line.partition(". ")[2] for line in prompt_text(PREFILL, "").splitlines()[3:]]
    assert len(lines) > 40
    assert len(set(lines)) == len(lines)


def test_each_prompt_has_its_series() -> None:
    """Coding tasks measure decoding, the long prompt prefill."""
    assert [series_of(name) for name in NAMES] == [Series.DECODE] * 5 + [Series.PREFILL] * 2


def piece(evaluated: int, cached: int = 0, *, prefill_s: float = 0.01) -> RawTimings:
    return RawTimings(
        source=TimingSource.ENGINE,
        prompt_tokens=evaluated + cached,
        cached_tokens=cached,
        prefill_s=prefill_s,
        output_tokens=1,
        decoded_tokens=0,
        decode_s=0.0,
        ttft_s=prefill_s,
    )


def searched(tok_s: float, overhead_s: float = 0.0) -> tuple[int, float]:
    """Return the size that a search finds for an engine, and the longest piece on the way."""
    size, longest_s = PieceSize(), 0.0
    while not size.settled:
        took_s = overhead_s + size.tokens / tok_s
        longest_s = max(longest_s, took_s)
        size = size.after(piece(size.tokens, prefill_s=took_s))
    assert size.after(piece(1, prefill_s=9.0)) == size
    return size.tokens, longest_s


def test_a_slow_engine_gets_small_pieces() -> None:
    """The size is the largest power of two that takes 20 ms, at least 2 tokens."""
    assert searched(1500.0) == (16, 32 / 1500.0)
    assert searched(300.0) == (4, 16 / 300.0)
    assert searched(140.0)[0] == FEWEST_PIECE_TOKENS
    assert searched(20.0)[0] == FEWEST_PIECE_TOKENS
    assert searched(1100.0, overhead_s=0.01)[0] == 8


def test_a_fast_engine_gets_one_piece() -> None:
    """A GPU that evaluates 2048 tokens in 20 ms gets them at once."""
    assert searched(110_000.0)[0] == 2048
    assert searched(6000.0, overhead_s=0.004)[0] == 64


@given(st.floats(min_value=800.0, max_value=1e6), st.floats(min_value=0.0, max_value=0.01))
def test_the_search_delays_nobody_for_long(tok_s: float, overhead_s: float) -> None:
    """No piece of a search takes more than 30 ms where the first takes less."""
    tokens, longest_s = searched(tok_s, overhead_s)
    assert longest_s <= 0.03
    assert tokens == FEWEST_PIECE_TOKENS or overhead_s + tokens / tok_s <= MOST_PIECE_S


@pytest.mark.parametrize("tokens", [2, 4, 32])
def test_prefixes_grow_by_a_piece_each(tokens: int) -> None:
    """Each is the beginning of the prompt, and adds a piece at most, of whole words where they fit."""
    for name in (*CODING_TASKS, "prefill-512"):
        text = prompt_text(name, "01234567")
        found = ["", *prefixes(text, tokens), text]
        assert len(found) > 3
        for shorter, longer in itertools.pairwise(found):
            assert longer.startswith(shorter)
            added = longer[len(shorter) :]
            assert 0 < len(added) <= 3 * tokens
            is_whole = longer == text or text[len(longer)] in " \n"
            assert is_whole or not (set(added[1:]) & set(" \n"))


def test_a_prompt_that_fits_into_a_piece_has_no_prefixes() -> None:
    """One request is enough, and a text without spaces is cut anywhere."""
    assert prefixes("short", 16) == []
    assert prefixes("x" * 100, 16) == ["x" * 48, "x" * 96]


def test_a_piece_goes_on_where_the_one_before_ended() -> None:
    """An engine uses all but the last word again; one that begins anew is found out."""
    assert continues(piece(200, 0), piece(40, 199))
    assert not continues(piece(200, 0), piece(240, 0))
    assert not continues(piece(40, 193), piece(180, 93))
    assert continues(piece(6), piece(6, 4))
    assert not continues(piece(6), piece(10, 0))


@pytest.mark.parametrize(
    ("share", "cpus", "is_crowded"),
    [
        (None, 2, False),
        (0.2, 2, False),
        (0.3, 2, True),
        (1.0, 1, True),
        (0.12, 8, True),
        (0.09, 64, False),
        (0.11, 64, True),
    ],
)
def test_others_that_may_make_steps_long(share: float | None, cpus: int, is_crowded: bool) -> None:  # noqa: FBT001
    """Half a core counts on a small box, a tenth on a large one, and nothing where it is not known."""
    assert bool(crowd_text(share, cpus)) is is_crowded


FIXED = {"temperature": 0, "seed": 1, "stream": True, "stream_options": {"include_usage": True}}
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("engine", "parameters"),
    [
        (
            "vllm",
            {"max_tokens": 32, "min_tokens": 32, "ignore_eos": True, "cache_salt": "f00"},
        ),
        (
            "of a later release",
            {"max_tokens": 32, "min_tokens": 32, "ignore_eos": True, "cache_salt": "f00"},
        ),
    ],
)
def test_a_probe_is_greedy_of_fixed_length_and_without_thinking(
    engine: str, parameters: dict[str, object]
) -> None:
    """A chat model is asked in its engine's words, and streams with its usage at the end."""
    profile = replace(applied("alpha"), engine=engine, served=("m",), warm_up=WarmUp.CHAT)
    request = probe_request(profile, "f00 Why?", output_tokens=32, salt="f00")
    messages = [{"role": "user", "content": "f00 Why?"}]
    body = {"model": "m", "messages": messages, **FIXED, **parameters, **NO_THINKING}
    assert request == ("/v1/chat/completions", body)


def test_an_engine_that_takes_pieces_gets_no_template() -> None:
    """llama.cpp completes the text itself, so that the end of a piece is the end of its prompt."""
    profile = replace(applied("alpha"), engine="llama-server", served=("m",), warm_up=WarmUp.CHAT)
    request = probe_request(profile, "f00 Why?", output_tokens=32, salt="f00")
    parameters = {"n_predict": 32, "ignore_eos": True, "cache_prompt": False}
    body = {"model": "m", "prompt": "f00 Why?", **FIXED, **parameters}
    assert request == ("/v1/completions", body)


@pytest.mark.parametrize(("engine", "reused"), [("xllamacpp", True), ("vllm", None)])
def test_a_piece_reuses_the_prompt_of_the_one_before(engine: str, reused: bool | None) -> None:  # noqa: FBT001
    """llama.cpp is told to reuse its cache; another engine has no parameters for it."""
    profile = replace(applied("alpha"), engine=engine)
    request = probe_request(profile, "Why", output_tokens=1, salt="f00", continues=True)
    assert request is not None
    assert request[1].get("cache_prompt") is reused


def test_a_model_without_chat_has_no_template() -> None:
    """A text completion carries no parameters for a chat template."""
    profile = replace(applied("alpha"), engine="sglang", warm_up=WarmUp.COMPLETION)
    request = probe_request(profile, "Why?", output_tokens=32, salt="f00")
    assert request is not None
    assert request[0] == "/v1/completions"
    assert "chat_template_kwargs" not in request[1]


def test_an_embedding_model_is_not_probed() -> None:
    """A profile that generates no text has no request."""
    profile = replace(applied("alpha"), warm_up=WarmUp.EMBEDDING)
    assert probe_request(profile, "Why?", output_tokens=32, salt="f00") is None
