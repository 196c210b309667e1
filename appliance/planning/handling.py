"""How the gateway treats requests for a profile: from what its owner wrote to what is installed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from appliance.domain.gateway import Routed
from appliance.domain.profile import Applied, Handling
from appliance.domain.spec import Profile, Thinking
from appliance.planning.problems import Problem

_PATTERN: Final = frozenset("*?[")
THINKING: Final = (
    "chat_template_kwargs.enable_thinking",
    "chat_template_kwargs.thinking",
    "chat_template_kwargs.thinking_budget",
    "chat_template_kwargs.reasoning_effort",
    "enable_thinking",
    "reasoning",
    "reasoning_budget",
    "reasoning_effort",
    "thinking",
    "thinking_budget_tokens",
    "thinking_token_budget",
)
"""What switches thinking on in a request: the templates' own words, those of llama-server and
vLLM, and those of the OpenAI (`reasoning`) and Anthropic (`thinking`) interfaces."""


def handling_of(profile: Profile) -> Handling:
    """What is installed: a server that has thinking off is not talked out of it.

    Taking the client's word away is enough, since the engine is started with thinking off. What
    the owner sets on purpose stays.
    """
    written = profile.gateway
    if profile.thinking is not Thinking.OFF:
        return written
    ours = (p for p in THINKING if p not in written.strip_parameters and not _is_set(p, written))
    return replace(written, strip_parameters=(*written.strip_parameters, *ours))


def _is_set(parameter: str, written: Handling) -> bool:
    """Whether the owner sets it, or something within it."""
    return any(_reaches(parameter, path) for path in written.set_parameters)


def _reaches(outer: str, path: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")


def handling_problems(profile: Profile) -> Iterator[Problem]:
    """What is set and taken out at once."""
    for place, stripped in enumerate(profile.gateway.strip_parameters):
        for path in profile.gateway.set_parameters:
            if _reaches(stripped, path) or _reaches(path, stripped):
                text = f'"{stripped}" is taken out, and "{path}" is set: keep one'
                yield Problem(where=("gateway", "strip", place), text=text)


def routed(applied: Applied, engine_key: str | None = None) -> Routed:
    """A profile as the gateway sees it.

    Args:
        applied: As it is installed.
        engine_key: What the engine wants as a bearer token; None: nothing.
    """
    names = (*(s for s in applied.served if not set(s) & _PATTERN), applied.name)
    return Routed(
        name=applied.name,
        served=applied.served,
        engine_name=names[0],
        endpoint=applied.endpoint,
        exclusive=bool(applied.claim.devices),
        set_parameters=applied.handling.set_parameters,
        strip_parameters=applied.handling.strip_parameters,
        on_request=applied.handling.on_request,
        engine_key=engine_key,
    )
