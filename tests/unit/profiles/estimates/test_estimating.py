"""Estimates: what a model takes on GPUs and in RAM, from its dimensions."""

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.engines import ENGINES
from appliance.engines.shared.engine import DraftLoading, LlamaCppLoading, MemoryUse
from appliance.engines.shared.invocation import InvocationContext
from appliance.model.memory_parts import MemoryParts, SettingChange
from appliance.model.model_headers import (
    Gguf,
    Model,
    ModelFileFault,
    ModelReference,
    Safetensors,
    Tensor,
    Unread,
    Value,
)
from appliance.model.profile import Estimate
from appliance.model.spec import Profile
from appliance.profiles.compilation import ProfileSource, spec_of
from appliance.profiles.estimates import llama_cpp
from appliance.profiles.estimates.estimating import estimated
from appliance.profiles.estimates.gguf_layers import GgufFacts, UnknownError
from appliance.profiles.estimates.llama_cpp import (
    expert_layers,
    kept_in_ram,
    layers_on_gpus,
    weights,
)
from appliance.system.profile_files.loading import parse_profile

MIB = 1 << 20
GIB = 1 << 30
DIMENSIONS: dict[str, Value] = {
    "general.architecture": "llama",
    "llama.block_count": 4,
    "llama.context_length": 8192,
    "llama.embedding_length": 1024,
    "llama.feed_forward_length": 4096,
    "llama.attention.head_count": 16,
    "llama.attention.head_count_kv": 4,
    "llama.vocab_size": 32000,
}
TENSORS = (
    Tensor("token_embd.weight", 100),
    *(Tensor(f"blk.{i}.attn_q.weight", 10) for i in range(4)),
    *(Tensor(f"blk.{i}.ffn_up_exps.weight", 1000) for i in range(4)),
    Tensor("output_norm.weight", 1),
    Tensor("output.weight", 50),
)


def gguf(**changes: Value | None) -> Gguf:
    """The model, with other values by the last part of their key; None removes one."""
    metadata = dict(DIMENSIONS)
    for key, value in changes.items():
        name = key.replace("__", ".")
        if value is None:
            del metadata[name]
        else:
            metadata[name] = value
    return Gguf(metadata=metadata, tensors=TENSORS, file_bytes=6000)


def profile(text: str) -> Profile:
    head = 'engine = "llama-server"\nbinary = "/b"\nmodel = "/m.gguf"\nport = 9000\n'
    return parse_profile("p", (text if "engine" in text else head + text).encode())


def memory_of(text: str) -> MemoryUse:
    """Return the memory use that a profile's engine reports."""
    one = profile(text)
    return ENGINES[one.engine].memory(one)


def estimate(text: str, model: Gguf | Safetensors, projector: int = 0) -> Estimate:
    found = estimated(profile(text), "/m", lambda _: Model(main=model, projector_bytes=projector))
    assert found.estimate is not None, found.problem
    assert found.file_bytes == model.file_bytes + projector
    return found.estimate


def why_not(text: str, model: Gguf | Safetensors) -> str:
    found = estimated(profile(text), "/m", lambda _: Model(main=model))
    assert found.estimate is None
    return found.problem


ALL = 4 * 1010 + 51
EXPERTS = "[llama-server]\ncpu_experts"


def test_dense_layers_go_where_they_are_told() -> None:
    """The first layers' feed-forward networks stay in main memory; their experts are another option."""
    kept = kept_in_ram(LlamaCppLoading(cpu_ffn=2))
    assert [kept(f"blk.{n}.ffn_{part}.weight") for n in (0, 1, 2) for part in ("up", "down")] == [
        *(True,) * 4,
        *(False,) * 2,
    ]
    assert not kept("blk.0.ffn_up_exps.weight")
    assert not kept("blk.10.attn_q.weight")


@pytest.mark.parametrize(
    ("text", "gpu", "least", "ram"),
    [
        ("", ALL, 4 * 1010, 100),
        ("gpus = []\n", 0, 0, 100 + ALL),
        ("[llama-server]\ngpu_layers = 0\n", 0, 0, 100 + ALL),
        ("[llama-server]\ngpu_layers = 2\n", 1010 + 51, 1010, 100 + 3 * 1010),
        ("[llama-server]\ngpu_layers = 999\n", ALL, 4 * 1010, 100),
        (f'{EXPERTS} = "all"\n', 40 + 51, 40, 100 + 4000),
        (f'{EXPERTS} = "2-3"\n', 2040 + 51, 2040, 100 + 2000),
        ("[llama-server]\nn_cpu_moe = 3\n", 1040 + 51, 1040, 100 + 3000),
        ("[llama-server]\nn_cpu_moe = 1\n", 3040 + 51, 3040, 100 + 1000),
        (
            "[llama-server]\noverride_tensor = ['blk\\.0\\.=CPU', 'attn=CPU']\n",
            3051,
            3000,
            100 + 1040,
        ),
        ('[llama-server]\noverride_tensor = ["x=CUDA1"]\n', ALL, 4 * 1010, 100),
    ],
)
def test_weights_go_where_llama_cpp_puts_them(text: str, gpu: int, least: int, ram: int) -> None:
    """The last layers first, the output with them, inputs never, and experts where they are told."""
    one = profile(text)
    loading = memory_of(text).loading
    assert isinstance(loading, LlamaCppLoading)
    on_gpus = layers_on_gpus(one, loading.gpu_layers, 4)
    placed = weights(TENSORS, 4, on_gpus, kept_in_ram(loading), 4)
    assert (placed.gpu, placed.least_gpu, placed.ram) == (gpu, least, ram)
    without_cache = gguf(llama__attention__head_count_kv=0)
    assert estimate(text, without_cache).least_vram_bytes == least


def test_tied_embeddings_are_there_twice() -> None:
    """Without an output of its own the model's embeddings are copied to the GPU."""
    placed = weights(TENSORS[:-1], 4, 5, lambda _: False, 4)
    assert (placed.gpu, placed.ram) == (4 * 1010 + 1 + 100, 100)


TOKEN = 4 * 64 * 2 * 2
"""Keys and values of a token in a layer: KV heads x head size x 2 x F16."""


@pytest.mark.parametrize(
    ("text", "cells", "per_token"),
    [
        ("ctx = 4096\n", 4096, TOKEN),
        ("ctx = 4000\n", 4096, TOKEN),
        ("ctx = 4096\nparallel = 3\n", 3 * 4096, TOKEN),
        ("ctx = 4096\nparallel = 3\n[llama-server]\nkv_unified = true\n", 4096, TOKEN),
        ("", 8192, TOKEN),
        ("parallel = 2\n", 8192, TOKEN),
        ('ctx = 4096\nkv = "q8_0"\n', 4096, TOKEN // 2 // 32 * 34),
        ('ctx = 4096\nkv = { k = "q8_0", v = "f32" }\n', 4096, 256 // 32 * 34 + 256 * 4),
    ],
)
def test_the_cache_is_what_every_request_may_use(text: str, cells: int, per_token: int) -> None:
    """The context of one request, padded, times the requests; by the types of keys and values."""
    with_cache = estimate(text, gguf())
    one = estimate(text, gguf(llama__attention__head_count_kv=0))
    assert with_cache.vram.cache_bytes == 4 * cells * per_token
    assert with_cache.least_vram_bytes - one.least_vram_bytes == 4 * cells * per_token
    assert one.ram_bytes == with_cache.ram_bytes


def test_a_cache_may_stay_in_ram() -> None:
    """With the layers on the CPU, or told so, the cache counts there."""
    on_gpu = estimate("ctx = 4096\n", gguf())
    told = estimate("ctx = 4096\n[llama-server]\nkv_offload = false\n", gguf())
    moved = 4 * 4096 * TOKEN
    assert on_gpu.vram_bytes - told.vram_bytes == told.ram_bytes - on_gpu.ram_bytes == moved
    half = estimate("ctx = 4096\n[llama-server]\ngpu_layers = 3\n", gguf())
    assert half.ram.weights_bytes + half.ram.cache_bytes == 100 + 2 * 1010 + moved // 2
    assert told.least_vram_bytes == half.least_vram_bytes - moved // 2 + 2 * 1010


BUFFERS = (512 * (16 * 1024 + 2 * 4096 + 8192) + 32000) * 4
"""Compute buffers of the model: activations and mask of 512 tokens, and the logits of one."""


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("gpus = [0, 1]\n", 384 * MIB + BUFFERS),
        ("[llama-server]\ntensor_split = [3, 1]\n", 384 * MIB + BUFFERS),
        ('gpus = [0, 1]\n[llama-server]\nsplit_mode = "none"\n', 0),
        ("[llama-server]\nexpert_cache_mib = 64\n", 64 * MIB),
        ("[llama-server]\nflash_attn = false\n", 512 * 8192 * 16 * 4),
        ("[llama-server]\nubatch = 1024\n", 512 * (16 * 1024 + 2 * 4096 + 8192) * 4),
        ("[llama-server]\nbatch = 256\n", -256 * (16 * 1024 + 2 * 4096 + 8192) * 4),
        ('[llama-server]\nmmproj = "/p.gguf"\n', 77),
    ],
)
def test_what_comes_on_top(text: str, more: int) -> None:
    """A context and buffers a GPU, expert caches, scores without flash attention, larger batches."""
    projector = 77 if "mmproj" in text else 0
    difference = estimate(text, gguf(), projector).vram_bytes - estimate("", gguf()).vram_bytes
    assert difference == more


def test_logits_are_those_of_the_sampled_tokens() -> None:
    """Four requests sample four tokens of a batch, each with three drafts sixteen."""
    one, four = estimate("", gguf()), estimate("parallel = 4\n", gguf())
    assert four.vram.compute_bytes - one.vram.compute_bytes == 3 * 32000 * 4
    drafting = 'parallel = 4\nspeculative = { method = "mtp", tokens = 3 }\n'
    more = estimate(drafting, gguf()).vram.compute_bytes
    assert more - four.vram.compute_bytes == 12 * 32000 * 4


def test_without_gpus_everything_is_in_ram() -> None:
    """An embedded engine takes no VRAM, and its cache of 2048 tokens is in RAM."""
    text = 'engine = "xllamacpp"\nmodel = "/m.gguf"\nport = 9000\n'
    found = estimate(text, gguf())
    assert (found.vram_bytes, found.least_vram_bytes) == (0, 0)
    buffers = (512 * (16 * 1024 + 2 * 4096 + 2048) + 2 * 32000) * 4
    assert found.ram_bytes == 100 + ALL + 4 * 2048 * TOKEN + buffers
    assert found.vram == MemoryParts()
    assert [one.setting for one in found.alternatives] == ["ctx = 1024"]


def test_projector_may_stay_in_ram() -> None:
    """An option keeps a projector in main memory, and one of a repository counts unless refused."""
    table = '[llama-server]\nmmproj = "/p.gguf"\n'
    moved = estimate(f"{table}mmproj_offload = false\n", gguf(), 77)
    assert (moved.vram.weights_bytes, moved.ram.weights_bytes) == (ALL, 100 + 77)
    asked: list[ModelReference] = []

    def look(reference: ModelReference) -> Unread:
        asked.append(reference)
        return Unread(fault=ModelFileFault.MISSING, problem="")

    for further in ("", "[llama-server]\nmmproj_auto = false\n"):
        text = f'engine = "llama-server"\nbinary = "/b"\nmodel = "hf:a/b"\nport = 9000\n{further}'
        estimated(profile(text), "/m", look)
    estimated(profile(table), "/m", look)
    assert [one.brings_projector for one in asked] == [True, False, False]


def test_parts_are_the_whole() -> None:
    """The parts in each memory add up to its figure, with checkpoints of a request's window."""
    windowed = gguf(
        llama__attention__sliding_window=512,
        llama__attention__sliding_window_pattern=(True, False, True, False),
    )
    found = estimate("ctx = 4096\nparallel = 2\n", windowed)
    assert found.vram.total_bytes == found.vram_bytes
    assert found.ram.total_bytes == found.ram_bytes
    assert found.ram.checkpoints_bytes == 2 * 32 * 2 * 1024 * TOKEN
    fewer = estimate("ctx = 4096\n[llama-server]\nctx_checkpoints = 3\n", windowed)
    assert fewer.ram.checkpoints_bytes == 3 * 2 * 1024 * TOKEN
    whole = estimate("ctx = 4096\n[llama-server]\nswa_full = true\n", windowed)
    assert whole.ram.checkpoints_bytes == 0
    assert whole.vram.cache_bytes == 4 * 4096 * TOKEN


def test_alternatives_are_half_the_context_and_a_smaller_cache() -> None:
    """Each has the parts of a profile that is changed so; what cannot be smaller is not proposed."""
    found = estimate("ctx = 4096\n", gguf())
    half, small = found.alternatives
    assert (half.change, half.setting) == (SettingChange.HALF_CONTEXT, "ctx = 2048")
    assert half.vram.cache_bytes == 4 * 2048 * TOKEN
    assert (small.change, small.setting) == (SettingChange.QUANTISED_CACHE, 'kv = "q8_0"')
    assert small.vram == estimate('ctx = 4096\nkv = "q8_0"\n', gguf()).vram
    smaller = estimate('ctx = 4096\nkv = "q8_0"\n', gguf()).alternatives[-1]
    assert smaller.setting == 'kv = "q4_0"'
    assert estimate('ctx = 16\nkv = "q4_0"\n', gguf()).alternatives == ()


DRAFTING: dict[str, Value | None] = {
    "llama__block_count": 5,
    "llama__nextn_predict_layers": 1,
    "llama__attention__head_count_kv": (4, 0, 4, 4, 4),
    "llama__ssm__state_size": 16,
    "llama__ssm__inner_size": 64,
}
DRAFT = 'ctx = 4096\nspeculative = { method = "mtp", tokens = 3 }\n'


def with_drafts() -> Gguf:
    """The model with a fifth layer that only drafts, and a state in its second."""
    further = Tensor("blk.4.nextn.eh_proj.weight", 7000)
    return replace(gguf(**DRAFTING), tensors=(*TENSORS, further))


def test_layers_that_draft_are_loaded_only_to_draft() -> None:
    """Without drafting they take nothing; with it they have weights, a cache and copies of states."""
    without, drafting = estimate("ctx = 4096\n", with_drafts()), estimate(DRAFT, with_drafts())
    assert (without.vram.weights_bytes, drafting.vram.weights_bytes) == (ALL, ALL + 7000)
    assert without.vram.cache_bytes == 3 * 4096 * TOKEN
    assert drafting.vram.cache_bytes == 4 * 4096 * TOKEN
    assert without.vram.state_bytes == 16 * 64 * 4
    assert drafting.vram.state_bytes == (1 + 3) * 16 * 64 * 4
    assert drafting.least_vram_bytes == without.least_vram_bytes + 7000
    assert drafting.notes == ("compute buffers guessed",)


def test_draft_model_has_weights_and_a_cache_of_its_own() -> None:
    """A second file counts with the context of the first; what drafts is no part of the least."""
    loading = memory_of("ctx = 4096\n").loading
    assert isinstance(loading, LlamaCppLoading)
    model = Model(main=gguf(), draft=gguf(llama__attention__head_count_kv=2))
    alone = llama_cpp.estimate(profile("ctx = 4096\n"), loading, model, gguf())
    draft = replace(loading, draft=DraftLoading(tokens=4, model="/d.gguf", key_type="q8_0"))
    both = llama_cpp.estimate(profile("ctx = 4096\n"), draft, model, gguf())
    assert both.vram.weights_bytes == 2 * ALL
    assert both.vram.cache_bytes - alone.vram.cache_bytes == 4 * 4096 * (128 // 32 * 34 + 256)
    assert both.least_vram_bytes == alone.least_vram_bytes
    layers = replace(draft, draft=DraftLoading(tokens=4, model="/d.gguf", own_layers=True))
    only = llama_cpp.estimate(
        profile("ctx = 4096\n"), layers, replace(model, draft=with_drafts()), gguf()
    )
    assert only.vram.cache_bytes - alone.vram.cache_bytes == 4096 * TOKEN


@pytest.mark.parametrize(
    "further",
    ['"--override-kv", "llama.attention.head_count_kv=int:1"', '"--kv-unified-per-slot=1"'],
)
def test_options_that_may_shrink_the_cache_take_it_out_of_the_least(further: str) -> None:
    """A start is refused by the weights alone where the cache is not certain."""
    found = estimate(f"ctx = 4096\nextra_args = [{further}]\n", gguf())
    assert found.least_vram_bytes == 4 * 1010
    assert found.vram.cache_bytes == 4 * 4096 * TOKEN


@pytest.mark.parametrize("pattern", ["(=CPU", "blk\\\\.[[:digit:]]+=CPU"])
def test_tensor_override_that_is_not_followed_takes_the_weights_out_of_the_least(
    pattern: str,
) -> None:
    """A pattern in another syntax may keep any tensor in main memory."""
    text = f'ctx = 4096\n[llama-server]\noverride_tensor = ["{pattern}"]\n'
    assert estimate(text, gguf()).least_vram_bytes == 4 * 4096 * TOKEN


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"general__architecture": "foo"}, "the file does not say foo.block_count"),
        ({"llama__nextn_predict_layers": 4}, "nextn_predict_layers makes no sense"),
        ({"general__architecture": None}, "the file names no architecture"),
        ({"general__architecture": "a\nb"}, "the file names no architecture"),
        ({"llama__block_count": None}, "the file does not say llama.block_count"),
        ({"llama__block_count": 1 << 40}, "block_count makes no sense"),
        ({"llama__block_count": "four"}, "block_count makes no sense"),
        ({"llama__embedding_length": 0}, "the file does not say llama.embedding_length"),
        ({"llama__attention__head_count": (1, 2)}, "llama.attention.head_count has 2 entries"),
        ({"llama__attention__head_count": (1, 2, -3, 4)}, "attention.head_count makes no sense"),
        ({"llama__attention__head_count_kv": 0.5}, "attention.head_count_kv makes no sense"),
    ],
)
def test_a_header_without_sense_has_no_estimate(
    changes: dict[str, Value | None], problem: str
) -> None:
    """A value that is missing or impossible is named."""
    assert why_not("", gguf(**changes)) == problem


def test_an_architecture_that_is_not_known_is_labelled() -> None:
    """The cache of an unknown architecture is guessed by the rules of the others, and never refuses a start."""
    metadata = {k.replace("llama", "foo"): v for k, v in DIMENSIONS.items()}
    metadata |= {"general.architecture": "foo"}
    model = Gguf(metadata=metadata, tensors=TENSORS, file_bytes=1)
    found = estimate("ctx = 4096\n", model)
    assert found.vram.cache_bytes == 4 * 4096 * TOKEN
    assert found.least_vram_bytes == 4 * 1010
    guessed = "architecture foo is not known: cache guessed"
    assert found.notes == (guessed, "compute buffers guessed")
    sliding = replace(model, metadata=metadata | {"foo.attention.sliding_window": 512})
    told = estimate("ctx = 4096\n", sliding).notes
    assert told == (guessed, "sliding window, upper bound", "compute buffers guessed")
    listed = {"foo.attention.sliding_window_pattern": (True,) * 4}
    followed = replace(sliding, metadata={**sliding.metadata, **listed})
    assert estimate("ctx = 4096\n", followed).notes == found.notes


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *DIMENSIONS,
                "llama.ssm.state_size",
                "llama.full_attention_interval",
                "llama.attention.kv_lora_rank",
            ]
        ),
        st.integers()
        | st.text(max_size=5)
        | st.booleans()
        | st.lists(st.integers(-9, 9)).map(tuple),
    )
)
def test_no_value_does_more_than_refuse(changes: dict[str, Value]) -> None:
    """Any header gives an estimate that is not negative, or a phrase."""
    model = Gguf(metadata=DIMENSIONS | changes, tensors=TENSORS, file_bytes=1)
    found = estimated(profile(""), "/m", lambda _: Model(main=model))
    assert (found.estimate is None) == bool(found.problem)
    if found.estimate is not None:
        assert min(found.estimate.vram_bytes, found.estimate.ram_bytes) >= 0


CONFIG = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
VLLM = 'engine = "vllm"\nbinary = "/b"\nmodel = "/m"\nport = 9000\n'
SGLANG = VLLM.replace("vllm", "sglang")


def safetensors(**changes: object) -> Safetensors:
    config = {k: v for k, v in {**CONFIG, **changes}.items() if v is not None}
    return Safetensors(
        config=config,
        weights_bytes=10 * GIB,
        file_bytes=10 * GIB + 5,
        least_layer_bytes=(GIB // 4,) * 33,
    )


@pytest.mark.parametrize(
    ("text", "changes", "cache", "workers"),
    [
        (VLLM, {}, 32 * 2 * 8 * 128 * 2 * 8192, 1),
        (VLLM + "ctx = 1024\nparallel = 4\n", {}, 32 * 2 * 8 * 128 * 2 * 4096, 1),
        (VLLM + 'kv = "fp8"\nctx = 1024\n', {}, 32 * 2 * 8 * 128 * 1024, 1),
        (VLLM + "ctx = 1024\n", {"head_dim": 64}, 32 * 2 * 8 * 64 * 2 * 1024, 1),
        (VLLM + "ctx = 1024\n", {"num_key_value_heads": None}, 32 * 2 * 32 * 128 * 2 * 1024, 1),
        (VLLM + "ctx = 1024\n", {"torch_dtype": "float32"}, 32 * 2 * 8 * 128 * 4 * 1024, 1),
        (
            SGLANG + "ctx = 1024\n",
            {"kv_lora_rank": 512, "qk_rope_head_dim": 64},
            32 * 576 * 2 * 1024,
            1,
        ),
        (SGLANG + "ctx = 1024\n", {"kv_lora_rank": 512}, 32 * 512 * 2 * 1024, 1),
        (
            VLLM + '[vllm]\ntensor_parallel = 2\nkv_cache_memory_bytes = "4GiB"\n',
            {},
            8 * GIB,
            2,
        ),
        (
            VLLM + "ctx = 1024\n",
            {"num_hidden_layers": None, "text_config": CONFIG},
            32 * 2 * 8 * 128 * 2 * 1024,
            1,
        ),
    ],
)
def test_safetensors_models(
    text: str, changes: dict[str, object], cache: int, workers: int
) -> None:
    """Weights as stored, the cache for the context that is asked for, and a process a GPU."""
    found = estimate(text, safetensors(**changes))
    assert found.vram_bytes == 10 * GIB + cache + workers * GIB
    assert found.least_vram_bytes == 32 * GIB // 4


KV_OF_8192 = 32 * 2 * 8 * 128 * 2 * 8192
TABLE = "gpus = []\n[vllm]\n"
SPACE = 'gpus = []\nenv = { VLLM_CPU_KVCACHE_SPACE = "%s" }\n'


@pytest.mark.parametrize(
    ("text", "ram_bytes", "share"),
    [
        (VLLM + "gpus = []\n", 14 * GIB + KV_OF_8192, 0.92),
        (VLLM + TABLE + "gpu_memory_utilization = 0.5\n", 14 * GIB + KV_OF_8192, 0.5),
        (VLLM + TABLE + 'kv_cache_memory_bytes = "4GiB"\n', 18 * GIB, None),
        (VLLM + TABLE + 'kv_cache_memory_bytes = "4GiB"\ntensor_parallel = 2\n', 22 * GIB, None),
        (VLLM + SPACE % "2", 16 * GIB, None),
        (VLLM + SPACE % "2" + '[vllm]\nkv_cache_memory_bytes = "4GiB"\n', 16 * GIB, None),
        (VLLM + SPACE % "", 14 * GIB + KV_OF_8192, 0.92),
        (VLLM + SPACE % "many", 14 * GIB + KV_OF_8192, 0.92),
        (SGLANG + "gpus = []\n", 14 * GIB + KV_OF_8192, None),
    ],
)
def test_need_of_main_memory_without_gpus(text: str, ram_bytes: int, share: float | None) -> None:
    """On a CPU weights and cache are in RAM, and vLLM takes its utilisation of it unless told."""
    found = estimate(text, safetensors())
    assert (found.vram_bytes, found.least_vram_bytes, found.ram_bytes) == (0, 0, ram_bytes)
    memory = memory_of(text)
    assert (memory.ram_fraction, memory.vram_fraction) == (share, None)


def test_cache_variable_of_the_cpu_build_means_nothing_on_gpus() -> None:
    """With GPUs the utilisation holds, and none of it is in main memory."""
    text = VLLM + SPACE.replace("gpus = []\n", "") % "2"
    memory = memory_of(text)
    assert (memory.vram_fraction, memory.ram_fraction) == (0.92, None)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (dict.fromkeys(CONFIG), "there is no config.json beside the weights"),
        ({"num_hidden_layers": None}, "config.json does not say num_hidden_layers"),
        ({"num_hidden_layers": "x"}, "num_hidden_layers in config.json makes no sense"),
        ({"num_hidden_layers": True}, "num_hidden_layers in config.json makes no sense"),
        (
            {"max_position_embeddings": None},
            "neither the profile nor config.json says a context length",
        ),
    ],
)
def test_a_config_without_sense_has_no_estimate(changes: dict[str, object], problem: str) -> None:
    """A missing value is named; the size of the files is known all the same."""
    assert why_not(VLLM, safetensors(**changes)) == problem


def test_drafting_is_said_not_to_be_counted() -> None:
    """A draft model whose file is not read takes more than the estimate; n-grams take nothing."""
    speculative = 'speculative = { method = "eagle3", tokens = 3, model = "/d" }\n'
    assert "drafting not counted" in estimate(VLLM + speculative, safetensors()).notes
    assert "draft model not counted" in estimate(speculative, gguf()).notes
    ngram = 'speculative = { method = "ngram", tokens = 3 }\n'
    assert estimate(ngram, gguf()).notes == ("compute buffers guessed",)


@pytest.mark.parametrize(
    ("text", "model", "problem"),
    [
        (VLLM, gguf(), "vllm is not estimated for files of this format"),
        ("", safetensors(), "llama-server is not estimated for files of this format"),
        (
            'engine = "command"\nport = 9000\n[command]\nargv = ["/b", "{port}"]\n',
            gguf(),
            "nothing is known about the program",
        ),
    ],
)
def test_engines_and_formats_without_an_estimate(
    text: str, model: Gguf | Safetensors, problem: str
) -> None:
    """Engines and formats without an estimate say so."""
    assert why_not(text, model) == problem


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (ModelFileFault.MISSING, "the model's files were missing when the profile was applied"),
        (ModelFileFault.DAMAGED, "m.gguf ends after 3 of 5 bytes: copy it again"),
    ],
)
def test_a_model_that_cannot_be_read(fault: ModelFileFault, problem: str) -> None:
    """Without headers the need is unknown, and why is kept."""
    text = "m.gguf ends after 3 of 5 bytes: copy it again"
    found = estimated(profile(""), "/m", lambda _: Unread(fault=fault, problem=text))
    assert (found.estimate, found.problem, found.file_bytes) == (None, problem, None)


def compiled(text: str, file_bytes: int = 6000) -> str:
    model = replace(gguf(), file_bytes=file_bytes)

    def look(_: ModelReference) -> Model:
        return Model(main=model)

    source = ProfileSource(path="/p.toml", sha256="0")
    return spec_of(profile(text), source, InvocationContext(), look=look).applied.fingerprint


@pytest.mark.parametrize(
    "text",
    [
        "ctx = 4096\n",
        "gpus = [0]\n",
        'env = { A = "1" }\n',
        "[llama-server]\nswa_full = true\n",
        '[patch]\ncommand = ["/bin/true"]\n',
    ],
)
def test_what_changes_the_need_changes_the_fingerprint(text: str) -> None:
    """Arguments, variables, GPUs and patches do, and so do other weights under the same name."""
    assert compiled(text) != compiled("")
    assert compiled("", 6001) != compiled("")


@pytest.mark.parametrize("text", ['description = "x"\n', 'mark = "live"\n', "need = { ram = 1 }\n"])
def test_what_does_not_change_the_need_keeps_the_fingerprint(text: str) -> None:
    """A peak that was seen holds still."""
    if "ram" in text:
        text = 'need = { ram = "1GiB" }\n'
    assert compiled(text) == compiled("")


def test_unknown_is_an_error_with_a_phrase() -> None:
    """An unknown value is the error that every rule raises."""
    with pytest.raises(UnknownError, match="names no architecture"):
        GgufFacts(Gguf(metadata={}, tensors=(), file_bytes=0))


COMMAND = 'engine = "command"\nport = 9000\n[command]\nargv = ["/b", "{port}"]\n'
LLAMA_SERVER = 'engine = "llama-server"\nbinary = "/b"\nmodel = "/m"\nport = 9000\n'


@pytest.mark.parametrize(
    ("text", "split", "fraction"),
    [
        (VLLM, (1.0,), 0.92),
        (VLLM + "[vllm]\ngpu_memory_utilization = 0.5\ntensor_parallel = 2\n", (1.0, 1.0), 0.5),
        (VLLM + "[vllm]\ntensor_parallel = 2\npipeline_parallel = 2\n", (1.0,) * 4, 0.92),
        (VLLM + '[vllm]\nkv_cache_memory_bytes = "1GiB"\n', (1.0,), None),
        (VLLM + "gpus = []\n", (), None),
        (SGLANG, (1.0,), None),
        (SGLANG + "[sglang]\nmem_fraction_static = 0.8\n", (1.0,), 0.8),
        (LLAMA_SERVER, (), None),
        (LLAMA_SERVER + "[llama-server]\ntensor_split = [3, 1]\n", (3.0, 1.0), None),
        (LLAMA_SERVER + "[llama-server]\ntensor_split = [0, 0]\n", (), None),
        (LLAMA_SERVER + '[llama-server]\nsplit_mode = "none"\n', (1.0,), None),
        (COMMAND, (), None),
    ],
)
def test_how_an_engine_spreads_its_memory(
    text: str, split: tuple[float, ...], fraction: float | None
) -> None:
    """One shard a GPU, a split of one's own, the first GPU alone; and the share that is taken."""
    memory = memory_of(text)
    assert (memory.gpu_split, memory.vram_fraction) == (split, fraction)


def test_time_of_an_estimate_grows_with_the_tensors_alone() -> None:
    """Many layers named by a profile cost a tensor no more than few: 100 times as many, under ten times."""

    def seconds(count: int) -> float:
        text = f"[llama-server]\nn_cpu_moe = {count}\nn_cpu_ffn = {count}\n"
        tensors = tuple(
            Tensor(f"blk.{i % 4}.{name}.weight", 1)
            for i in range(4000)
            for name in ("ffn_up", "ffn_up_exps")
        )
        model = replace(gguf(), tensors=tensors)
        times = []
        for _ in range(3):
            began = time.process_time()
            estimate(text, model)
            times.append(time.process_time() - began)
        return min(times)

    assert seconds(9000) < 10 * seconds(90)


def test_layers_that_have_experts() -> None:
    """Layers with expert tensors are found by the names that the offload goes by."""
    names = ("blk.1.ffn_up_exps.weight", "blk.3.ffn_gate_chexps.weight", "blk.2.ffn_up.weight", "x")
    assert expert_layers([Tensor(name, 1) for name in names]) == (1, 3)
