"""Handling of a profile's requests by the gateway, compiled from what its owner wrote."""

from collections.abc import Iterator, Mapping
from typing import Final

from appliance.engines import ENGINES
from appliance.model.profile import Handling
from appliance.model.spec import Problem, Profile

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
    "thinking_effort",
    "thinking_mode",  # MiniMax
    "thinking_option",  # Ling, Ring
)
BUDGETS: Final = (
    "chat_template_kwargs.thinking_budget",
    "custom_params.thinking_budget",  # SGLang, as the next
    "max_thinking_tokens",
    "reasoning_budget",
    "reasoning_budget_end_tag",
    "reasoning_budget_end_tags",
    "reasoning_budget_message",
    "reasoning_budget_start_tag",
    "reasoning_budget_tokens",
    "thinking",  # Anthropic's; llama-server takes 10,000 tokens where it has none
    "thinking_budget",
    "thinking_budget_tokens",
    "thinking_token_budget",
)
"""Request parameters that give thinking a budget."""
THINKING: Final = (
    *(f"chat_template_kwargs.{word}" for word in _TEMPLATE_WORDS),
    "chat_template",  # vLLM, when it trusts request parameters so far
    "enable_thinking",
    "output_config.effort",
    "reasoning",
    "reasoning_effort",
    "think",
    *BUDGETS,
)
"""Request parameters that switch thinking on or give it a budget: those of the chat templates, of
llama-server (server-common.cpp, server-task.cpp), vLLM and SGLang (the protocol.py of their OpenAI
and Anthropic entry points), and of the OpenAI (`reasoning`), Anthropic (`thinking`,
`output_config`) and Ollama (`think`) interfaces, as of November 2026."""


def handling_of(profile: Profile) -> Handling:
    """Return the handling that is installed; no client undoes what the profile says of thinking.

    Removing the client's parameter is enough, since the engine is started with thinking off, or with
    the budget; one that takes a budget from requests alone is sent it in each. A parameter that the
    owner sets stays.
    """
    written = profile.gateway
    stripped = written.strip_parameters
    given = dict(written.set_parameters)
    if (thinking := profile.thinking) is not None:
        undoing = BUDGETS if thinking.budget_tokens else THINKING if not thinking.on else ()
        given = {**ENGINES[profile.engine].thinking_parameters(profile), **given}
        more = (p for p in undoing if p not in stripped and not _is_set(p, given))
        stripped = (*stripped, *more)
    return Handling(
        set_parameters=given,
        strip_parameters=stripped,
        on_request=written.switch == "on-request",
        keep_names=written.keep_names,
        engine_key_file=written.engine_key_file,
    )


def _is_set(parameter: str, given: Mapping[str, object]) -> bool:
    """Tell whether a parameter is set, or one within it."""
    return any(_reaches(parameter, path) for path in given)


def _reaches(outer: str, path: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def handling_problems(profile: Profile) -> Iterator[Problem]:
    """Return a problem for each parameter that is both set and removed."""
    for place, stripped in enumerate(profile.gateway.strip_parameters):
        for path in profile.gateway.set_parameters:
            if _reaches(stripped, path) or _reaches(path, stripped):
                text = f'"{stripped}" is removed, and "{path}" is set: keep one'
                yield Problem(where=("gateway", "strip", place), text=text)
