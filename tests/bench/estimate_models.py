"""Models whose public facts the estimates are compared with: their headers, and their layers one by one.

Dimensions are those of the config.json in each model's repository on Hugging Face, and of the keys that
llama.cpp's convert_hf_to_gguf.py writes for it (build b11549), as of November 2026. `SIZES` are the sums that
llama.cpp prints at a load ("KV self size"), where the project's notes have them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from appliance.model.model_headers import Value
from tests.bench.estimate_truth import Layer, VllmLayer

K = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufModel:
    """One model as a GGUF file has it."""

    name: str
    architecture: str
    source: str
    """Repository of the config.json."""
    keys: Mapping[str, Value]
    """Metadata without the architecture's prefix."""
    layers: tuple[Layer, ...]
    """Layers that every token passes."""
    drafting: int = 0
    """Further layers in the file that only draft."""
    ctx: int = 32 * K
    layer_mib: int = 256
    """Weights of one layer in MiB, at four to five bits each."""


def _attention(count: int, heads: int, size: int, **more: int) -> tuple[Layer, ...]:
    return (Layer(keys=heads * size, values=heads * size, **more),) * count


def _mixed(pattern: Iterable[Layer]) -> tuple[Layer, ...]:
    return tuple(pattern)


def _dims(
    layers: int, embedding: int, heads: int, kv: Value, size: int | None = None, **more: Value
) -> dict[str, Value]:
    found: dict[str, Value] = {
        "block_count": layers,
        "embedding_length": embedding,
        "context_length": 131072,
        "feed_forward_length": 4 * embedding,
        "attention.head_count": heads,
        "attention.head_count_kv": kv,
        "vocab_size": 128000,
    }
    if size is not None:
        found |= {"attention.key_length": size, "attention.value_length": size}
    return found | {name.replace("__", "."): value for name, value in more.items()}


def _plain(
    name: str,
    architecture: str,
    source: str,
    dims: tuple[int, int, int, int, int],
    *,
    drafting: int = 0,
    ctx: int = 32 * K,
) -> GgufModel:
    """A model of which every layer has the same cache; dims: layers, embedding, heads, kv, size."""
    layers, embedding, heads, kv, size = dims
    keys = _dims(layers + drafting, embedding, heads, kv, size)
    if drafting:
        keys["nextn_predict_layers"] = drafting
    return GgufModel(
        name=name,
        architecture=architecture,
        source=source,
        keys=keys,
        layers=_attention(layers, kv, size),
        drafting=drafting,
        ctx=ctx,
    )


def _windowed(
    name: str,
    architecture: str,
    source: str,
    dims: tuple[int, int, int, int, int],
    *,
    window: int,
    period: int,
    dense: int | None = None,
    ctx: int = 128 * K,
    own: int | None = None,
    keys: Mapping[str, Value] | None = None,
) -> GgufModel:
    """A model with windows in all layers but one of each period; dims: layers, embedding, heads, kv, size."""
    layers, embedding, heads, kv, size = dims
    last = period - 1 if dense is None else dense
    found = [
        Layer(keys=kv * size, values=kv * size, window=0 if i % period == last else window)
        for i in range(layers)
    ]
    kept = found if own is None else found[:own] + [Layer()] * (layers - own)
    named: dict[str, Value] = {"attention.sliding_window": window} | dict(keys or {})
    return GgufModel(
        name=name,
        architecture=architecture,
        source=source,
        keys=_dims(layers, embedding, heads, kv, size) | named,
        layers=_mixed(kept),
        ctx=ctx,
    )


def _latent(
    name: str,
    architecture: str,
    source: str,
    dims: tuple[int, int, int],
    *,
    drafting: int = 0,
    indexer: int = 0,
    ctx: int = 32 * K,
    trained: int = 131072,
) -> GgufModel:
    """A model of the DeepSeek family: 512 + 64 elements a token and layer, and no values."""
    layers, embedding, heads = dims
    keys = _dims(layers + drafting, embedding, heads, 1) | {
        "context_length": trained,
        "attention.kv_lora_rank": 512,
        "rope.dimension_count": 64,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
    }
    if drafting:
        keys["nextn_predict_layers"] = drafting
    if indexer:
        keys |= {"attention.indexer.head_count": 64, "attention.indexer.key_length": indexer}
    return GgufModel(
        name=name,
        architecture=architecture,
        source=source,
        keys=keys,
        layers=(Layer(keys=576, indexer=indexer),) * layers,
        drafting=drafting,
        ctx=ctx,
    )


def _delta(
    name: str,
    architecture: str,
    source: str,
    dims: tuple[int, int, int, int, int],
    *,
    inner: int,
    groups: int = 16,
    drafting: int = 0,
    ctx: int = 128 * K,
) -> GgufModel:
    """A model of the Qwen3-Next family: three layers with a gated delta net, then one with attention."""
    layers, embedding, heads, kv, size = dims
    state = Layer(convolution=3 * (inner + 2 * groups * 128), state=128 * inner)
    found = [
        Layer(keys=kv * size, values=kv * size) if i % 4 == 3 else state for i in range(layers)
    ]
    keys = _dims(layers + drafting, embedding, heads, kv, size) | {
        "full_attention_interval": 4,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": 128,
        "ssm.group_count": groups,
        "ssm.time_step_rank": inner // 128,
    }
    if drafting:
        keys["nextn_predict_layers"] = drafting
    return GgufModel(
        name=name,
        architecture=architecture,
        source=source,
        keys=keys,
        layers=_mixed(found),
        drafting=drafting,
        ctx=ctx,
    )


def _mamba(
    name: str,
    architecture: str,
    source: str,
    dims: tuple[int, int, int, int, int],
    attends: frozenset[int],
    *,
    inner: int,
    state: int,
    groups: int,
    neither: frozenset[int] = frozenset(),
) -> GgufModel:
    """A hybrid whose file has no KV heads in layers with a Mamba state."""
    layers, embedding, heads, kv, size = dims
    keeps = Layer(convolution=3 * (inner + 2 * groups * state), state=state * inner)
    attention = Layer(keys=kv * size, values=kv * size)
    found = [
        attention if i in attends else Layer() if i in neither else keeps for i in range(layers)
    ]
    keys = _dims(
        layers, embedding, heads, tuple(kv if i in attends else 0 for i in range(layers)), size
    )
    keys |= {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.group_count": groups,
    }
    if neither:
        keys["feed_forward_length"] = tuple(15680 if i in neither else 0 for i in range(layers))
    return GgufModel(
        name=name,
        architecture=architecture,
        source=source,
        keys=keys,
        layers=_mixed(found),
    )


_GEMMA4_PATTERN = tuple(i % 6 != 5 for i in range(60))


def _gemma4(name: str, source: str, dims: tuple[int, int, int, int], *, ctx: int) -> GgufModel:
    """A Gemma 4: five layers with a window and heads of 256, then one with heads of 512."""
    layers, embedding, windowed, full = dims
    pattern = _GEMMA4_PATTERN[:layers]
    found = [
        Layer(keys=windowed * 256, values=windowed * 256, window=1024)
        if slides
        else Layer(keys=full * 512, values=full * 512)
        for slides in pattern
    ]
    keys = _dims(layers, embedding, 16, tuple(windowed if s else full for s in pattern), 512) | {
        "attention.sliding_window": 1024,
        "attention.sliding_window_pattern": pattern,
        "attention.key_length_swa": 256,
        "attention.value_length_swa": 256,
    }
    return GgufModel(
        name=name, architecture="gemma4", source=source, keys=keys, layers=_mixed(found), ctx=ctx
    )


_KIMI_FULL = frozenset({3, 7, 11, 15, 19, 23, 26})
_NEMOTRON = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"


def _at(signs: str, sign: str) -> frozenset[int]:
    return frozenset(i for i, s in enumerate(signs) if s == sign)


GGUF_MODELS: tuple[GgufModel, ...] = (
    _plain("SmolLM2-135M", "llama", "HuggingFaceTB/SmolLM2-135M", (30, 576, 9, 3, 64), ctx=8 * K),
    _plain("Llama-3.1-8B", "llama", "meta-llama/Llama-3.1-8B", (32, 4096, 32, 8, 128)),
    _plain("Llama-3.3-70B", "llama", "meta-llama/Llama-3.3-70B-Instruct", (80, 8192, 64, 8, 128)),
    _plain("Mixtral-8x7B", "llama", "mistralai/Mixtral-8x7B-v0.1", (32, 4096, 32, 8, 128)),
    _plain(
        "Mistral-Small-3.2-24B",
        "llama",
        "mistralai/Mistral-Small-3.2-24B-Instruct-2506",
        (40, 5120, 32, 8, 128),
        ctx=128 * K,
    ),
    _plain("Qwen3-32B", "qwen3", "Qwen/Qwen3-32B", (64, 5120, 64, 8, 128)),
    _plain("Qwen3-30B-A3B", "qwen3moe", "Qwen/Qwen3-30B-A3B", (48, 2048, 32, 4, 128), ctx=128 * K),
    _plain("Qwen3-235B-A22B", "qwen3moe", "Qwen/Qwen3-235B-A22B", (94, 4096, 64, 4, 128)),
    _plain("Phi-4", "phi3", "microsoft/phi-4", (40, 5120, 40, 10, 128), ctx=16 * K),
    _plain(
        "Seed-OSS-36B", "seed_oss", "ByteDance-Seed/Seed-OSS-36B-Instruct", (64, 5120, 80, 8, 128)
    ),
    _plain("MiniMax-M2", "minimax-m2", "MiniMaxAI/MiniMax-M2", (62, 3072, 48, 8, 128)),
    _plain(
        "ERNIE-4.5-21B-A3B", "ernie4_5-moe", "baidu/ERNIE-4.5-21B-A3B-PT", (28, 2560, 20, 4, 128)
    ),
    _plain(
        "GLM-4.6", "glm4moe", "zai-org/GLM-4.6", (92, 5120, 96, 8, 128), drafting=1, ctx=128 * K
    ),
    _plain("GLM-4.5-Air", "glm4moe", "zai-org/GLM-4.5-Air", (46, 4096, 96, 8, 128), drafting=1),
    _windowed(
        "Gemma-2-27B",
        "gemma2",
        "google/gemma-2-27b-it",
        (46, 4608, 32, 16, 128),
        window=4096,
        period=2,
        ctx=8 * K,
    ),
    _windowed(
        "Gemma-3-27B",
        "gemma3",
        "google/gemma-3-27b-it",
        (62, 5376, 32, 16, 128),
        window=1024,
        period=6,
    ),
    _windowed(
        "Gemma-3-12B",
        "gemma3",
        "google/gemma-3-12b-it",
        (48, 3840, 16, 8, 256),
        window=1024,
        period=6,
        keys={"attention.sliding_window_pattern": 6},
    ),
    _windowed(
        "Gemma-3n-E4B",
        "gemma3n",
        "google/gemma-3n-E4B-it",
        (35, 2048, 8, 2, 256),
        window=512,
        period=5,
        own=20,
        ctx=32 * K,
        keys={"attention.sliding_window_pattern": tuple(i % 5 != 4 for i in range(35))},
    ),
    _windowed(
        "gpt-oss-20b", "gpt-oss", "openai/gpt-oss-20b", (24, 2880, 64, 8, 64), window=128, period=2
    ),
    _windowed(
        "gpt-oss-120b",
        "gpt-oss",
        "openai/gpt-oss-120b",
        (36, 2880, 64, 8, 64),
        window=128,
        period=2,
    ),
    _windowed(
        "Llama-4-Scout",
        "llama4",
        "meta-llama/Llama-4-Scout-17B-16E",
        (48, 5120, 40, 8, 128),
        window=8192,
        period=4,
    ),
    _windowed(
        "Command-R7B",
        "cohere2",
        "CohereLabs/c4ai-command-r7b-12-2024",
        (32, 4096, 32, 8, 128),
        window=4096,
        period=4,
    ),
    _windowed(
        "OLMo-3-32B",
        "olmo2",
        "allenai/Olmo-3-32B-Think",
        (64, 5120, 40, 8, 128),
        window=4096,
        period=4,
        ctx=64 * K,
    ),
    _windowed(
        "EXAONE-4.0-32B",
        "exaone4",
        "LGAI-EXAONE/EXAONE-4.0-32B",
        (64, 5120, 40, 8, 128),
        window=4096,
        period=4,
    ),
    _windowed(
        "SmallThinker-21B-A3B",
        "smallthinker",
        "PowerInfer/SmallThinker-21BA3B-Instruct",
        (52, 2560, 28, 4, 128),
        window=4096,
        period=4,
        dense=0,
        ctx=16 * K,
    ),
    _gemma4("Gemma-4-26B-A4B", "google/gemma-4-26B-A4B-it", (30, 2816, 8, 2), ctx=128 * K),
    _gemma4("Gemma-4-31B", "google/gemma-4-31B-it", (60, 5376, 16, 4), ctx=128 * K),
    _latent("DeepSeek-V3", "deepseek2", "deepseek-ai/DeepSeek-V3", (61, 7168, 128)),
    _latent("Kimi-K2", "deepseek2", "moonshotai/Kimi-K2-Instruct", (61, 7168, 64)),
    _latent(
        "GLM-4.7-Flash",
        "deepseek2",
        "zai-org/GLM-4.7-Flash",
        (47, 2048, 20),
        drafting=1,
        ctx=198 * K,
    ),
    _latent(
        "DeepSeek-V3.2",
        "deepseek32",
        "deepseek-ai/DeepSeek-V3.2",
        (61, 7168, 128),
        indexer=128,
        drafting=1,
    ),
    _latent(
        "GLM-5", "glm-dsa", "zai-org/GLM-5", (78, 6144, 64), indexer=128, drafting=1, trained=202752
    ),
    _delta(
        "Qwen3-Next-80B-A3B",
        "qwen3next",
        "Qwen/Qwen3-Next-80B-A3B-Instruct",
        (48, 2048, 16, 2, 256),
        inner=4096,
    ),
    _delta(
        "Qwen3.6-35B-A3B",
        "qwen35moe",
        "Qwen/Qwen3.6-35B-A3B",
        (40, 2048, 16, 2, 256),
        inner=4096,
        drafting=1,
    ),
    _delta(
        "Qwen3.6-27B", "qwen35", "Qwen/Qwen3.6-27B", (64, 5120, 24, 4, 256), inner=6144, drafting=1
    ),
    _mamba(
        "Granite-4.0-H-Small",
        "granitehybrid",
        "ibm-granite/granite-4.0-h-small",
        (40, 4096, 32, 8, 128),
        frozenset({5, 15, 25, 35}),
        inner=8192,
        state=128,
        groups=1,
    ),
    _mamba(
        "Jamba-1.5-Mini",
        "jamba",
        "ai21labs/AI21-Jamba-1.5-Mini",
        (32, 4096, 32, 8, 128),
        frozenset({4, 12, 20, 28}),
        inner=8192,
        state=16,
        groups=0,
    ),
    _mamba(
        "Nemotron-Nano-9B-v2",
        "nemotron_h",
        "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        (len(_NEMOTRON), 4480, 40, 8, 128),
        _at(_NEMOTRON, "*"),
        inner=10240,
        state=128,
        groups=8,
        neither=_at(_NEMOTRON, "-"),
    ),
    GgufModel(
        name="Falcon-H1-34B",
        architecture="falcon-h1",
        source="tiiuae/Falcon-H1-34B-Instruct",
        keys=_dims(72, 5120, 20, 4, 128)
        | {
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 10240,
            "ssm.state_size": 256,
            "ssm.group_count": 2,
        },
        layers=_attention(72, 4, 128, convolution=3 * (10240 + 2 * 2 * 256), state=256 * 10240),
    ),
    GgufModel(
        name="Kimi-Linear-48B-A3B",
        architecture="kimi-linear",
        source="moonshotai/Kimi-Linear-48B-A3B-Instruct",
        keys=_dims(27, 2304, 32, tuple(1 if i in _KIMI_FULL else 0 for i in range(27)))
        | {
            "attention.kv_lora_rank": 512,
            "attention.key_length": 576,
            "attention.value_length": 512,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
            "kda.head_dim": 128,
            "ssm.conv_kernel": 4,
        },
        layers=_mixed(
            Layer(keys=576)
            if i in _KIMI_FULL
            else Layer(convolution=3 * 3 * 32 * 128, state=32 * 128 * 128)
            for i in range(27)
        ),
        ctx=128 * K,
    ),
    GgufModel(
        name="LFM2-1.2B",
        architecture="lfm2",
        source="LiquidAI/LFM2-1.2B",
        keys=_dims(
            16, 2048, 32, tuple(8 if i in {2, 5, 8, 10, 12, 14} else 0 for i in range(16)), 64
        )
        | {"shortconv.l_cache": 3},
        layers=_mixed(
            Layer(keys=512, values=512)
            if i in {2, 5, 8, 10, 12, 14}
            else Layer(convolution=2 * 2048)
            for i in range(16)
        ),
    ),
    GgufModel(
        name="Mamba-2.8B",
        architecture="mamba",
        source="state-spaces/mamba-2.8b-hf",
        keys=_dims(64, 2560, 0, 0)
        | {
            "ssm.conv_kernel": 4,
            "ssm.inner_size": 5120,
            "ssm.state_size": 16,
        },
        layers=(Layer(convolution=3 * 5120, state=16 * 5120),) * 64,
        ctx=8 * K,
    ),
    GgufModel(
        name="RWKV-7-2.9B",
        architecture="rwkv7",
        source="BlinkDL/rwkv-7-world",
        keys=_dims(32, 2560, 0, 0) | {"wkv.head_size": 64, "token_shift_count": 2},
        layers=(Layer(convolution=2 * 2560, state=64 * 2560),) * 32,
        ctx=8 * K,
    ),
)

SIZES_MIB: Mapping[str, int] = {
    "Gemma-3-27B": 10864,
    "Gemma-4-26B-A4B": 2860,
    "gpt-oss-120b": 4635,
    "DeepSeek-V3": 2196,
    "GLM-4.7-Flash": 10469,
    "GLM-4.6": 47104,
    "Qwen3.6-35B-A3B": 2623,
}
"""MiB of cache and state for one request of each model's `ctx`, in F16, as llama.cpp allocates them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HfModel:
    """One model as its config.json has it."""

    name: str
    config: Mapping[str, object]
    layers: tuple[VllmLayer, ...]
    ctx: int
    tensor: int = 1
    element_bytes: int = 2
    kv: str = ""
    """Cache type that a profile sets; empty: none."""
    gib: float | None = None
    """GiB by the arithmetic of the project's notes; None: they do not have this one."""
    more: str = field(default="")
    """Further lines of the profile's table."""


def _config(layers: int, hidden: int, heads: int, kv: int, **more: object) -> dict[str, object]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "max_position_embeddings": 262144,
        "dtype": "bfloat16",
    } | more


def _types(layers: int, period: int, others: str) -> list[str]:
    return ["full_attention" if i % period == period - 1 else others for i in range(layers)]


def _vllm_delta(layers: int, kv: int, keys: int, values: int) -> tuple[VllmLayer, ...]:
    state = 3 * (2 * keys * 128 + values * 128) * 2 + values * 128 * 128 * 4
    attention = VllmLayer(heads=kv, head=256)
    return tuple(attention if i % 4 == 3 else VllmLayer(state_bytes=state) for i in range(layers))


def _delta_config(layers: int, hidden: int, heads: int, kv: int, values: int) -> dict[str, object]:
    return {
        "text_config": _config(
            layers,
            hidden,
            heads,
            kv,
            head_dim=256,
            layer_types=_types(layers, 4, "linear_attention"),
            linear_conv_kernel_dim=4,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            linear_num_key_heads=16,
            linear_num_value_heads=values,
            mamba_ssm_dtype="float32",
        )
    }


HF_MODELS: tuple[HfModel, ...] = (
    HfModel(
        name="Llama-3.1-8B",
        config=_config(32, 4096, 32, 8),
        ctx=128 * K,
        layers=(VllmLayer(heads=8, head=128),) * 32,
    ),
    HfModel(
        name="Llama-3.3-70B TP16",
        config=_config(80, 8192, 64, 8),
        ctx=32 * K,
        tensor=16,
        layers=(VllmLayer(heads=8, head=128),) * 80,
    ),
    HfModel(
        name="Qwen3.6-27B",
        config=_delta_config(64, 5120, 24, 4, 48),
        ctx=120 * K,
        gib=7.5,
        layers=_vllm_delta(64, 4, 16, 48),
    ),
    HfModel(
        name="Qwen3.6-35B-A3B",
        config=_delta_config(40, 2048, 16, 2, 32),
        ctx=128 * K,
        gib=2.5,
        layers=_vllm_delta(40, 2, 16, 32),
    ),
    HfModel(
        name="Gemma-3-27B",
        ctx=128 * K,
        gib=11,
        config={
            "text_config": _config(
                62,
                5376,
                32,
                16,
                head_dim=128,
                sliding_window=1024,
                layer_types=_types(62, 6, "sliding_attention"),
            )
        },
        layers=tuple(
            VllmLayer(heads=16, head=128, window=0 if i % 6 == 5 else 1024) for i in range(62)
        ),
    ),
    HfModel(
        name="Gemma-4-26B-A4B",
        ctx=128 * K,
        gib=3,
        config={
            "text_config": _config(
                30,
                2816,
                16,
                8,
                head_dim=256,
                sliding_window=1024,
                global_head_dim=512,
                num_global_key_value_heads=2,
                layer_types=_types(30, 6, "sliding_attention"),
            )
        },
        layers=tuple(
            VllmLayer(heads=2, head=512)
            if i % 6 == 5
            else VllmLayer(heads=8, head=256, window=1024)
            for i in range(30)
        ),
    ),
    HfModel(
        name="gpt-oss-20b",
        ctx=128 * K,
        config=_config(
            24,
            2880,
            64,
            8,
            head_dim=64,
            sliding_window=128,
            layer_types=[*_types(24, 2, "sliding_attention")],
        ),
        layers=tuple(VllmLayer(heads=8, head=64, window=0 if i % 2 else 128) for i in range(24)),
    ),
    HfModel(
        name="DeepSeek-V3 TP8",
        ctx=32 * K,
        tensor=8,
        gib=17,
        config=_config(61, 7168, 128, 128, kv_lora_rank=512, qk_rope_head_dim=64),
        layers=(VllmLayer(latent=576),) * 61,
    ),
    HfModel(
        name="Llama-3.1-8B with an FP8 cache",
        ctx=128 * K,
        element_bytes=1,
        kv="fp8",
        config=_config(32, 4096, 32, 8),
        layers=(VllmLayer(heads=8, head=128),) * 32,
    ),
    HfModel(
        name="Llama-3.1-8B FP8 of ModelOpt",
        ctx=128 * K,
        element_bytes=1,
        config=_config(
            32,
            4096,
            32,
            8,
            quantization_config={"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"},
        ),
        layers=(VllmLayer(heads=8, head=128),) * 32,
    ),
)
