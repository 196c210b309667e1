"""The keys of a profile. One model a table; what they hold is in `fields`.

Descriptions end up in docs/reference/profiles.md.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from appliance.adapters.profile_files.fields import (
    AbsolutePath,
    CacheMib,
    Command,
    Count,
    Cpus,
    Deadline,
    Duration,
    Experts,
    Fraction,
    FullText,
    GpuChoice,
    HealthPath,
    Kv,
    Layers,
    Line,
    OnOffAuto,
    Parameters,
    ParameterValues,
    Paths,
    Port,
    Served,
    Size,
    SocketPath,
    Text,
    Tokens,
    UnitOverrides,
    User,
    VariableName,
    Word,
    Words,
)


class Table(BaseModel):
    """A table of a profile: no key that is not listed, no value of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=False)


class SpeculativeTable(Table):
    """``speculative = { … }``: speculative decoding."""

    method: Word = Field(description="`mtp`, `eagle3`, `ngram` …, as the engine knows it")
    tokens: Annotated[int, Field(ge=1, le=64)] = Field(description="tokens drafted per step")
    require: bool = Field(
        default=False,
        description="the profile is not itself without it; recorded for probes, not yet enforced",
    )


class NeedTable(Table):
    """``need = { … }``: memory the backend takes once loaded; the gate waits until it is free."""

    vram: Size | None = Field(
        default=None, description='over all claimed GPUs together, such as "18.6GiB"'
    )
    ram: Size | None = Field(default=None, description="in host RAM, weights in mapped files too")
    assume_free: bool = Field(
        default=False,
        description="start it also where a GPU's memory cannot be read (MIG, no permission)",
    )


class DeadlinesTable(Table):
    """``[deadlines]``: how long each step may take; ``"90s"``, ``"5m"``, or seconds."""

    no_progress: Deadline = Field(
        default=300.0, description="a start without CPU time, I/O, memory or log lines has failed"
    )
    stop: Deadline = Field(default=90.0, description="from SIGTERM to SIGKILL")
    drain: Duration = Field(default=30.0, description="for requests in flight before a stop")
    release: Deadline = Field(default=60.0, description="for the claimed memory to come back")
    warm_up: Deadline = Field(default=120.0, description="for the one real request after the load")


class PatchTable(Table):
    """``[patch]``: a command run before every start, as the backend's user."""

    command: Command = Field(description="program and arguments; the program by absolute path")
    writable: Paths = Field(
        default=[],
        description="paths that it may change, as far as the group appliance-backend may",
    )
    expect: Annotated[list[FullText], Field(max_length=64)] = Field(
        default=[], description="names its output must report as applied, else nothing is served"
    )


class OrderTable(Table):
    """``[order]``: what must be there before a start."""

    mounts: Paths = Field(default=[], description="paths whose file systems must be mounted")
    after: Words = Field(default=[], description="further units to start after")


class GatewayTable(Table):
    """``[gateway]``: what the gateway does with requests for it, whatever the client says."""

    set: ParameterValues = Field(
        default={},
        description="`{ temperature = 0.6 }`: request parameters that always have these values; "
        "an inner table reaches into an object",
    )
    strip: Parameters = Field(
        default=[], description="request parameters that are taken out; dots reach into objects"
    )
    switch: Literal["manual", "on-request"] = Field(
        default="manual",
        description="a request while another serves is refused with the command that would "
        "switch, or switches",
    )
    engine_key_file: AbsolutePath | None = Field(
        default=None,
        description="file with the key that the engine itself wants; readable for root alone",
    )


class LlamaServerTable(Table):
    """``[llama-server]``: llama.cpp's HTTP server."""

    gpu_layers: Layers | None = Field(
        default=None, description='`"all"` or a number; unset: all with GPUs, 0 without'
    )
    cpu_experts: Experts = Field(
        default=(), description='layers whose experts stay in host RAM: "26-29", or `"all"`'
    )
    expert_cache_mib: Annotated[int, Field(ge=0, le=1 << 22)] | None = Field(
        default=None, description="MiB of VRAM that cache experts kept in host RAM"
    )
    split_mode: Literal["none", "layer", "row", "tensor"] | None = Field(
        default=None, description="how the model is split over the GPUs"
    )
    tensor_split: Annotated[
        list[Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]], Field(max_length=64)
    ] = Field(default=[], description="share of each GPU, such as [3, 1]")
    kv_unified: bool = Field(
        default=False, description="requests share one cache of ctx tokens instead of ctx each"
    )
    batch: Count | None = Field(default=None, description="tokens in a logical batch")
    ubatch: Count | None = Field(default=None, description="tokens in a physical batch")
    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None, description="CPU threads that generate"
    )
    cpus: Cpus = Field(
        default=(), description='CPUs to stay on: "0,2,4-9" or a list; written as a mask'
    )
    cpu_strict: bool = Field(default=False, description="one thread a CPU, in order")
    mlock: bool = Field(
        default=False, description="pin the weights in RAM (`--load-mode mmap+mlock`)"
    )
    cache_ram: CacheMib | None = Field(
        default=None, description='RAM of the prompt cache: "0", "2GiB" or "unlimited"'
    )
    flash_attn: OnOffAuto | None = Field(default=None, description="true, false, or `auto`")
    mmproj: AbsolutePath | None = Field(default=None, description="the multimodal projector")
    embedding: bool = Field(default=False, description="serve embeddings only")
    legacy_options: bool = Field(
        default=False,
        description="the build is older than June 2026: `--mlock`, and no CORS options at all",
    )


class VllmTable(Table):
    """``[vllm]``."""

    tensor_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="GPUs each layer is split over"
    )
    pipeline_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="groups of layers, one a GPU"
    )
    gpu_memory_utilization: Fraction | None = Field(
        default=None, description="part of each GPU's memory that vLLM takes"
    )
    kv_cache_memory_bytes: Size | None = Field(
        default=None, description='"4GiB": size of the cache a GPU; overrides the part above'
    )
    dtype: Word | None = Field(default=None, description="type of weights and activations")
    quantization: Word | None = Field(default=None, description="unset: as the model says")
    enforce_eager: bool = Field(default=False, description="no CUDA graphs")
    disable_custom_all_reduce: bool = Field(default=False, description="needed on SM 8.6")
    trust_remote_code: bool = Field(default=False, description="run code that the model brings")
    chat_template: AbsolutePath | None = Field(default=None, description="instead of the model's")
    reasoning_parser: Word | None = Field(
        default=None, description="splits thinking from the answer"
    )
    prefix_caching: bool | None = Field(default=None, description="keep prompts between requests")
    chunked_prefill: bool | None = Field(default=None, description="prefill beside decoding")
    max_batched_tokens: Count | None = Field(default=None, description="tokens in one step")


class SglangTable(Table):
    """``[sglang]``."""

    tensor_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="GPUs each layer is split over"
    )
    pipeline_parallel: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None, description="groups of layers, one a GPU"
    )
    mem_fraction_static: Fraction | None = Field(
        default=None, description="part of each GPU's memory for weights and cache"
    )
    chunked_prefill_size: Annotated[int, Field(ge=-1, le=1 << 20)] | None = Field(
        default=None, description="tokens in a chunk; -1: whole prompts"
    )
    attention_backend: Word | None = Field(default=None, description="kernels for attention")
    dtype: Word | None = Field(default=None, description="type of weights and activations")
    quantization: Word | None = Field(default=None, description="unset: as the model says")
    disable_cuda_graph: bool = Field(default=False, description="no CUDA graphs")
    trust_remote_code: bool = Field(default=False, description="run code that the model brings")
    chat_template: Text | None = Field(default=None, description="a name or a path")
    reasoning_parser: Word | None = Field(
        default=None, description="splits thinking from the answer"
    )


class XllamacppTable(Table):
    """``[xllamacpp]``: the embedded engine."""

    threads: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        default=None,
        description="CPU threads that generate; unset: as many as `appliance apply` finds useful",
    )


class CommandTable(Table):
    """``[command]``: any program that serves HTTP."""

    argv: Command = Field(
        description="the program by absolute path, and its arguments; `{port}`, `{socket}`, "
        "`{host}` and `{model}` are replaced"
    )
    health: HealthPath = Field(
        default="/health", description="answers 200 once a request can be served"
    )


class ProfileFile(Table):
    """A profile: one model, and how to serve it. The file's stem is its name."""

    description: Line = Field(default="", description="for people")
    mark: Literal["live", "standby", "retired"] = Field(
        default="standby", description="first value only: afterwards `appliance mark` owns it"
    )
    engine: Literal["llama-server", "vllm", "sglang", "xllamacpp", "command"] = Field(
        description="the program that answers"
    )
    binary: AbsolutePath | None = Field(default=None, description="its absolute path")
    model: FullText | None = Field(
        default=None,
        description="an absolute path; `hf:owner/name` in the local cache, never fetched at a "
        'start; `"smollm2"`, the packaged model of the embedded engine',
    )
    served: Served | None = Field(
        default=None, description="names and patterns clients ask for; unset: the profile's name"
    )
    port: Port | None = Field(default=None, description="on loopback; this or `socket`")
    socket: SocketPath | None = Field(default=None, description="a unix socket instead of a port")
    gpus: GpuChoice | None = Field(
        default=None, description='`"all"`, indexes, or `[]` for the CPU; unset: all (embedded: [])'
    )
    shared: bool = Field(default=False, description="claims nothing and runs beside the others")
    ctx: Tokens | None = Field(default=None, description="tokens one request may use")
    parallel: Annotated[int, Field(ge=1, le=4096)] | None = Field(
        default=None, description="requests served at once"
    )
    kv: Kv | None = Field(
        default=None, description='type of the cache: `"q8_0"`, or `{ k = "…", v = "…" }`'
    )
    thinking: Literal["on", "off"] | None = Field(
        default=None, description="decided on the server; unset: the model's own way"
    )
    tool_parser: Word | None = Field(default=None, description="reads tool calls; switches them on")
    speculative: SpeculativeTable | None = Field(default=None, description="see below")
    need: NeedTable | None = Field(default=None, description="see below")
    warm_up: Literal["completion", "chat", "embedding", "none"] | None = Field(
        default=None,
        description="the request that proves a start; unset: `embedding` where the engine embeds "
        "or ranks, by its options or its model, `none` where it classifies, else `completion`",
    )
    user: User | None = Field(
        default=None,
        description="who the engine runs as; unset: backend_user of the settings, else a user of its own",
    )
    extra_args: Words = Field(default=[], description="further arguments of the engine")
    env: Annotated[dict[VariableName, Text], Field(max_length=256)] = Field(
        default={}, description="variables of the engine; values are text"
    )
    deadlines: DeadlinesTable | None = Field(default=None, description="see below")
    patch: PatchTable | None = Field(default=None, description="see below")
    gateway: GatewayTable | None = Field(default=None, description="see below")
    order: OrderTable | None = Field(default=None, description="see below")
    unit: UnitOverrides = Field(
        default=(),
        description="`Service.Nice = 5`: settings of the unit, see [[unit]](#unit)",
    )
    llama_server: LlamaServerTable | None = Field(
        default=None, alias="llama-server", description="see below"
    )
    vllm: VllmTable | None = Field(default=None, description="see below")
    sglang: SglangTable | None = Field(default=None, description="see below")
    xllamacpp: XllamacppTable | None = Field(default=None, description="see below")
    command: CommandTable | None = Field(default=None, description="see below")
