"""Prompts of probes."""

import hashlib

import pytest

from appliance.model.words import Series
from appliance.speed.probing.tasks import (
    CODING_TASKS,
    PREFILL,
    coding_task,
    in_one_piece,
    piece_tokens_of,
    prefill_name,
    prompt_text,
    series_of,
)

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
