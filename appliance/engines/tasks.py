"""What an engine is run for: it generates text, or it pools (embeds, ranks, classifies).

An engine that pools answers no completion, so the request that proves its start is another one. What
a profile asks for goes first (``warm_up``), then its options, then what vLLM and SGLang would choose
themselves from the model's own files.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import zip_longest
from typing import Final

from appliance.domain.model_headers import Safetensors
from appliance.domain.problems import Problem
from appliance.domain.profile import WarmUp
from appliance.domain.spec import Engine, LlamaServerOptions, Profile


class Task(StrEnum):
    """What an engine answers."""

    GENERATE = "generate"
    EMBED = "embed"
    """Embeddings, and scores that llama-server gives on the same path."""
    CLASSIFY = "classify"
    """Classes, scores and rewards, on paths that differ between engines and their versions."""


_PROOF: Final = {
    Task.GENERATE: WarmUp.COMPLETION,
    Task.EMBED: WarmUp.EMBEDDING,
    Task.CLASSIFY: WarmUp.NONE,
}
_GENERATED: Final = frozenset({WarmUp.COMPLETION, WarmUp.CHAT})

_TASKS: Final = {
    "classify": Task.CLASSIFY,
    "embed": Task.EMBED,
    "embedding": Task.EMBED,
    "generate": Task.GENERATE,
    "reward": Task.CLASSIFY,
    "score": Task.CLASSIFY,
}
"""Values of vLLM's ``--convert``, and of ``--task`` before 0.10."""
_RUNNERS: Final = {"generate": Task.GENERATE, "pooling": Task.EMBED}
"""Values of vLLM's ``--runner``; a pooling one embeds unless ``--convert`` says otherwise."""

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


def warm_up_of(profile: Profile, model: Safetensors | None) -> WarmUp:
    """The request that proves a start of `profile`.

    Args:
        profile: A valid one.
        model: Its model's headers; None: not read, or of another format.
    """
    if profile.warm_up is not None:
        return profile.warm_up
    asked = _asked(profile)
    if asked is None and model is not None:
        asked = _offered(profile, model)
    return _PROOF[asked or Task.GENERATE]


def task_problems(profile: Profile) -> Iterator[Problem]:
    """The problem of a ``warm_up`` that the engine, run as the profile says, cannot answer."""
    asked = _asked(profile)
    if asked in {Task.EMBED, Task.CLASSIFY} and profile.warm_up in _GENERATED:
        text = (
            f'"{profile.warm_up}" gets no answer from an engine that is run to {asked}: remove it,'
            f' or write "{_PROOF[asked]}"'
        )
        yield Problem(where=("warm_up",), text=text)


def _asked(profile: Profile) -> Task | None:
    """What the profile's options say; None: nothing."""
    match profile.engine:
        case Engine.LLAMA_SERVER:
            embeds = isinstance(profile.options, LlamaServerOptions) and profile.options.embedding
            ranks = bool({"--rerank", "--reranking"} & set(profile.extra_args))
            return Task.EMBED if embeds or ranks else None
        case Engine.SGLANG:
            return Task.EMBED if "--is-embedding" in map(_dashed, profile.extra_args) else None
        case Engine.VLLM:
            values = _values(profile.extra_args)
            converted = _TASKS.get(values.get("--convert", "")) or _TASKS.get(
                values.get("--task", "")
            )
            return converted or _RUNNERS.get(values.get("--runner", ""))
        case _:
            return None


def _offered(profile: Profile, model: Safetensors) -> Task | None:
    """What the engine makes of a model when nobody says; None: not known."""
    if model.pools and profile.engine is Engine.VLLM:
        return Task.EMBED
    architectures = model.config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    for name in names[:1]:
        for suffix, task in _SUFFIXES:
            if isinstance(name, str) and name.endswith(suffix):
                return task
    return None


def _dashed(argument: str) -> str:
    return argument.replace("_", "-")


def _values(arguments: tuple[str, ...]) -> dict[str, str]:
    """Values of long options, written ``--a b`` or ``--a=b``; of a repeated one the last."""
    found: dict[str, str] = {}
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            found[_dashed(name)] = value if equals else following
    return found
