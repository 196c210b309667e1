"""Code that vLLM and SGLang share: both run PyTorch, split a model into shards, and report in the same words."""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Final

from appliance.engines.shared.drafting import DraftMethod, used_methods
from appliance.engines.shared.engine import Task
from appliance.engines.shared.invocation import (
    HF_SCHEME,
    Invocation,
    InvocationContext,
    environment,
    hf_repository,
    hf_variables,
    model_named,
)
from appliance.engines.shared.self_report import (
    PageReader,
    Reading,
    ReportPage,
    draft_facts,
    exactly,
    model_fact,
    spoken,
    stated,
    thinking_facts,
)
from appliance.model.model_headers import Safetensors
from appliance.model.profile_values import KvCache
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import Problem, Profile, Where

_THINKING_VARIABLE: Final = "enable_thinking"
"""Variable by which most chat templates turn thinking on and off."""
_SUFFIXES: Final = (
    ("ForCausalLM", Task.GENERATE),
    ("ForConditionalGeneration", Task.GENERATE),
    ("ChatModel", Task.GENERATE),
    ("LMHeadModel", Task.GENERATE),
    ("ForTextEncoding", Task.EMBED),
    ("EmbeddingModel", Task.EMBED),
    ("ForSequenceClassification", Task.CLASSIFY),
    ("ForTokenClassification", Task.CLASSIFY),
    ("ClassificationModel", Task.CLASSIFY),
    ("ForRewardModeling", Task.CLASSIFY),
    ("ForRewardModel", Task.CLASSIFY),
    ("RewardModel", Task.CLASSIFY),
    ("Model", Task.EMBED),
)
"""Endings of an architecture's name, as vLLM reads them (config/model.py, _SUFFIX_TO_DEFAULTS)."""
_FEWER_WEIGHTS: Final = (
    "--hf-config-overrides",
    "--hf-overrides",
    "--json-model-override-args",
    "--kt-",
    "--offload",
)
"""Beginnings of options with which fewer weights may be on the GPUs than the files have."""


def invocation(
    profile: Profile, context: InvocationContext, argv: tuple[str, ...], ours: Mapping[str, str]
) -> Invocation:
    """Return how an engine that runs PyTorch is started; `ours` are variables of this engine.

    Workers meet on loopback, and kernels are kept once they are compiled. PyTorch keeps its compiler's
    precompiled headers beside temporary files (``torchinductor_USER``, 149 MB for a CPU), whatever its
    cache directory is: in a private /tmp they would end with each stop.
    """
    directory = f"{context.cache_root}/{profile.name}"
    temporary = f"{directory}/tmp"  # noqa: S108 - of this profile
    variables = {
        # Its default directory is in the home; it appends .cache/flashinfer.
        "FLASHINFER_WORKSPACE_BASE": directory,
        # The unit's filter blocks the box's own address: only loopback is left.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        # Workers are further Python processes: none imports from its working directory.
        "PYTHONSAFEPATH": "1",
        # A first start compiles for minutes: the result must outlive a restart.
        "TMPDIR": temporary,
        "TORCHINDUCTOR_CACHE_DIR": f"{directory}/inductor",
        "TRITON_CACHE_DIR": f"{directory}/triton",
        "TVM_FFI_CACHE_DIR": f"{directory}/tvm-ffi",
    }
    return Invocation(
        argv=argv,
        environment=environment(profile, context, hf_variables(profile, context), variables, ours),
        health_path="/health",
        temporary=temporary,
    )


def kv_problems(
    profile: Profile, known: Mapping[str, str], known_for_drafts: Mapping[str, str]
) -> Iterator[Problem]:
    """Find problems of ``kv``, also that of drafts, for an engine with one type for keys and values."""
    yield from _one_kv_type(profile.kv, ("kv",), profile.engine, known)
    if profile.speculative is not None:
        kv, where = profile.speculative.kv, ("speculative", "kv")
        yield from _one_kv_type(kv, where, profile.engine, known_for_drafts)


def _one_kv_type(
    kv: KvCache | None, where: Where, engine: str, known: Mapping[str, str]
) -> Iterator[Problem]:
    if kv is None:
        return
    if kv.k != kv.v:
        text = f"{engine} has one type for keys and values: write kv as one word"
        yield Problem(where=where, text=text)
    elif kv.k not in known:
        text = f'kv "{kv.k}" is unknown to {engine}: use one of {", ".join(known)}'
        yield Problem(where=where, text=text)


def parses_tools(profile: Profile) -> bool:
    """Tell whether the engine reads tool calls, for which it needs a parser."""
    return profile.tool_parser is not None


def adapter_words(profile: Profile) -> tuple[str, ...]:
    """Return the adapters in the form that both engines read, ``name=path``."""
    return tuple(f"{a.name}={hf_repository(a.path) or a.path}" for a in profile.adapters)


def tool_problems(profile: Profile) -> Iterator[Problem]:
    """Find the problem of tool calls that are promised without a parser."""
    if profile.tools and profile.tool_parser is None:
        text = f"{profile.engine} reads no tool calls without a parser: set tool_parser"
        yield Problem(where=("tools",), text=text)


def budget_problems(profile: Profile, reasoning_parser: str | None) -> Iterator[Problem]:
    """Find the problem of a budget of thinking that the engine cannot see the end of."""
    limited = profile.thinking is not None and profile.thinking.budget_tokens is not None
    if limited and reasoning_parser is None:
        text = f"{profile.engine} ends a thought by its reasoning parser: set reasoning_parser"
        yield Problem(where=("thinking",), text=text)


def budget_parameters(profile: Profile, *, name: str) -> Mapping[str, object]:
    """Return the budget of thinking as the request parameter `name`: no option of the engine sets it."""
    budget = None if profile.thinking is None else profile.thinking.budget_tokens
    return {} if budget is None else {name: budget}


def chat_template_kwargs(profile: Profile, written: Mapping[str, object]) -> Mapping[str, object]:
    """Return the variables of the chat template: those that are `written`, and ``thinking``."""
    thinking = {} if profile.thinking is None else {_THINKING_VARIABLE: profile.thinking.on}
    return {**thinking, **written}


def kwargs_problems(profile: Profile, written: Mapping[str, object]) -> Iterator[Problem]:
    """Find the problem of a variable of the chat template that ``thinking`` sets as well."""
    if profile.thinking is not None and _THINKING_VARIABLE in written:
        text = f"{_THINKING_VARIABLE} is what the key thinking says: keep one of the two"
        yield Problem(where=(profile.engine, "chat_template_kwargs"), text=text)


def sampling_problems(profile: Profile, known: Container[str]) -> Iterator[Problem]:
    """Find sampling parameters of which the engine takes no default."""
    for key in (one.name for one in fields(profile.sampling)):
        if getattr(profile.sampling, key) is not None and key not in known:
            text = f"{profile.engine} takes no default of {key}: set it for every request in [gateway] set"
            yield Problem(where=("sampling", key), text=text)


def enough_gpus(
    profile: Profile, table: str, tensor: int | None, pipeline: int | None
) -> Iterator[Problem]:
    """Find the problem of a model split over more GPUs than the profile claims."""
    if profile.gpus == "all":
        return
    workers = shards(tensor, pipeline)
    if profile.gpus and workers > len(profile.gpus):
        text = f"the model is split over {workers} GPUs, the profile claims {len(profile.gpus)}"
        yield Problem(where=(table, "tensor_parallel"), text=text)


def shards(tensor: int | None, pipeline: int | None) -> int:
    """Return how many workers, each with a GPU of its own, hold the model."""
    return (tensor or 1) * (pipeline or 1)


def shard_split(profile: Profile, workers: int) -> tuple[float, ...]:
    """Return equal weights of the first GPUs, one for each worker; none without GPUs."""
    return () if profile.gpus == () else (1.0,) * workers


def offloaded_bytes(offload_gib: float | None) -> int:
    """Return the bytes of weights that each worker keeps in main memory (``--cpu-offload-gb``)."""
    return -int(-(offload_gib or 0) * (1 << 30) // 1)


def loads_all(profile: Profile, load_format: str | None) -> bool:
    """Tell whether no option loads other weights than those of the model's files, or fewer on GPUs."""
    arguments = (argument.replace("_", "-") for argument in profile.extra_args)
    return load_format in {None, "auto", "safetensors"} and not any(
        argument.startswith(_FEWER_WEIGHTS) for argument in arguments
    )


def own_drafts(profile: Profile, methods: Mapping[str, DraftMethod]) -> int:
    """Return the tokens that the model's own layers draft in each step; 0: they draft none."""
    speculative = profile.speculative
    if speculative is None or speculative.model is not None:
        return 0
    own = methods["mtp"] in used_methods(speculative, methods)
    return speculative.tokens or 0 if own else 0


def architecture_task(model: Safetensors) -> Task | None:
    """Return the task by the name of the model's architecture; None: the name has no ending that is known."""
    architectures = model.config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    for name in names[:1]:
        for suffix, task in _SUFFIXES:
            if isinstance(name, str) and name.endswith(suffix):
                return task
    return None


_SIXTEEN_BITS: Final = ("auto", "bf16", "bfloat16", "float16", "half")
_EIGHT_BITS: Final = ("fp8", "fp8_e4m3")
_CACHE_WORDS: Final = {
    "bf16": _SIXTEEN_BITS,
    "f16": _SIXTEEN_BITS,
    "fp8": _EIGHT_BITS,
    "fp8_e4m3": _EIGHT_BITS,
}
"""Words of both engines for a type of the cache; another type has one word."""


def common_facts(
    profile: Profile, *, quantization: str | None, chat_template: str | None
) -> Iterator[DeclaredFact]:
    """Yield what a profile declares of the facts that both engines report.

    Args:
        profile: The profile.
        quantization: Method that its table names; None: as the model says.
        chat_template: Template that its table names; None: the model's.
    """
    if profile.ctx is not None:
        yield exactly(Topic.CONTEXT, "ctx", profile.ctx)
    if profile.parallel is not None:
        yield exactly(Topic.SLOTS, "parallel", profile.parallel)
    if profile.kv is not None and profile.kv.k != "auto":
        kind = profile.kv.k
        yield stated(Topic.KV, "kv", kind, *_CACHE_WORDS.get(kind, (kind,)))
    yield stated(Topic.GPU_LAYERS, "gpus", "none" if profile.gpus == () else "all")
    yield from draft_facts(profile)
    yield from thinking_facts(profile)
    yield model_fact(profile)
    if quantization is not None:
        # An engine picks kernels for a method: another name is not another method.
        yield stated(Topic.QUANTIZATION, "quantization", quantization, fails=False)
    if chat_template is not None:
        yield stated(Topic.CHAT_TEMPLATE, "chat_template", chat_template)
    if profile.adapters:
        yield stated(Topic.ADAPTERS, "adapters", _names(a.name for a in profile.adapters))


def _model_list(page: str) -> Iterator[Reading]:
    reader = PageReader("/v1/models", page)
    listed = (reader.mapping() or {}).get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    if not isinstance(first, dict):
        yield reader.nonsense("list of models")
        return
    yield from reader.number(Topic.CONTEXT, first, "max_model_len")
    yield from reader.word(Topic.MODEL, first, "root", words=model_words)
    rows = listed if isinstance(listed, list) else []
    yield spoken(Topic.ADAPTERS, "/v1/models", _names(filter(None, map(_adapter, rows))))


def _adapter(row: object) -> str | None:
    """Return the name of the adapter that an entry is; None: a model, which belongs to no other."""
    members = row if isinstance(row, dict) else {}
    name = members.get("id")
    return name if isinstance(name, str) and isinstance(members.get("parent"), str) else None


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


MODEL_LIST: Final = ReportPage(path="/v1/models", read=_model_list)
"""Page with context, model and adapters."""


def model_words(text: str) -> tuple[str, ...]:
    """Return a model as profiles name it: ``owner/name`` is a repository."""
    named = model_named(text)
    is_path = named.startswith(("/", HF_SCHEME)) or "/" not in named
    return (named if is_path else f"{HF_SCHEME}{named}",)


def place_words(device: str) -> tuple[str, ...]:
    """Return where a model's layers are, by the kind of the device that an engine names."""
    return ("none" if device == "cpu" else "all",)


def method_words(method: str) -> tuple[str, ...]:
    """Return the methods of quantisation that a name may stand for: ``awq`` of ``awq_marlin``, too."""
    return method, method.partition("_")[0]
