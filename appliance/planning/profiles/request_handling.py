"""Handling of a profile's requests by the gateway, compiled from what its owner wrote."""

from collections.abc import Iterator
from typing import Final

from appliance.domain.profile import Handling
from appliance.domain.spec import GatewayTable, Problem, Profile, Thinking

_TEMPLATE_WORDS: Final = (
    "enable_thinking",  # Qwen, GLM, Gemma, Nemotron, InternLM and most others
    "enable_reasoning",
    "force_reasoning",  # HyperCLOVA
    "reasoning",  # Command A
    "reasoning_effort",  # gpt-oss, Mistral, Hunyuan, DeepSeek
    "reasoning_mode",
    "skip_reasoning",  # HyperCLOVA
    "think",
    "thinking",  # DeepSeek, Granite, Kimi
    "thinking_budget",  # Seed-OSS
    "thinking_effort",
    "thinking_mode",  # MiniMax
    "thinking_option",  # Ling, Ring
)
THINKING: Final = (
    *(f"chat_template_kwargs.{word}" for word in _TEMPLATE_WORDS),
    "chat_template",  # vLLM, when it trusts request parameters so far
    "enable_thinking",
    "output_config.effort",
    "reasoning",
    "reasoning_budget",
    "reasoning_budget_end_tag",
    "reasoning_budget_end_tags",
    "reasoning_budget_message",
    "reasoning_budget_start_tag",
    "reasoning_budget_tokens",
    "reasoning_effort",
    "think",
    "thinking",
    "thinking_budget",
    "thinking_budget_tokens",
    "thinking_token_budget",
)
"""Request parameters that switch thinking on or give it a budget: those of the chat templates, of
llama-server (server-common.cpp, server-task.cpp), vLLM and SGLang (the protocol.py of their OpenAI
and Anthropic entry points), and of the OpenAI (`reasoning`), Anthropic (`thinking`,
`output_config`) and Ollama (`think`) interfaces, as of November 2026."""


def handling_of(profile: Profile) -> Handling:
    """Return the handling that is installed; no client can turn on thinking that is off.

    Removing the client's parameter is enough, since the engine is started with thinking off. A
    parameter that the owner sets stays.
    """
    written = profile.gateway
    stripped = written.strip_parameters
    if profile.thinking is Thinking.OFF:
        more = (p for p in THINKING if p not in stripped and not _is_set(p, written))
        stripped = (*stripped, *more)
    return Handling(
        set_parameters=written.set_parameters,
        strip_parameters=stripped,
        on_request=written.switch == "on-request",
        engine_key_file=written.engine_key_file,
    )


def _is_set(parameter: str, written: GatewayTable) -> bool:
    """Tell whether the owner sets a parameter, or one within it."""
    return any(_reaches(parameter, path) for path in written.set_parameters)


def _reaches(outer: str, path: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def handling_problems(profile: Profile) -> Iterator[Problem]:
    """Return a problem for each parameter that is both set and removed."""
    for place, stripped in enumerate(profile.gateway.strip_parameters):
        for path in profile.gateway.set_parameters:
            if _reaches(stripped, path) or _reaches(path, stripped):
                text = f'"{stripped}" is removed, and "{path}" is set: keep one'
                yield Problem(where=("gateway", "strip", place), text=text)
