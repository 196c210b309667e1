"""Dimensions from a config.json: kinds of layers, heads, states, and types of the cache."""

import pytest

from appliance.model.model_headers import Model, Safetensors
from appliance.model.profile import Estimate
from appliance.profiles.estimates.estimating import estimated
from appliance.profiles.estimates.gguf_layers import UnknownError
from appliance.profiles.estimates.transformers import ConfigFacts, Head, Keeps
from appliance.system.profile_files.loading import parse_profile

CONFIG: dict[str, object] = {
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "hidden_size": 1024,
    "max_position_embeddings": 8192,
    "dtype": "bfloat16",
}
F, W, S, N = Keeps.FULL, Keeps.WINDOW, Keeps.STATE, Keeps.NOTHING
VLLM = 'engine = "vllm"\nbinary = "/b"\nmodel = "/m"\nport = 9000\nctx = 1024\nparallel = 1\n'


def facts(**changes: object) -> ConfigFacts:
    return ConfigFacts(CONFIG | changes)


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, (F, F, F, F)),
        (
            {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 64},
            (W, F, W, F),
        ),
        ({"layer_types": ["sliding_attention"] * 4}, (F, F, F, F)),
        ({"layer_types": ["linear_attention", "mamba", "mlp", 7]}, (S, S, N, F)),
        ({"layer_types": ["linear_attention"]}, (F, F, F, F)),
        ({"layers_block_type": ["mamba", "attention", "moe", "new"]}, (S, F, N, F)),
        ({"hybrid_override_pattern": "M*-E"}, (S, F, N, N)),
        ({"full_attention_interval": 2}, (S, F, S, F)),
        ({"model_type": "qwen3_next"}, (S, S, S, F)),
        ({"sliding_window_pattern": 2, "sliding_window": 64}, (W, F, W, F)),
        ({"model_type": "gemma2", "sliding_window": 64}, (W, F, W, F)),
        ({"model_type": "gemma2"}, (F, F, F, F)),
        ({"num_kv_shared_layers": 3}, (F, N, N, N)),
    ],
)
def test_kinds_of_layers(changes: dict[str, object], kinds: tuple[Keeps, ...]) -> None:
    """Lists go before patterns and intervals; a window without a size is none."""
    assert facts(**changes).kinds() == kinds


def test_window_that_is_not_told_of_each_layer_is_an_upper_bound() -> None:
    """A window may be that of some layers only; one that is not used is none."""
    assert facts(sliding_window=64).is_upper_bound
    assert not facts(sliding_window=64, use_sliding_window=False).is_upper_bound
    assert not facts(model_type="gemma2", sliding_window=64).is_upper_bound
    assert facts(attention_chunk_size=64).window == 64


def test_layers_with_the_whole_context_may_have_other_heads() -> None:
    """Gemma 4 has fewer heads of twice the size there."""
    found = facts(head_dim=32, global_head_dim=64, num_global_key_value_heads=2)
    assert found.head(W) == Head(heads=4, size=64)
    assert found.head(F) == Head(heads=2, size=128)
    assert facts(v_head_dim=32).head(F) == Head(heads=4, size=64 + 32)
    assert facts(num_key_value_heads=None).head(F) == Head(heads=16, size=128)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        (
            {
                "linear_conv_kernel_dim": 4,
                "linear_num_value_heads": 8,
                "linear_num_key_heads": 2,
                "linear_key_head_dim": 16,
                "linear_value_head_dim": 32,
            },
            (3 * (2 * 2 * 16 + 8 * 32), 8 * 32 * 16),
        ),
        ({"conv_L_cache": 3}, (2 * 1024, 0)),
        (
            {
                "mamba_num_heads": 8,
                "mamba_head_dim": 16,
                "ssm_state_size": 4,
                "n_groups": 2,
                "conv_kernel": 4,
            },
            (3 * (128 + 16), 128 * 4),
        ),
        ({}, (0, 0)),
    ],
)
def test_elements_of_a_state(changes: dict[str, object], state: tuple[int, int]) -> None:
    """Gated delta nets, short convolutions and Mamba 2."""
    assert facts(**changes).state() == state


def test_language_model_of_a_model_for_images() -> None:
    """The dimensions are in an inner table; a word may stand outside."""
    found = ConfigFacts({"text_config": CONFIG, "model_type": "qwen3_vl", "vision_config": {}})
    assert (found.layers, found.word("model_type"), found.word("none")) == (4, "qwen3_vl", "")
    with pytest.raises(UnknownError, match="num_hidden_layers"):
        ConfigFacts({"text_config": 7})


def estimate(lines: str = "", table: str = "", /, **changes: object) -> Estimate:
    """Return the estimate of a model whose layers have a GiB each, and a further one that drafts."""
    config = {k: v for k, v in (CONFIG | changes).items() if v is not None}
    gib = 1 << 30
    model = Safetensors(
        config=config,
        weights_bytes=6 * gib,
        file_bytes=6 * gib,
        draft_bytes=gib,
        least_layer_bytes=(gib,) * 5,
    )
    text = f"{VLLM}{lines}[vllm]\n{table}"
    found = estimated(parse_profile("p", text.encode()), "/m", lambda _: Model(main=model))
    assert found.estimate is not None, found.problem
    return found.estimate


ROW = 2 * 4 * 64
"""Elements of a token in a layer."""


@pytest.mark.parametrize(
    ("lines", "changes", "token"),
    [
        ("", {}, 2 * ROW),
        ("", {"dtype": "float32"}, 4 * ROW),
        ('kv = "fp8"\n', {}, ROW),
        ('kv = "auto"\n', {}, 2 * ROW),
        ("", {"quantization_config": {"quant_method": "fp8"}}, 2 * ROW),
        (
            "",
            {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}},
            ROW,
        ),
        (
            "",
            {
                "quantization_config": {
                    "quant_method": "modelopt_fp4",
                    "quantization": {"kv_cache_scheme": {"type": "float", "num_bits": 8}},
                }
            },
            ROW,
        ),
        ("", {"quantization_config": {"quant_method": "modelopt", "quantization": 1}}, 2 * ROW),
        ("", {"quantization_config": {"quant_method": "modelopt"}}, 2 * ROW),
        (
            "",
            {"quantization_config": {"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}},
            ROW * 9 // 16,
        ),
        (
            "",
            {
                "quantization_config": {
                    "quant_method": "modelopt",
                    "kv_cache_quant_algo": "INT8_PER_TOKEN_HEAD",
                }
            },
            ROW + 4 * 8,
        ),
        ("", {"kv_lora_rank": 96, "qk_rope_head_dim": 32}, 2 * 128),
        ("", {"kv_lora_rank": 96, "index_head_dim": 128}, 2 * 96 + 132),
        ('kv = "fp8"\n', {"kv_lora_rank": 96, "index_head_dim": 128}, 656 + 132),
    ],
)
def test_bytes_of_a_token(lines: str, changes: dict[str, object], token: int) -> None:
    """By the profile's type, else by the one that the checkpoint names, else by the model's own."""
    assert estimate(lines, **changes).vram.cache_bytes == 4 * 1024 * token


@pytest.mark.parametrize(
    ("tensor", "changes", "token"),
    [
        (2, {}, 2 * ROW),
        (8, {}, 2 * 2 * ROW),
        (8, {"kv_lora_rank": 128}, 8 * 2 * 128),
    ],
)
def test_what_cannot_be_split_is_copied(
    tensor: int, changes: dict[str, object], token: int
) -> None:
    """Fewer KV heads than workers, and the whole of latent attention, are on each of them."""
    found = estimate("", f"tensor_parallel = {tensor}\n", **changes)
    assert found.vram.cache_bytes == 4 * 1024 * token


def test_windowed_layer_keeps_its_window_and_a_step() -> None:
    """Whole pages of 16 tokens, and one more because a window may begin within one."""
    found = estimate("", "max_batched_tokens = 100\n", sliding_window=64, sliding_window_pattern=4)
    pages = -(-(63 + 100) // 16) + 1
    assert found.vram.cache_bytes == (3 * pages * 16 + 1024) * 2 * ROW


LINEAR: dict[str, object] = {
    "layer_types": ["linear_attention"] * 4,
    "linear_conv_kernel_dim": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 32,
    "mamba_ssm_dtype": "float32",
}
STATE = 3 * (2 * 8 * 16 + 8 * 32) * 2 + 8 * 32 * 16 * 4


@pytest.mark.parametrize(
    ("lines", "table", "copies"),
    [
        ("", "", 1),
        ("", "prefix_caching = true\n", 2),
        ("", 'mamba_cache_mode = "align"\n', 2),
        ("", 'mamba_cache_mode = "none"\nprefix_caching = true\n', 1),
        ('speculative = { method = "mtp", tokens = 3 }\n', "", 4),
    ],
)
def test_states_of_requests(lines: str, table: str, copies: int) -> None:
    """One of each request, a second with cached prompts, and one for each drafted token."""
    found = estimate(lines, table, **LINEAR)
    assert found.vram.state_bytes == 4 * copies * STATE


def test_layer_that_drafts_is_loaded_only_to_draft() -> None:
    """With it come its weights and a cache of its own."""
    without, drafting = estimate(), estimate('speculative = { method = "mtp", tokens = 2 }\n')
    assert drafting.vram.weights_bytes - without.vram.weights_bytes == 1 << 30
    assert drafting.vram.cache_bytes == 5 * 1024 * 2 * ROW
    assert "drafting not counted" not in drafting.notes


GIB = 1 << 30


@pytest.mark.parametrize(
    ("lines", "table", "changes", "least"),
    [
        ("", "", {}, 4 * GIB),
        ("", 'quantization = "fp8"\n', {}, GIB),
        ("", 'quantization = "fp8"\n', {"quantization_config": {"quant_method": "fp8"}}, 4 * GIB),
        ("", "cpu_offload_gb = 1.5\n", {}, 4 * GIB - 3 * GIB // 2),
        ("", "cpu_offload_gb = 9\n", {}, 0),
        ("", "hf_overrides = { num_hidden_layers = 2 }\n", {}, 0),
        ("", 'load_format = "dummy"\n', {}, 0),
        ('extra_args = ["--offload_group_size", "2"]\n', "", {}, 0),
        ("", 'kv_cache_memory_bytes = "1GiB"\n', {"num_hidden_layers": None}, 0),
        ("gpus = []\n", "", {}, 0),
    ],
)
def test_least_is_what_every_start_loads(
    lines: str, table: str, changes: dict[str, object], least: int
) -> None:
    """Layers that every token passes, as small as an option may make them; nothing where that is not known."""
    assert estimate(lines, table, **changes).least_vram_bytes == least


def test_offloaded_weights_are_in_ram() -> None:
    """Weights in host RAM count there, and not on the GPUs."""
    found = estimate("", "cpu_offload_gb = 1\n")
    assert (found.vram.weights_bytes, found.ram.weights_bytes) == (4 * GIB, GIB)


def test_alternatives_of_vllm() -> None:
    """Half the context, and a cache in FP8 where it is wider; neither where the cache's size is set."""
    half, small = estimate().alternatives
    assert (half.setting, small.setting) == ("ctx = 512", 'kv = "fp8"')
    assert half.vram.cache_bytes == small.vram.cache_bytes == 4 * 512 * 2 * ROW
    assert len(estimate('kv = "fp8"\n').alternatives) == 1
    assert estimate("", 'kv_cache_memory_bytes = "1GiB"\n').alternatives == ()


def test_notes_of_a_window_that_is_not_told_of_each_layer() -> None:
    """The whole context is counted, and the estimate says so."""
    assert "sliding window, upper bound" in estimate("", sliding_window=64).notes
