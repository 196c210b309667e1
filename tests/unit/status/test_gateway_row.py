"""Row of the gateway in the status, with the figures of engines."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines.shared.llama_cpp_report import kv_cache_in_slots
from appliance.model.gateway import EngineLoad
from appliance.model.status import ListeningRow
from appliance.status.engine_load import kv_cache_page, load_in
from appliance.status.gateway_row import gateway_row
from appliance.wire.typed_json import from_json

LLAMA = """\
# HELP llamacpp:requests_processing Number of requests processing
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
llamacpp:requests_deferred 1
llamacpp:n_busy_slots_per_decode 1
"""
VLLM = """\
vllm:num_requests_running{engine="0",model_name="a b} 9"} 3.0
vllm:num_requests_running{engine="1",model_name="a b} 9"} 1.0
vllm:num_requests_waiting{engine="0",model_name="x"} 0.0
vllm:kv_cache_usage_perc{engine="0",model_name="x"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="x"} 0.5 1700000000
vllm:gpu_cache_usage_perc{engine="1",model_name="x"} 0.9
"""
VLLM_CACHE = """\
vllm:prefix_cache_queries_total{engine="0",model_name="x"} 22000.0
vllm:prefix_cache_queries_total{engine="1",model_name="x"} 752.0
vllm:prefix_cache_queries_created{engine="0",model_name="x"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="x"} 6272.0
"""
SGLANG_CACHE = """\
sglang:prompt_tokens_total{model_name="x"} 90.0
sglang:cached_tokens_total{cache_source="device",model_name="x"} 40.0
sglang:cached_tokens_total{cache_source="host",model_name="x"} 1.0
"""
SGLANG = """\
sglang:num_running_reqs{model_name="x"} 4.0
sglang:num_queue_reqs{model_name="x"} 7.0
sglang:token_usage{model_name="x"} 0.28
"""


@pytest.mark.parametrize(
    ("metrics", "load"),
    [
        (LLAMA, EngineLoad(running=2, queued=1)),
        ("llamacpp:kv_cache_usage_ratio 0.5\n", EngineLoad(kv_cache=0.5)),
        (VLLM, EngineLoad(running=4, queued=0, kv_cache=0.5)),
        ("vllm:gpu_cache_usage_perc 1.2\n", EngineLoad(kv_cache=1.0)),
        (SGLANG, EngineLoad(running=4, queued=7, kv_cache=0.28)),
        (VLLM_CACHE, EngineLoad(prefix_queries=22752, prefix_hits=6272)),
        (SGLANG_CACHE, EngineLoad(prefix_queries=90, prefix_hits=41)),
        ("", EngineLoad()),
        ("<html>\n", EngineLoad()),
        ("sglang:num_queue_reqs NaN\nsglang:num_queue_reqs -1\n", EngineLoad()),
        ("sglang:num_queue_reqs\nsglang:num_running_reqs many\n", EngineLoad()),
    ],
)
def test_load_by_engine(metrics: str, load: EngineLoad) -> None:
    """Ranks are added up, of caches the fullest counts, and what is missing is unknown."""
    assert load_in(metrics) == load


@given(st.text())
def test_any_page_is_read(metrics: str) -> None:
    """No page of an engine is an error."""
    load_in(metrics)
    kv_cache_in_slots(metrics, False)  # noqa: FBT003


@pytest.mark.parametrize(
    ("slots", "share"),
    [
        ([{"n_ctx": 100, "is_processing": True, "n_past": 50}, {"n_ctx": 100}], 0.25),
        (
            [
                {
                    "n_ctx": 100,
                    "is_processing": True,
                    "n_prompt_tokens": 15,
                    "next_token": [{"n_decoded": 5}],
                }
            ],
            0.15,
        ),
        ([{"n_ctx": 9, "is_processing": True, "n_prompt_tokens": 10}], 1.0),
        ([{"n_ctx": 100, "is_processing": True, "next_token": None}], 0.0),
        ([{"n_ctx": 100, "is_processing": False, "n_past": 90}], 0.0),
        ([{"n_ctx": True}, 1], None),
        ({"error": {"code": 501}}, None),
    ],
)
def test_cache_by_slots(slots: object, share: float | None) -> None:
    """A slot that rests takes nothing that another request could not have."""
    assert kv_cache_in_slots(json.dumps(slots), False) == share  # noqa: FBT003


@pytest.mark.parametrize(("shares_cache", "share"), [(True, 0.305), (False, 0.1525)])
def test_a_shared_cache_is_counted_once(shares_cache: bool, share: float) -> None:  # noqa: FBT001
    """Each slot repeats the whole of a cache that all requests share."""
    slots = [
        {"n_ctx": 2000, "is_processing": True, "n_prompt_tokens": 410},
        {"n_ctx": 2000, "is_processing": True, "n_prompt_tokens": 200},
    ]
    assert kv_cache_in_slots(json.dumps(slots), shares_cache) == share


@pytest.mark.parametrize(
    ("engine", "path"), [("llama-server", "/slots"), ("vllm", None), ("of an older release", None)]
)
def test_who_has_a_page_of_its_cache(engine: str, path: str | None) -> None:
    """llama-server tells its cache slot by slot; others have a metric or nothing."""
    page = kv_cache_page(engine)
    assert (page and page.path) == path


NOTHING = {
    "requests": 0,
    "in_flight": 0,
    "queued": 0,
    "quiet_s": None,
    "errors": 0,
    "gone": 0,
    "retried": 0,
    "bytes": 0,
    "output_tokens": 0,
    "decoded_tokens": 0,
    "decode_s": 0.0,
    "prompt_tokens": 0,
    "cached_tokens": 0,
    "tok_s": None,
    "wait_ms": None,
    "ttft_ms": None,
    "gap_ms": None,
    "engine": None,
}


def test_row_of_a_gateway_that_does_not_answer() -> None:
    """Engines' figures are shown even without an answer of the gateway."""
    loads = {"aeon": EngineLoad(queued=2), "mute": None, "empty": EngineLoad()}
    row = gateway_row(None, loads, age_s=1.04, loads_age_s=2.0)
    engine = {"running": None, "queued": 2, "kv_cache": None}
    assert msgspec.to_builtins(row) == {
        "state": "down",
        "uptime_s": None,
        "sampled_age_s": 1.0,
        "engines_age_s": 2.0,
        "listening": None,
        "profiles": [
            {**NOTHING, "name": "aeon", "engine": engine},
            {**NOTHING, "name": "empty"},
            {**NOTHING, "name": "mute"},
        ],
        "keys": [],
    }


def test_where_clients_are_served_is_told() -> None:
    """Words and counts of the gateway are kept; of a later release's words the nearest is."""
    told: dict[str, object] = {
        "addresses": ["127.0.0.1:8010", "192.0.2.5:8010"],
        "absent": ["wg0"],
        "tls": "waiting",
        "keys": 2,
        "closed": False,
        "engine_keys": ["a"],
    }
    renewed = {**told, "tls": "renewed"}
    row = gateway_row({"listening": told}, {}, age_s=0.0, loads_age_s=None)
    assert row.listening == from_json(ListeningRow, told)
    row = gateway_row({"listening": renewed}, {}, age_s=0.0, loads_age_s=None)
    assert row.listening == from_json(ListeningRow, renewed)
    later = {"addresses": None, "tls": "quantum", "keys": "2", "closed": 1}
    row = gateway_row({"listening": later}, {}, age_s=0.0, loads_age_s=None)
    assert msgspec.to_builtins(row.listening) == {
        "addresses": [],
        "absent": [],
        "tls": "off",
        "keys": 0,
        "closed": False,
        "engine_keys": [],
    }


def test_row_of_a_gateway_of_another_release() -> None:
    """A field that another release leaves out or changes is unknown, and no error."""
    stats = {
        "uptime_s": True,
        "profiles": {
            "aeon": {"requests": 3, "tok_s": 41, "ttft_ms": {"p50": 1.5, "p99": 2.0}},
            "odd": {"requests": "many", "ttft_ms": {"p50": 1.0}, "gap_ms": 7},
            "none": None,
        },
        "keys": {"ana": {"requests": 2}},
    }
    row = gateway_row(stats, {}, age_s=0.0, loads_age_s=None)
    assert (row.state, row.uptime_s) == ("up", None)
    ttft = {"p50": 1.5, "p99": 2.0}
    assert msgspec.to_builtins(row.profiles) == [
        {**NOTHING, "name": "aeon", "requests": 3, "tok_s": 41.0, "ttft_ms": ttft},
        {**NOTHING, "name": "odd"},
    ]
    assert [(key.name, key.requests) for key in row.keys] == [("ana", 2)]
    odd = gateway_row({"profiles": 1}, {}, age_s=0.0, loads_age_s=None)
    assert odd.profiles == []
