"""Request of a probe."""

from dataclasses import replace

import pytest

from appliance.model.profile import WarmUp
from appliance.speed.probing.request import probe_request
from tests.fakes.profiles import applied

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
