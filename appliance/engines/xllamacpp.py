"""Embedded engine: llama.cpp's own server from a wheel, run by our interpreter."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Final

from appliance.engines.shared import llama_cpp_report
from appliance.engines.shared.engine import Engine, LlamaCppLoading, MemoryUse, options_of
from appliance.engines.shared.invocation import Invocation, InvocationContext, environment
from appliance.engines.shared.self_report import exactly, model_fact
from appliance.model.running_facts import DeclaredFact, Topic
from appliance.model.spec import EngineOptions, Problem, Profile, SamplingTable
from appliance.model.value_types import Doc, Threads

_DEFAULT_CTX: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class XllamacppOptions(EngineOptions):
    """``[xllamacpp]``: options of the embedded engine."""

    threads: Annotated[
        Threads | None,
        Doc("CPU threads that generate; unset: as many as `appliance apply` finds useful"),
    ] = None


def _invocation(profile: Profile, context: InvocationContext) -> Invocation:
    options = options_of(XllamacppOptions, profile)
    return Invocation(
        argv=(
            *(f"{context.prefix}/bin/python", "-I", "-m", "appliance.launch.embedded"),
            *("--port", str(profile.endpoint.port), "--model", profile.model),
            *("--ctx", str(profile.ctx or _DEFAULT_CTX)),
            *("--parallel", str(profile.parallel or 1)),
            *("--threads", str(options.threads or context.threads)),
            *("--alias", profile.models[0]),
        ),
        environment=environment(profile, context),
        health_path="/health",
    )


_UNUSED: Final = ("kv", "thinking", "tool_parser", "speculative")


def _problems(profile: Profile) -> Iterator[Problem]:
    for key in _UNUSED:
        if getattr(profile, key) is not None:
            yield Problem(where=(key,), text=f"the embedded engine has no {key}: remove it")
    if profile.sampling != SamplingTable():
        text = "the embedded engine takes no defaults of sampling: set them in [gateway] set"
        yield Problem(where=("sampling",), text=text)
    if profile.adapters:
        text = "the embedded engine loads no adapters: use engine vllm or sglang"
        yield Problem(where=("adapters",), text=text)
    if profile.extra_args:
        text = "the embedded engine takes no further arguments: use engine llama-server"
        yield Problem(where=("extra_args",), text=text)
    if profile.binary:
        text = "the embedded engine is part of the appliance: remove binary"
        yield Problem(where=("binary",), text=text)
    if profile.gpus != ():
        yield Problem(where=("gpus",), text="the embedded engine runs on the CPU: set gpus = []")
    if profile.endpoint.socket is not None:
        yield Problem(where=("socket",), text="the embedded engine listens on a port: set port")
    if len(profile.models) > 1:
        text = "the embedded engine answers to one name only: keep one"
        yield Problem(where=("served",), text=text)


def _memory(_profile: Profile) -> MemoryUse:
    return MemoryUse(loading=LlamaCppLoading(default_ctx=_DEFAULT_CTX, sets_types=False))


def _declared(profile: Profile) -> Iterator[DeclaredFact]:
    yield from llama_cpp_report.context_fact(profile.ctx or _DEFAULT_CTX)
    yield exactly(Topic.SLOTS, "parallel", profile.parallel or 1)
    yield model_fact(profile)
    yield exactly(Topic.GPU_LAYERS, "gpus", 0)


ENGINE: Final = Engine(
    # cpp-httplib sets SO_REUSEPORT, from 2025 on SO_REUSEADDR.
    port_reuse=("address", "port"),
    name="xllamacpp",
    options=XllamacppOptions,
    invocation=_invocation,
    problems=_problems,
    needs_binary=False,
    needs_python_module="xllamacpp",
    packaged_model="smollm2",
    default_gpus=(),
    weights="gguf",
    memory=_memory,
    # No projector is ever loaded.
    vision=lambda _profile: False,
    declared=_declared,
    # Its list of slots is shut: it shows other clients' requests.
    self_report=replace(llama_cpp_report.REPORT, pages=(llama_cpp_report.PROPS,)),
    metrics=llama_cpp_report.METRICS,
    # Its build number is always b0: the version is that of the wheel.
    probing=replace(llama_cpp_report.PROBING, version_of_module="xllamacpp"),
)
