"""Compilation of a profile: the specification of its unit, with the form that the daemons and the CLI read.

The compiled form has the fingerprint of the configuration, because another configuration may take another amount of
memory, the request that proves a start, because an engine that embeds, ranks or classifies answers no completion, and
the handling of requests, which the gateway follows.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared.engine import Task
from appliance.engines.shared.invocation import (
    Invocation,
    InvocationContext,
    hf_cache_path,
    hf_repository,
)
from appliance.model.claims import NOTHING, Claim, claim_on
from appliance.model.engine_build import spelled
from appliance.model.model_headers import (
    AdapterRanks,
    LookAtModel,
    ModelFileFault,
    ModelReference,
    Safetensors,
    Unread,
)
from appliance.model.profile import Abilities, Adapter, Applied, Handling, Need, WarmUp
from appliance.model.spec import AdapterTable, Profile
from appliance.profiles.estimates.estimating import Estimated, estimated
from appliance.switch.units.backend_unit import UnitSpec
from appliance.switch.verification import declared_facts

PROOF: Final = {
    Task.GENERATE: WarmUp.COMPLETION,
    Task.EMBED: WarmUp.EMBEDDING,
    Task.CLASSIFY: WarmUp.NONE,
}
"""Requests that prove a start, by what the engine is run for."""
_VISION_CONFIG: Final = "vision_config"
"""Key of a model's ``config.json`` that describes its encoder of images, in the models of Hugging
Face's transformers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSource:
    """File that a profile was read from."""

    path: str
    sha256: str
    """SHA-256 of the file's bytes, in hexadecimal."""
    modified_unix_s: int = 0
    """Unix seconds of the file's last change; 0: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """Targets of the paths of an invocation, links followed."""

    files: tuple[str, ...] = ()
    """Further files that the engine reads."""
    places: tuple[str, ...] = ()
    """Targets of links on the way to the model and to `files`."""
    programs: tuple[str, ...] = ()


Follow = Callable[[Applied, Sequence[str], Sequence[str]], Reached]
"""Function that follows the links of a profile's model, arguments and further programs; never
raises."""


def unfollowed(_applied: Applied, _words: Sequence[str], _programs: Sequence[str]) -> Reached:
    """Report no links: `Follow` for callers without a file system."""
    return Reached()


def claim_of(profile: Profile) -> Claim:
    """Return the devices that `profile` owns while it runs; see `appliance.model.claims`."""
    return NOTHING if profile.shared else claim_on(profile.gpus)


def unseen(_reference: ModelReference) -> Unread:
    """Report every model as missing: `LookAtModel` for callers without a file system."""
    return Unread(fault=ModelFileFault.MISSING, problem="not looked at")


def unranked(directories: Sequence[str]) -> tuple[None, ...]:
    """Report no ranks: `AdapterRanks` for callers without a file system."""
    return (None,) * len(directories)


def spec_of(
    profile: Profile,
    source: ProfileSource,
    context: InvocationContext,
    *,
    user: str | None = None,
    look: LookAtModel = unseen,
    ranks_of: AdapterRanks = unranked,
    follow: Follow = unfollowed,
) -> UnitSpec:
    """Return the specification of the unit of `profile`.

    Args:
        profile: A valid one.
        source: Its file.
        context: The box.
        user: User of backends whose profile names none; None: each has a user of its own.
        look: Reads the headers of its model.
        ranks_of: Reads the ranks of its adapters.
        follow: Finds where the paths of an invocation lead to.
    """
    ranked = _with_ranks(profile, context.hf_home, ranks_of)
    invocation = ENGINES[profile.engine].invocation(ranked, context)
    found = estimated(ranked, model_path(profile.model, context.hf_home), look)
    applied = _applied(ranked, source, invocation, context.hf_home, found)
    reached = follow(
        applied, invocation.argv[1:], profile.patch.command[:1] if profile.patch else ()
    )
    return UnitSpec(
        profile=profile,
        applied=replace(
            applied,
            user=profile.user or user or "",
            files=reached.files,
            places=reached.places,
            programs=reached.programs,
        ),
        invocation=invocation,
        traits=found.traits,
    )


def _applied(
    profile: Profile,
    source: ProfileSource,
    invocation: Invocation,
    hf_home: str,
    found: Estimated,
) -> Applied:
    """Return `profile` as it is installed, still without the profiles that it conflicts with."""
    engine = ENGINES[profile.engine]
    memory = engine.memory(profile)
    draft = None if profile.speculative is None else profile.speculative.model
    return Applied(
        name=profile.name,
        description=profile.description,
        engine=profile.engine,
        model=profile.model,
        model_path=model_path(profile.model, hf_home),
        binary=invocation.argv[0],
        command=invocation.argv if engine.build_question else (),
        served=profile.served,
        endpoint=profile.endpoint,
        health_path=invocation.health_path,
        claim=claim_of(profile),
        need=Need(vram_bytes=profile.need.vram_bytes, ram_bytes=profile.need.ram_bytes),
        deadlines=profile.deadlines,
        warm_up=warm_up_of(profile, found.weights),
        first_mark=profile.mark,
        source_path=source.path,
        source_sha256=source.sha256,
        fingerprint=fingerprint(profile, invocation, found.file_bytes),
        gpus=profile.gpus,
        gpu_split=memory.gpu_split,
        vram_fraction=memory.vram_fraction,
        ram_fraction=memory.ram_fraction,
        estimate=found.estimate,
        estimate_problem=found.problem,
        locks_memory=memory.locks_memory,
        shares_cache=memory.shares_cache,
        assume_free=profile.need.assume_free,
        speculative=profile.speculative is not None,
        draft_path=None if draft is None else model_path(draft, hf_home),
        adapters=tuple(
            Adapter(
                name=adapter.name,
                engine_name=engine.adapter_name(profile, adapter.name),
                path=_adapter_path(adapter, hf_home),
                most_rank=engine.most_rank(profile),
            )
            for adapter in profile.adapters
        ),
        tools=engine.tools(profile) if profile.tools is None else profile.tools,
        abilities=_abilities_of(profile, found.weights),
        context_tokens=found.context_tokens,
        file_unix_s=found.modified_unix_s or source.modified_unix_s,
        declared=declared_facts(profile, found.gpu_weights),
        handling=handling_of(profile),
    )


def model_path(model: str, hf_home: str) -> str | None:
    """Return the file or directory of `model`; None: nothing on disk to check."""
    repository = hf_repository(model)
    if repository is not None:
        return hf_cache_path(repository, hf_home)
    return model if model.startswith("/") else None


def _with_ranks(profile: Profile, hf_home: str, ranks_of: AdapterRanks) -> Profile:
    """Return `profile` with the ranks of adapters, as their own files have them, where it says none."""
    open_ones = [adapter for adapter in profile.adapters if adapter.rank is None]
    if not open_ones:
        return profile
    ranks = ranks_of([_adapter_path(adapter, hf_home) for adapter in open_ones])
    found = {adapter.name: rank for adapter, rank in zip(open_ones, ranks, strict=True)}
    adapters = (replace(a, rank=found.get(a.name, a.rank)) for a in profile.adapters)
    return replace(profile, adapters=tuple(adapters))


def _adapter_path(adapter: AdapterTable, hf_home: str) -> str:
    return model_path(adapter.path, hf_home) or adapter.path


def fingerprint(profile: Profile, invocation: Invocation, weights_bytes: int | None) -> str:
    """Return the SHA-256 in hexadecimal of everything that decides how much memory `profile` takes.

    Args:
        profile: The profile.
        invocation: What its engine is started with.
        weights_bytes: Size of the model's files; None: not known. Another file under the same
            name is another model.
    """
    facts = {
        # Another spelling of an option takes no other memory.
        "argv": spelled(invocation.argv, None),
        "environment": dict(invocation.environment),
        "gpus": profile.gpus,
        "patch": None if profile.patch is None else asdict(profile.patch),
        "weights_bytes": weights_bytes,
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def warm_up_of(profile: Profile, model: Safetensors | None) -> WarmUp:
    """Return the request that proves a start of `profile`.

    The profile's ``warm_up`` goes first, then its options, then what the engine would choose itself
    from the model's own files.

    Args:
        profile: A valid one.
        model: Its model's headers; None: not read, or of another format.
    """
    if profile.warm_up is not None:
        return profile.warm_up
    engine = ENGINES[profile.engine]
    task = engine.task(profile)
    if task is None and model is not None:
        task = engine.model_task(model)
    return PROOF[task or Task.GENERATE]


def _abilities_of(profile: Profile, model: Safetensors | None) -> Abilities:
    """Return what a profile's model is able to do, as far as that is known before it runs.

    The profile's ``vision`` and ``thinking`` go first, then the engine's options, then the model's
    own files. Who generates embeds nothing: engines are started for one of the two.

    Args:
        profile: A valid one.
        model: Its model's headers; None: not read, or of another format.
    """
    engine = ENGINES[profile.engine]
    vision = engine.vision(profile) if profile.vision is None else profile.vision
    if vision is None and model is not None and model.config:
        vision = _VISION_CONFIG in model.config
    reasoning = engine.reasoning(profile) if profile.thinking is None else profile.thinking.on
    embeddings = {WarmUp.EMBEDDING: True, WarmUp.NONE: None}.get(warm_up_of(profile, model), False)
    return Abilities(vision=vision, embeddings=embeddings, reasoning=reasoning)


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
        more = (
            parameter
            for parameter in undoing
            if parameter not in stripped and not any(reaches(parameter, path) for path in given)
        )
        stripped = (*stripped, *more)
    return Handling(
        set_parameters=given,
        strip_parameters=stripped,
        on_request=written.switch == "on-request",
        keep_names=written.keep_names,
        engine_key_file=written.engine_key_file,
    )


def reaches(outer: str, path: str) -> bool:
    """Tell whether a path is a request parameter or within it."""
    return path == outer or path.startswith(f"{outer}.")
