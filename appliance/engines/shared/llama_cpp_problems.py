"""Rules for the options that the servers of llama.cpp and of its forks have in common."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from appliance.engines.shared.llama_cpp_options import LlamaCppOptions
from appliance.model.profile_values import KvCache
from appliance.model.spec import Problem, Profile, Where

DEFAULT_BATCH: Final = 2048
"""Tokens of a logical batch, where nothing is said."""

Rule = tuple[str, bool, str]
"""Key of the engine's table, whether its value is wrong, and a sentence that says why."""


def cache_type_problems(
    kv: KvCache | None, where: Where, types: Sequence[str], server: str
) -> Iterator[Problem]:
    """Find a type of the cache that a server of llama.cpp does not have.

    Args:
        kv: Types of keys and values; None: the server's own.
        where: Place of the key in a file.
        types: Types that the server has.
        server: Name of the server, for people.
    """
    sides = () if kv is None else (kv.k, kv.v)
    for side in [side for side in sides if side not in types][:1]:
        text = f'kv "{side}" is unknown to {server}: use one of {", ".join(types)}'
        yield Problem(where=where, text=text)


def option_problems(
    profile: Profile, options: LlamaCppOptions, further: Iterable[Rule] = ()
) -> Iterator[Problem]:
    """Find options of an engine's table that contradict one another, or the rest of the profile.

    Args:
        profile: The profile.
        options: Its engine's table.
        further: Rules for the options that only this engine has.
    """
    if profile.adapters:
        text = (
            f"{profile.engine} has no names for adapters: make a profile for each, with its file in lora of"
            f" [{profile.engine}], which every request to it is answered with"
        )
        yield Problem(where=("adapters",), text=text)
    for key, is_wrong, text in (*_rules(profile, options), *further):
        if is_wrong:
            yield Problem(where=(profile.engine, key), text=text)


def _rules(profile: Profile, options: LlamaCppOptions) -> Iterator[Rule]:
    batch = options.batch or DEFAULT_BATCH
    yield (
        "ubatch",
        (options.ubatch or 0) > batch,
        f"ubatch {options.ubatch} is above batch {batch}, which would clamp it: raise batch",
    )
    yield (
        "gpu_layers",
        profile.gpus == () and options.gpu_layers not in {None, 0},
        "this profile claims no GPU: set gpus, or remove gpu_layers",
    )
    yield (
        "cpu_experts",
        profile.gpus == () and bool(options.cpu_experts),
        "without GPUs all experts are in host RAM: remove cpu_experts",
    )
    yield (
        "n_cpu_moe",
        options.n_cpu_moe is not None and bool(options.cpu_experts),
        "cpu_experts names layers too: keep one of the two",
    )
    yield (
        "main_gpu",
        profile.gpus != "all" and (options.main_gpu or 0) >= max(1, len(profile.gpus)),
        "main_gpu counts the claimed GPUs from 0, and there are fewer",
    )
    yield (
        "chat_template_kwargs",
        profile.thinking is not None and "enable_thinking" in options.chat_template_kwargs,
        "enable_thinking is what the key thinking says: keep one of the two",
    )
