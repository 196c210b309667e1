"""Options that the servers of llama.cpp and of its forks have in common: keys, flags and types."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from appliance.engines.shared.llama_cpp_values import (
    CacheMib,
    Experts,
    LayerCount,
    OnOffAuto,
    TensorOverrides,
    cache_size,
)
from appliance.engines.shared.option_table import FlagForm, flag
from appliance.model.profile_values import JsonTable, Layers
from appliance.model.spec import EngineOptions
from appliance.model.value_types import (
    AbsolutePath,
    Count,
    Doc,
    FullText,
    Length,
    Paths,
    Range,
    Threads,
    Tokens,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppOptions(EngineOptions):
    """Options of any server of llama.cpp. An engine's own options inherit them, and add to them."""

    gpu_layers: Annotated[
        Layers | None,
        Doc('layers on the GPUs: `"all"` or a number; unset: all with GPUs, 0 without'),
        flag("--gpu-layers", "--n-gpu-layers", "-ngl", form=FlagForm.DERIVED),
    ] = None
    cpu_experts: Annotated[
        Experts,
        Doc('layers whose experts stay in host RAM: "26-29", or `"all"`'),
        flag("--cpu-moe", "-cmoe", form=FlagForm.DERIVED),
    ] = ()
    n_cpu_moe: Annotated[
        LayerCount | None,
        Doc("how many layers, from the first, keep their experts in host RAM"),
        flag("--n-cpu-moe", "-ncmoe"),
    ] = None
    override_tensor: Annotated[
        TensorOverrides,
        Doc("patterns of tensors and the buffer of each, the first that matches counts"),
        flag("--override-tensor", "-ot", form=FlagForm.REPEATED),
    ] = ()
    tensor_split: Annotated[
        tuple[Annotated[float, Range(least=0, most=1e6)], ...],
        Length(most=64),
        Doc("share of each GPU, such as [3, 1]"),
        flag("--tensor-split", "-ts", form=FlagForm.COMMAS),
    ] = ()
    main_gpu: Annotated[
        Annotated[int, Range(least=0, most=63)] | None,
        Doc(
            'place among the claimed GPUs of the one that a model with `split_mode = "none"` is on'
        ),
        flag("--main-gpu", "-mg"),
    ] = None
    kv_offload: Annotated[
        bool | None,
        Doc("whether the cache is on the GPUs with its layers; false: in host RAM"),
        flag("--kv-offload", "-kvo", form=FlagForm.EITHER, contrary=("--no-kv-offload", "-nkvo")),
    ] = None
    batch: Annotated[Count | None, Doc("tokens in a logical batch"), flag("--batch-size", "-b")] = (
        None
    )
    ubatch: Annotated[
        Count | None, Doc("tokens in a physical batch"), flag("--ubatch-size", "-ub")
    ] = None
    threads: Annotated[
        Threads | None, Doc("CPU threads that generate"), flag("--threads", "-t")
    ] = None
    threads_batch: Annotated[
        Threads | None,
        Doc("CPU threads that process prompts; unset: as many as generate"),
        flag("--threads-batch", "-tb"),
    ] = None
    numa: Annotated[
        Literal["distribute", "isolate", "numactl"] | None,
        Doc("how threads are spread over NUMA nodes"),
        flag("--numa"),
    ] = None
    mlock: Annotated[
        bool,
        Doc('pin the weights in RAM, as `load_mode = "mmap+mlock"` does'),
        flag(form=FlagForm.DERIVED, former=("--mlock",)),
    ] = False
    cache_ram_mib: Annotated[
        CacheMib | None,
        Doc('RAM of the prompt cache: "0", "2GiB" or "unlimited"', key="cache_ram"),
        flag("--cache-ram", "-cram", read=cache_size),
    ] = None
    ctx_checkpoints: Annotated[
        Annotated[int, Range(least=0, most=4096)] | None,
        Doc("most checkpoints of one request's state or window in host RAM; unset: 32"),
        flag("--ctx-checkpoints", "-ctxcp", "--swa-checkpoints"),
    ] = None
    flash_attn: Annotated[
        OnOffAuto | None, Doc("true, false, or `auto`"), flag("--flash-attn", "-fa")
    ] = None
    rope_scaling: Annotated[
        Literal["none", "linear", "yarn"] | None,
        Doc("how positions beyond the trained context are scaled"),
        flag("--rope-scaling"),
    ] = None
    rope_scale: Annotated[
        Annotated[float, Range(above=0, most=1e3)] | None,
        Doc("factor by which the context is extended"),
        flag("--rope-scale"),
    ] = None
    yarn_orig_ctx: Annotated[
        Tokens | None, Doc("context that the model was trained for"), flag("--yarn-orig-ctx")
    ] = None
    lora: Annotated[Paths, Doc("files of LoRA adapters"), flag("--lora", form=FlagForm.COMMAS)] = ()
    mmproj: Annotated[
        AbsolutePath | None, Doc("the multimodal projector"), flag("--mmproj", "-mm")
    ] = None
    mmproj_offload: Annotated[
        bool | None,
        Doc("whether the projector is on a GPU"),
        flag("--mmproj-offload", form=FlagForm.EITHER, contrary=("--no-mmproj-offload",)),
    ] = None
    image_min_tokens: Annotated[
        Count | None, Doc("least tokens of one image"), flag("--image-min-tokens")
    ] = None
    image_max_tokens: Annotated[
        Count | None, Doc("most tokens of one image"), flag("--image-max-tokens")
    ] = None
    embedding: Annotated[
        bool,
        Doc("serve embeddings only"),
        flag("--embedding", "--embeddings", form=FlagForm.SWITCH),
    ] = False
    pooling: Annotated[
        Literal["none", "mean", "cls", "last", "rank"] | None,
        Doc("how tokens become one embedding; unset: as the model says"),
        flag("--pooling"),
    ] = None
    chat_template: Annotated[
        FullText | None,
        Doc("name of a built-in chat template, or path of a file with one"),
        flag("--chat-template-file", form=FlagForm.DERIVED),
    ] = None
    chat_template_kwargs: Annotated[
        JsonTable,
        Doc(
            "`{ preserve_thinking = true }`: variables of the chat template, unless a client sets them"
        ),
        flag("--chat-template-kwargs", form=FlagForm.JSON),
    ] = field(default_factory=dict)
    reasoning_format: Annotated[
        Literal["auto", "none", "deepseek", "deepseek-legacy"] | None,
        Doc("where thinking is in an answer; `none`: in its text"),
        flag("--reasoning-format"),
    ] = None
