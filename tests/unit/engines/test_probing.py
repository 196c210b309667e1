"""An engine's part in a probe: request parameters, timings in its response, its version."""

import json

import pytest

from appliance.engines import ENGINES
from appliance.engines.shared.engine import VersionPage
from appliance.engines.shared.llama_cpp_report import timings_in
from appliance.model.measurements import RawTimings, TimingSource

# The last event of the embedded engine (llama.cpp b11549) for 12 tokens of SmolLM2.
LLAMA_CPP = json.loads(
    '{"choices":[],"created":1795357798,"id":"chatcmpl-z5Z3","model":"smol",'
    '"system_fingerprint":"b0-unknown","object":"chat.completion.chunk",'
    '"usage":{"completion_tokens":12,"prompt_tokens":38,"total_tokens":50,'
    '"prompt_tokens_details":{"cached_tokens":0}},"timings":{"cache_n":0,"prompt_n":38,'
    '"prompt_ms":131.984,"prompt_per_token_ms":3.473263157894737,'
    '"prompt_per_second":287.9136865074554,"predicted_n":12,"predicted_ms":176.843,'
    '"predicted_per_token_ms":16.076636363636364,"predicted_per_second":62.202066239545815}}'
)


@pytest.mark.parametrize("name", ["llama-server", "xllamacpp", "command"])
def test_llama_cpp_tells_its_timings(name: str) -> None:
    """The decode time of llama.cpp covers all tokens but the first, as its own time per token shows."""
    found = ENGINES[name].probing.timings(LLAMA_CPP)
    assert found == RawTimings(
        source=TimingSource.ENGINE,
        prompt_tokens=38,
        cached_tokens=0,
        prefill_s=131.984 / 1e3,
        output_tokens=12,
        decoded_tokens=11,
        decode_s=176.843 / 1e3,
        drafted_tokens=0,
        accepted_tokens=0,
    )
    per_token_ms = LLAMA_CPP["timings"]["predicted_per_token_ms"]
    assert found.decode_s is not None
    assert found.decode_s / found.decoded_tokens == pytest.approx(per_token_ms / 1e3)


def test_drafts_are_counted() -> None:
    """The members draft_n and draft_n_accepted of a build that speculates are read."""
    drafted = {**LLAMA_CPP["timings"], "draft_n": 20, "draft_n_accepted": 7}
    found = timings_in({"timings": drafted})
    assert found is not None
    assert (found.drafted_tokens, found.accepted_tokens) == (20, 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"predicted_ms": None},
        {"predicted_ms": True},
        {"predicted_ms": float("nan")},
        {"predicted_ms": -1.0},
        {"prompt_ms": "131.9"},
        {"prompt_ms": 10**400},
        {"predicted_n": 12.0},
        {"prompt_n": -1},
    ],
)
def test_malformed_timings_are_none(changes: dict[str, object]) -> None:
    """A member of another type, or out of range, makes the timings unknown."""
    assert timings_in({"timings": {**LLAMA_CPP["timings"], **changes}}) is None
    assert timings_in({"timings": []}) is None
    assert timings_in({}) is None


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_other_engines_tell_no_timings(name: str) -> None:
    """Responses of vLLM and SGLang are measured by metrics."""
    engine = ENGINES[name]
    assert engine.probing.timings(LLAMA_CPP) is None
    assert engine.metrics.finished
    assert engine.metrics.decode_s


@pytest.mark.parametrize("name", ENGINES)
def test_a_request_has_an_exact_length(name: str) -> None:
    """No engine ends before the number of tokens, goes on after it, or reuses a cached prompt."""
    parameters = ENGINES[name].probing.parameters(64, "salt")
    assert {parameters.get("max_tokens"), parameters.get("n_predict")} - {None} == {64}
    assert parameters.get("min_tokens", 64) == 64
    assert parameters["ignore_eos"] is True
    assert parameters.get("cache_salt") == "salt" or parameters.get("cache_prompt") is False
    chat = ENGINES[name].probing.chat_parameters
    assert chat == {"chat_template_kwargs": {"enable_thinking": False}}


@pytest.mark.parametrize(
    ("name", "page", "version"),
    [
        # vllm/entrypoints/serve/instrumentator/basic.py, show_version
        ("vllm", '{"version":"0.33.0"}', "0.33.0"),
        # sglang/srt/entrypoints/http_server.py, server_info
        ("sglang", '{"model_path":"m","version":"0.5.23"}', "0.5.23"),
        # llama.cpp, tools/server/server-context.cpp, get_props
        ("llama-server", '{"total_slots":1,"build_info":"b11549-0ab1c2d"}', "b11549-0ab1c2d"),
    ],
)
def test_an_engine_tells_its_version(name: str, page: str, version: str) -> None:
    """The version stands in a member of a page of the engine."""
    source = ENGINES[name].probing.version_page
    assert source is not None
    assert source.read(page) == version


@pytest.mark.parametrize(
    "page", ["", "[", "[" * 100_000, "[]", "{}", '{"v":1}', '{"v":""}', '{"v":"%s"}' % ("a" * 121)]
)
def test_a_page_without_version_is_none(page: str) -> None:
    """A page that is no such document tells no version."""
    assert VersionPage(path="/v", key="v").read(page) is None
