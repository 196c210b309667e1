"""From the tables of a profile to `appliance.domain.spec.Profile`."""

from typing import assert_never

from appliance.adapters.profile_files.schema import (
    CommandTable,
    DeadlinesTable,
    GatewayTable,
    LlamaServerTable,
    NeedTable,
    OrderTable,
    PatchTable,
    ProfileFile,
    SglangTable,
    SpeculativeTable,
    VllmTable,
    XllamacppTable,
)
from appliance.domain.profile import Deadlines, Endpoint, Handling, Mark, Need, WarmUp
from appliance.domain.spec import (
    EngineOptions,
    Gpus,
    Ordering,
    Patch,
    Profile,
    Speculative,
    Thinking,
)
from appliance.engines.any_command import CommandOptions
from appliance.engines.llama_server import LlamaServerOptions
from appliance.engines.sglang import SglangOptions
from appliance.engines.vllm import VllmOptions
from appliance.engines.xllamacpp import XllamacppOptions


def build(name: str, file: ProfileFile) -> Profile:
    """The profile `name`, as its checked `file` says; engine command needs its table."""
    options = _options(file)
    return Profile(
        name=name,
        description=file.description,
        mark=Mark(file.mark),
        engine=file.engine,
        binary=file.binary or "",
        model=file.model or "",
        served=tuple(file.served or (name,)),
        endpoint=Endpoint(port=file.port, socket=file.socket),
        gpus=_gpus(file),
        shared=file.shared,
        ctx=file.ctx,
        parallel=file.parallel,
        kv=file.kv,
        thinking=None if file.thinking is None else Thinking(file.thinking),
        tool_parser=file.tool_parser,
        speculative=_speculative(file.speculative),
        need=_need(file.need or NeedTable()),
        assume_free=(file.need or NeedTable()).assume_free,
        deadlines=_deadlines(file.deadlines or DeadlinesTable()),
        warm_up=None if file.warm_up is None else WarmUp(file.warm_up),
        user=file.user,
        env=dict(file.env),
        patch=_patch(file.patch),
        gateway=_handling(file.gateway or GatewayTable()),
        order=_order(file.order or OrderTable()),
        unit=file.unit,
        extra_args=tuple(file.extra_args),
        options=options,
    )


def _gpus(file: ProfileFile) -> Gpus:
    if file.gpus is not None:
        return file.gpus
    return () if file.engine == "xllamacpp" else "all"


def _speculative(table: SpeculativeTable | None) -> Speculative | None:
    if table is None:
        return None
    return Speculative(method=table.method, tokens=table.tokens, require=table.require)


def _need(table: NeedTable) -> Need:
    return Need(vram_bytes=table.vram, ram_bytes=table.ram)


def _deadlines(table: DeadlinesTable) -> Deadlines:
    return Deadlines(
        no_progress_s=table.no_progress,
        stop_s=table.stop,
        drain_s=table.drain,
        release_s=table.release,
        warm_up_s=table.warm_up,
    )


def _patch(table: PatchTable | None) -> Patch | None:
    if table is None:
        return None
    return Patch(
        command=tuple(table.command), writable=tuple(table.writable), expect=tuple(table.expect)
    )


def _handling(table: GatewayTable) -> Handling:
    return Handling(
        set_parameters=dict(table.set),
        strip_parameters=tuple(table.strip),
        on_request=table.switch == "on-request",
        engine_key_file=table.engine_key_file,
    )


def _order(table: OrderTable) -> Ordering:
    return Ordering(mounts=tuple(table.mounts), after=tuple(table.after))


def _options(file: ProfileFile) -> EngineOptions:
    match file.engine:
        case "llama-server":
            return _llama_server(file.llama_server or LlamaServerTable())
        case "vllm":
            return _vllm(file.vllm or VllmTable())
        case "sglang":
            return _sglang(file.sglang or SglangTable())
        case "xllamacpp":
            return XllamacppOptions(threads=(file.xllamacpp or XllamacppTable()).threads)
        case "command":
            return _command(file.command)
        case _:
            assert_never(file.engine)


def _llama_server(table: LlamaServerTable) -> LlamaServerOptions:
    return LlamaServerOptions(
        gpu_layers=table.gpu_layers,
        cpu_experts=table.cpu_experts,
        expert_cache_mib=table.expert_cache_mib,
        split_mode=table.split_mode,
        tensor_split=tuple(table.tensor_split),
        kv_unified=table.kv_unified,
        batch=table.batch,
        ubatch=table.ubatch,
        threads=table.threads,
        cpus=table.cpus,
        cpu_strict=table.cpu_strict,
        mlock=table.mlock,
        cache_ram_mib=table.cache_ram,
        flash_attn=table.flash_attn,
        mmproj=table.mmproj,
        embedding=table.embedding,
        legacy_options=table.legacy_options,
    )


def _vllm(table: VllmTable) -> VllmOptions:
    return VllmOptions(
        tensor_parallel=table.tensor_parallel,
        pipeline_parallel=table.pipeline_parallel,
        gpu_memory_utilization=table.gpu_memory_utilization,
        kv_cache_memory_bytes=table.kv_cache_memory_bytes,
        dtype=table.dtype,
        quantization=table.quantization,
        enforce_eager=table.enforce_eager,
        disable_custom_all_reduce=table.disable_custom_all_reduce,
        trust_remote_code=table.trust_remote_code,
        chat_template=table.chat_template,
        reasoning_parser=table.reasoning_parser,
        prefix_caching=table.prefix_caching,
        chunked_prefill=table.chunked_prefill,
        max_batched_tokens=table.max_batched_tokens,
    )


def _sglang(table: SglangTable) -> SglangOptions:
    return SglangOptions(
        tensor_parallel=table.tensor_parallel,
        pipeline_parallel=table.pipeline_parallel,
        mem_fraction_static=table.mem_fraction_static,
        chunked_prefill_size=table.chunked_prefill_size,
        attention_backend=table.attention_backend,
        dtype=table.dtype,
        quantization=table.quantization,
        disable_cuda_graph=table.disable_cuda_graph,
        trust_remote_code=table.trust_remote_code,
        chat_template=table.chat_template,
        reasoning_parser=table.reasoning_parser,
    )


def _command(table: CommandTable | None) -> CommandOptions:
    if table is None:
        return CommandOptions(argv=())
    return CommandOptions(argv=tuple(table.argv), health=table.health)
