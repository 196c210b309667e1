"""Engines: a profile becomes an argument list, an environment and a health path.

One module an engine, each with the same three functions: ``render``, ``problems`` and, for the
arguments an owner may add, ``RULES``. Always ours: host, port, metrics on, no fitting behind
our back, offline, CORS shut.
"""

from appliance.domain.problems import Problem
from appliance.domain.spec import (
    LlamaServerOptions,
    Profile,
    SglangOptions,
    VllmOptions,
    XllamacppOptions,
)
from appliance.engines import any_command, llama_server, sglang, vllm, xllamacpp
from appliance.engines.rendering import Launch, LaunchContext

__all__ = ["Launch", "LaunchContext", "launch", "problems"]


def launch(profile: Profile, context: LaunchContext) -> Launch:
    """How to start `profile`. Pure: the same profile and context give the same launch."""
    options = profile.options
    match options:
        case LlamaServerOptions():
            return llama_server.render(profile, options, context)
        case VllmOptions():
            return vllm.render(profile, options, context)
        case SglangOptions():
            return sglang.render(profile, options, context)
        case XllamacppOptions():
            return xllamacpp.render(profile, options, context)
        case _:
            return any_command.render(profile, options, context)


def problems(profile: Profile) -> tuple[Problem, ...]:
    """What the engine of `profile` cannot do, or must not be asked to."""
    options = profile.options
    match options:
        case LlamaServerOptions():
            return llama_server.problems(profile, options)
        case VllmOptions():
            return vllm.problems(profile, options)
        case SglangOptions():
            return sglang.problems(profile, options)
        case XllamacppOptions():
            return xllamacpp.problems(profile)
        case _:
            return any_command.problems(profile, options)
