"""Code that the servers of llama.cpp and of its forks share: values, options, rules and settings of loading.

What such a server reports about itself is in `llama_cpp_report`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from appliance.engines.shared.drafting import DraftMethod, used_methods
from appliance.engines.shared.engine import DraftLoading, LlamaCppLoading
from appliance.engines.shared.option_table import CommonFlags, FlagForm, ValueKind, flag
from appliance.engines.shared.self_report import exactly, stated
from appliance.model.profile_values import JsonTable, KvCache, Layers
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import EngineOptions, Problem, Profile, Speculative, Where
from appliance.model.value_types import (
    AbsolutePath,
    Check,
    Count,
    Doc,
    FullText,
    Length,
    Paths,
    Range,
    Text,
    Threads,
    Tokens,
    TypeName,
    ValueParser,
    WrongValueError,
    is_index,
    shown,
    size,
)

_MAX_INDEX: Final = 1023
_MAX_RANGES: Final = 4096
"""Limit of a text with ranges, in characters."""
_RANGE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?\Z", re.ASCII)
_MASK: Final = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{1,256})\Z")
_UNLIMITED: Final = -1


def _numbers(value: object) -> tuple[int, ...]:
    """Parse a list of indexes, or a text such as "0,2,4-9"."""
    found: Iterable[int] = ()
    if isinstance(value, list) and all(is_index(item, _MAX_INDEX) for item in value):
        found = value
    elif isinstance(value, str) and len(value) <= _MAX_RANGES:
        found = _ranges(value)
    if not found:
        raise WrongValueError(f'{shown(value)} is not a list or range such as "0,2,4-9"')
    return tuple(sorted(set(found)))


def _ranges(text: str) -> set[int]:
    """Return every number in `text`; empty when it is malformed."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.match(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last or last > _MAX_INDEX:
            return set()
        found.update(range(first, last + 1))
    return found


def _experts(value: object) -> Literal["all"] | tuple[int, ...]:
    return "all" if value == "all" else _numbers(value)


def _on_off_auto(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value in ("on", "off", "auto"):
        return str(value)
    raise WrongValueError(f'{shown(value)} is not "on", "off" or "auto"')


def _cache_mib(value: object) -> int:
    return _UNLIMITED if value == "unlimited" else size(value) >> 20


def _tensor_override(text: str) -> str:
    pattern, equals, buffer = text.rpartition("=")
    if not (pattern and equals and buffer) or "," in text:
        raise WrongValueError(
            f"{shown(text)} is not a pattern of tensors and a buffer, such as "
            r"blk\.[0-9]\.ffn_.*_exps\.=CPU"
        )
    return text


def cpu_mask(cpus: Iterable[int]) -> str:
    """Return CPU numbers as the hexadecimal mask that llama.cpp reads: 0,2,4-9 is 3F5."""
    return f"{sum(1 << n for n in set(cpus)):X}"


def cpus_in_mask(text: str) -> list[int]:
    """Return the CPU numbers in a mask. Raises `ValueError`."""
    match = _MASK.match(text)
    if match is None:
        raise ValueError("is no hexadecimal mask")
    bits = int(match[1], 16)
    return [n for n in range(bits.bit_length()) if bits >> n & 1]


def _cache_size(text: str) -> str:
    """Return what a profile writes for a number of MiB. Raises `ValueError`."""
    mib = int(text)
    return "unlimited" if mib == _UNLIMITED else f"{mib}MiB"


Cpus = Annotated[tuple[int, ...], ValueParser(_numbers), TypeName("range or list")]
Experts = Annotated[
    Literal["all"] | tuple[int, ...], ValueParser(_experts), TypeName("all, range or list")
]
OnOffAuto = Annotated[str, ValueParser(_on_off_auto), TypeName("true, false or auto")]
CacheMib = Annotated[int, ValueParser(_cache_mib), TypeName("size or unlimited")]
LayerCount = Annotated[int, Range(least=1, most=9999)]
TensorOverrides = Annotated[tuple[Annotated[Text, Check(_tensor_override)], ...], Length(most=64)]


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
        flag("--cache-ram", "-cram", read=_cache_size),
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


DEFAULT_BATCH: Final = 2048
"""Tokens of a logical batch where nothing is said (``common_params::n_batch``)."""
DEFAULT_UBATCH: Final = 512
"""Tokens of a physical batch where nothing is said (``common_params::n_ubatch``)."""

CAPACITY_FLAGS: Final[CommonFlags] = (
    ("gpus", flag("--device", "-dev", form=FlagForm.DERIVED)),
    ("ctx", flag("--ctx-size", "-c", form=FlagForm.DERIVED, kind=ValueKind.WHOLE)),
    ("parallel", flag("--parallel", "-np", form=FlagForm.DERIVED, kind=ValueKind.WHOLE)),
    ("kv.k", flag("--cache-type-k", "-ctk")),
    ("kv.v", flag("--cache-type-v", "-ctv")),
)
"""Flags of GPUs, context and cache that all these servers have in the same spelling."""
SAMPLING_FLAGS: Final[CommonFlags] = (
    ("sampling.top_p", flag("--top-p", kind=ValueKind.NUMBER)),
    ("sampling.top_k", flag("--top-k", kind=ValueKind.WHOLE)),
    ("sampling.min_p", flag("--min-p", kind=ValueKind.NUMBER)),
    ("sampling.presence_penalty", flag("--presence-penalty", kind=ValueKind.NUMBER)),
    ("sampling.frequency_penalty", flag("--frequency-penalty", kind=ValueKind.NUMBER)),
    ("sampling.repetition_penalty", flag("--repeat-penalty", kind=ValueKind.NUMBER)),
    ("sampling.max_tokens", flag("--predict", "-n", "--n-predict", kind=ValueKind.WHOLE)),
)
"""Flags of sampling that all these servers have in the same spelling."""

Rule = tuple[str, bool, str]
"""Key of the engine's table, whether its value is wrong, and a sentence that says why."""


def cache_type_problems(profile: Profile, types: Sequence[str], server: str) -> Iterator[Problem]:
    """Find types of the cache, also that of drafts, which a server of llama.cpp does not have.

    Args:
        profile: The profile.
        types: Types that the server has.
        server: Name of the server, for people.
    """
    drafts = None if profile.speculative is None else profile.speculative.kv
    places: tuple[tuple[Where, KvCache | None], ...] = (
        (("kv",), profile.kv),
        (("speculative", "kv"), drafts),
    )
    for where, kv in places:
        sides = () if kv is None else (kv.k, kv.v)
        for side in [side for side in sides if side not in types][:1]:
            text = f'kv "{side}" is unknown to {server}: use one of {", ".join(types)}'
            yield Problem(where=where, text=text)


def option_problems(
    profile: Profile, options: LlamaCppOptions, further: Iterable[Rule] = ()
) -> Iterator[Problem]:
    """Find options of an engine's table that contradict one another, or the rest of the profile.

    Args:
        profile: The profile.
        options: Its engine's table.
        further: Rules for the options that only this engine has.
    """
    if profile.adapters:
        text = (
            f"{profile.engine} has no names for adapters: make a profile for each, with its file in lora of"
            f" [{profile.engine}], which every request to it is answered with"
        )
        yield Problem(where=("adapters",), text=text)
    for key, is_wrong, text in (*_rules(profile, options), *further):
        if is_wrong:
            yield Problem(where=(profile.engine, key), text=text)


def _rules(profile: Profile, options: LlamaCppOptions) -> Iterator[Rule]:
    batch = options.batch or DEFAULT_BATCH
    yield (
        "ubatch",
        (options.ubatch or 0) > batch,
        f"ubatch {options.ubatch} is above batch {batch}, which would clamp it: raise batch",
    )
    yield (
        "gpu_layers",
        profile.gpus == () and options.gpu_layers not in {None, 0},
        "this profile claims no GPU: set gpus, or remove gpu_layers",
    )
    yield (
        "cpu_experts",
        profile.gpus == () and bool(options.cpu_experts),
        "without GPUs all experts are in host RAM: remove cpu_experts",
    )
    yield (
        "n_cpu_moe",
        options.n_cpu_moe is not None and bool(options.cpu_experts),
        "cpu_experts names layers too: keep one of the two",
    )
    yield (
        "main_gpu",
        profile.gpus != "all" and (options.main_gpu or 0) >= max(1, len(profile.gpus)),
        "main_gpu counts the claimed GPUs from 0, and there are fewer",
    )
    yield (
        "chat_template_kwargs",
        profile.thinking is not None and "enable_thinking" in options.chat_template_kwargs,
        "enable_thinking is what the key thinking says: keep one of the two",
    )


_CHECKPOINTS: Final = 32
"""Most checkpoints of a request, where nothing is said (``common_params::n_ctx_checkpoints``; in
ik_llama.cpp ``gpt_params::ctx_checkpoints_n``)."""


def gpu_split(
    profile: Profile, options: LlamaCppOptions, split_mode: str | None
) -> tuple[float, ...]:
    """Return the weights of the GPUs, as `MemoryUse.gpu_split` has them; empty: no split is declared.

    llama.cpp takes a split of nothing but zeros for no split at all.
    """
    if profile.gpus == ():
        return ()
    if split_mode == "none":
        return (1.0,)
    return options.tensor_split if any(options.tensor_split) else ()


def shared_loading(
    profile: Profile,
    options: LlamaCppOptions,
    methods: Mapping[str, DraftMethod],
    *,
    uncertain: tuple[str, ...],
) -> LlamaCppLoading:
    """Return what the options say that all these servers have; an engine adds its own by `replace`.

    Args:
        profile: The profile.
        options: Its engine's table.
        methods: Methods of speculative decoding that the engine has, by name.
        uncertain: Beginnings of arguments that may change the cache in ways that the estimate does not
            follow.
    """
    checkpoints = options.ctx_checkpoints
    return LlamaCppLoading(
        projector=options.mmproj,
        projector_in_ram=options.mmproj_offload is False,
        gpu_layers=options.gpu_layers,
        cpu_experts=tuple(range(options.n_cpu_moe or 0)) or options.cpu_experts,
        overrides=options.override_tensor,
        cache_in_ram=options.kv_offload is False,
        tensor_split=options.tensor_split,
        checkpoints=_CHECKPOINTS if checkpoints is None else checkpoints,
        certain=not any(a.startswith(uncertain) for a in profile.extra_args),
        batch=options.batch,
        ubatch=options.ubatch,
        flash_attn=options.flash_attn,
        draft=_draft(profile.speculative, methods),
    )


def _draft(
    speculative: Speculative | None, methods: Mapping[str, DraftMethod]
) -> DraftLoading | None:
    """Return how drafts are made by a model; None: there are none, or n-grams make them."""
    used = () if speculative is None else used_methods(speculative, methods)
    if speculative is None or all(method.model == "none" for method in used):
        return None
    kv = speculative.kv or KvCache(k="f16", v="f16")
    return DraftLoading(
        tokens=speculative.tokens or 0,
        own_layers=methods["mtp"] in used,
        model=speculative.model,
        gpu_layers=speculative.gpu_layers,
        key_type=kv.k,
        value_type=kv.v,
    )


def layers_fact(profile: Profile, options: LlamaCppOptions) -> DeclaredFact:
    """Return the number of layers that the profile puts on GPUs."""
    layers = options.gpu_layers
    if profile.gpus == ():
        return exactly(Topic.GPU_LAYERS, "gpus", 0)
    key = "gpus" if layers is None else f"[{profile.engine}] gpu_layers"
    if layers is None or layers == "all":
        return stated(Topic.GPU_LAYERS, key, "all")
    return exactly(Topic.GPU_LAYERS, key, layers)


def template_words(template: str | None) -> tuple[str, ...]:
    """Return the arguments for a chat template, which is named or in a file; none: the model's own."""
    if template is None:
        return ()
    return ("--chat-template-file" if template.startswith("/") else "--chat-template", template)


def reads_tools(_profile: Profile) -> bool:
    """Return True: tool calls are read by the template of any model, or generically without one."""
    return True
