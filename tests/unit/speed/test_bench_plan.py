"""Plan of a bench: stages, prompts and requests."""

from dataclasses import replace

import pytest

from appliance.model.errors import BackendError
from appliance.model.profile import WarmUp
from appliance.speed.bench_plan import (
    Workload,
    stage_prompt,
    stage_request,
    stages,
    swarm_levels,
    time_left_s,
)
from appliance.speed.bench_rows import Part
from appliance.speed.probe_prompts import CODING_TASKS
from tests.fakes.profiles import applied

SALT = "5a17"


def test_published_method() -> None:
    """One warm-up and one measured run of the five tasks, with at most 4096 tokens each."""
    warm_up, measured = stages(Workload())
    assert (warm_up.run, measured.run) == (0, 1)
    assert measured.prompts == tuple(CODING_TASKS)
    assert (measured.tokens, measured.exact, measured.concurrency) == (4096, False, 1)


def test_swarm_has_full_waves() -> None:
    """Each level has two waves at least, four requests at least, after a warm-up at four."""
    found = [s for s in stages(Workload(levels=swarm_levels(1, 5))) if s.part is Part.SWARM]
    assert [(s.run, s.concurrency, len(s.prompts)) for s in found] == [
        (0, 4, 8), (1, 1, 4), (1, 2, 4), (1, 3, 6), (1, 4, 8), (1, 5, 10),
    ]  # fmt: skip
    assert {s.tokens for s in found} == {8192}


def test_levels_always_have_the_serial_one() -> None:
    """Others are compared with it."""
    assert swarm_levels(4, 6) == (1, 4, 5, 6)


def test_depths_and_answers_follow() -> None:
    """Each depth has one long prompt a run after a short one that is counted, answers come last and are greedy."""
    found = stages(Workload(runs=2, depths=(32_000,), tokens=64, answers=True))
    assert [(s.part, s.run, s.tokens) for s in found[3:]] == [
        (Part.DEPTH, 0, 8),
        (Part.DEPTH, 1, 128),
        (Part.DEPTH, 2, 128),
        (Part.ANSWERS, 1, 256),
    ]
    assert all(s.exact for s in found[:6])


def test_prompts_of_levels_differ_beyond_their_salt() -> None:
    """No two levels of a swarm ask the same; a single task is asked as it is."""
    found = [s for s in stages(Workload(levels=swarm_levels(1, 20))) if s.run]
    texts = [
        {stage_prompt(s, number, SALT) for number in range(len(s.prompts))}
        for s in found
        if s.part is Part.SWARM
    ]
    assert not any(a & b for n, a in enumerate(texts) for b in texts[n + 1 :])
    assert stage_prompt(found[0], 0, SALT) == f"{SALT}\n\n{CODING_TASKS['lru-cache']}"
    assert all(text.startswith(f"{SALT}\n\n") for level in texts for text in level)


def test_long_prompt_is_scaled() -> None:
    """A tokenizer that makes fewer tokens of a text gets more of it."""
    depth = stages(Workload(depths=(1000,)))[-1]
    plain, longer = (stage_prompt(depth, 0, SALT, tokens_scale=scale) for scale in (1.0, 2.0))
    assert 1.9 < len(longer) / len(plain) < 2.1


def test_request_of_the_published_method() -> None:
    """Temperature 0.7, thinking off, streamed with usage, and no length but a limit."""
    profile = replace(applied("a"), engine="llama-server", warm_up=WarmUp.CHAT)
    stage = stages(Workload())[1]
    path, body = stage_request(profile, stage, "text", SALT, tokens=4096)
    assert path == "/v1/chat/completions"
    assert (body["temperature"], body["max_tokens"]) == (0.7, 4096)
    assert body["stream_options"] == {"include_usage": True}
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert "ignore_eos" not in body
    assert "seed" not in body


def test_request_of_exact_length() -> None:
    """The engine's own parameters fix the length and forbid a cached prompt."""
    profile = replace(applied("a"), engine="llama-server", warm_up=WarmUp.COMPLETION)
    stage = stages(Workload(tokens=64))[1]
    path, body = stage_request(profile, stage, "text", SALT, tokens=64)
    assert path == "/v1/completions"
    assert (body["n_predict"], body["ignore_eos"], body["cache_prompt"]) == (64, True, False)


def test_answers_are_greedy() -> None:
    """Temperature 0 and a fixed seed, also for an engine of no known kind."""
    profile = replace(applied("a"), engine="another", warm_up=WarmUp.COMPLETION)
    stage = stages(Workload(answers=True))[-1]
    _, body = stage_request(profile, stage, "text", SALT, tokens=256)
    assert (body["temperature"], body["seed"]) == (0, 1)


def test_profile_without_text_has_no_request() -> None:
    """An engine that embeds is not measured."""
    profile = replace(applied("a"), warm_up=WarmUp.EMBEDDING)
    stage = stages(Workload())[0]
    with pytest.raises(BackendError, match="generates no text"):
        stage_request(profile, stage, "text", SALT, tokens=1)


def test_time_left_follows_the_work_left() -> None:
    """Half of equal work takes as long again; a higher concurrency takes less time a request."""
    warm_up, measured = stages(Workload())
    assert time_left_s([], warm_up, 0, [measured], 3.0) is None
    assert time_left_s([warm_up], measured, 0, [], 30.0) == pytest.approx(30.0)
    assert time_left_s([], warm_up, 5, [measured], 30.0) == pytest.approx(30.0)
    assert time_left_s([warm_up], measured, 5, [], 30.0) == 0.0
    by_level = {s.concurrency: s.weight for s in stages(Workload(levels=(1, 8))) if s.run}
    assert by_level[8] < 16 * by_level[1] / 4
    deep = stages(Workload(depths=(131_072,)))[-1]
    assert deep.weight > measured.weight
