"""Placements of options whose values are not simply those of their keys, by the key."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from appliance.engines.shared.option_table import TypedOption
from appliance.profiles.foreign.container_settings import indexes_of
from appliance.profiles.foreign.option_placement import (
    AS_BY_DEFAULT,
    NO_INDEXES,
    OptionPlacement,
    SpecialPlacement,
)
from appliance.profiles.foreign.option_reading import EngineOption
from appliance.profiles.foreign.option_values import HF_REPOSITORY, json_table, whole_number
from appliance.profiles.foreign.server_command import Argument, DispositionKind

_ALL_LAYERS: Final = 99
"""Number of layers from which people mean all of them."""
_RANK: Final = "--max-lora-rank"
_HF_OPTIONS: Final = frozenset({"--hf-repo", "-hf", "-hfr"})
_DEVICE_NAME: Final = re.compile(r"\A(?:CUDA|ROCm|Vulkan|SYCL|HIP)")
_SIXTEEN_BITS: Final = {"float16": "f16", "half": "f16", "bfloat16": "bf16"}
_TRUTHS: Final = {"on": True, "1": True, "true": True, "off": False, "0": False, "false": False}
_THINKING: Final = "enable_thinking"
_DRAFT_JSON: Final[Mapping[str, str]] = {
    "method": "speculative.method",
    "num_speculative_tokens": "speculative.tokens",
    "model": "speculative.model",
    "draft_tensor_parallel_size": "speculative.tensor_parallel",
    "kv_cache_dtype": "speculative.kv",
    "prompt_lookup_max": "speculative.ngram.match",
    "prompt_lookup_min": "speculative.ngram.min_match",
}
"""Keys by the name in vLLM's --speculative-config."""


def _place_model(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    word = option.word
    if option.name in _HF_OPTIONS and word.is_known:
        word = replace(word, text=f"hf:{word.text}")
    placement.place_model(option, word)


def _place_served(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    names = [name for word in option.values for name in word.text.split(",") if name]
    placement.served = list(dict.fromkeys([*names, *placement.served]))
    placement.keep(option, "served")


def _place_adapters(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    """Place adapters, written ``name=path``, as JSON or as a path alone, and the highest of their ranks."""
    if typed.flag.names[0] == _RANK:
        placement.adapter_rank = whole_number(option.value) or 0
    elif option.values:
        placed = [_adapter(placement, word) for word in option.values]
        if lost := [path for _, path in placed if not path.is_known]:
            placement.tell(option, DispositionKind.DROPPED, lost[0].note)
            return
        placement.adapters = {name: path.text for name, path in placed}
    placement.keep(option, "adapters")


def _adapter(placement: OptionPlacement, word: Argument) -> tuple[str, Argument]:
    values = json_table(word.text) or {}
    name, _, path = word.text.partition("=")
    name = str(values.get("name", values.get("lora_name", name)))
    path = str(values.get("path", values.get("lora_path", path or name)))
    if HF_REPOSITORY.match(path):
        return name, replace(word, text=f"hf:{path}")
    return name, placement.paths.located(replace(word, text=path))


def _place_ctx(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    number = whole_number(option.value)
    if number is not None and number > 0:
        placement.total_ctx = number
        placement.keep(option, "ctx")
    else:
        reason = "ctx unset: as many tokens as the model was made for"
        placement.tell(option, DispositionKind.CHANGED, reason)


def _place_parallel(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    number = whole_number(option.value)
    if number is not None and number > 0:
        placement.set("parallel", number, option)
    else:
        placement.tell(option, DispositionKind.CHANGED, "parallel unset: one request at a time")


def _place_kv(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    placement.set(typed.key, _SIXTEEN_BITS.get(option.value, option.value), option)


def _place_thinking(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    if option.value in {"on", "off"}:
        placement.set("thinking", option.value, option)
    elif option.value == "auto":
        placement.tell(option, DispositionKind.CARRIED, AS_BY_DEFAULT)
    else:
        placement.tell(option, DispositionKind.DROPPED, "thinking is on, off or a budget")


def _place_budget(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    number = whole_number(option.value)
    if number is None:
        placement.tell(option, DispositionKind.DROPPED, "a budget of thinking is a number")
    elif number < 0:
        placement.tell(option, DispositionKind.CARRIED, AS_BY_DEFAULT)
    else:
        placement.set("thinking", {"budget": number} if number else "off", option)


def _place_chat_kwargs(
    placement: OptionPlacement, option: EngineOption, typed: TypedOption
) -> None:
    """Place variables of the template; the one that switches thinking is the key ``thinking``."""
    values = json_table(option.value)
    if values is None:
        placement.tell(option, DispositionKind.DROPPED, f"{typed.shown}: is no JSON object")
        return
    if isinstance(is_on := values.pop(_THINKING, None), bool):
        placement.set("thinking", "on" if is_on else "off", option)
    if values or is_on is None:
        placement.set(typed.key, values, option)


def _place_json(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    values = json_table(option.value)
    if values is None:
        placement.tell(option, DispositionKind.DROPPED, f"{typed.shown}: is no JSON object")
    else:
        placement.set(typed.key, values, option)


def _place_tools(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    if option.values:
        placement.set("tool_parser", option.value, option)
    else:
        placement.keep(option, "tool_parser")


def _place_gpus(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    given = ",".join(word.text for word in option.values)
    if given in {"none", "cpu"}:
        placement.gpus = ()
        placement.keep(option, "gpus")
        return
    numbers = [_DEVICE_NAME.sub("", name.strip()) for name in given.split(",")]
    found = indexes_of(",".join(numbers))
    if found is None:
        placement.tell(option, DispositionKind.DROPPED, NO_INDEXES)
    else:
        placement.gpus = found
        placement.keep(option, "gpus")


def _place_layers(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    number = whole_number(option.value)
    if option.value == "auto":
        reason = "gpu_layers unset: all with GPUs, 0 without"
        placement.tell(option, DispositionKind.CHANGED, reason)
    elif option.value == "all":
        placement.set(typed.key, "all", option)
    elif number is None:
        placement.tell(option, DispositionKind.DROPPED, f"{typed.shown}: is no number of layers")
    elif number < 0 or number >= _ALL_LAYERS:
        placement.set(typed.key, "all", option, f"was {option.value}")
    else:
        placement.set(typed.key, number, option)


def _place_cpus(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    """Place CPUs, which a mask or a range names, as ranges."""
    try:
        value = typed.read(option.value)
    except ValueError as error:
        placement.tell(option, DispositionKind.DROPPED, f"{typed.shown}: {error}")
        return
    text = _ranges(value) if isinstance(value, list | tuple) else value
    placement.set(typed.key, text, option)


def _place_max_tokens(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    if (whole_number(option.value) or 0) < 0:
        placement.tell(option, DispositionKind.CARRIED, AS_BY_DEFAULT)
    else:
        placement.place_key(option, typed)


def _place_experts(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    placement.set(typed.key, "all", option)


def _place_flash(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    given = option.value or "on"
    placement.set(typed.key, _TRUTHS.get(given, given), option)


def _place_loading(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    """Place what says how the model's file is read: one mode, whichever options of older builds said it."""
    mode = "llama-server.load_mode"
    before = placement.keys.get(("llama-server", "load_mode"))
    was = before.value if before is not None else ""
    match option.name:
        case "--load-mode" | "-lm":
            placement.set(mode, option.value, option)
        case "--mlock":
            placement.set(mode, "mlock" if was == "none" else "mmap+mlock", option)
        case "--no-mmap":
            placement.set(mode, "mlock" if was == "mmap+mlock" else "none", option)
        case "--direct-io":
            placement.set(mode, "dio", option)
        case _:
            placement.tell(option, DispositionKind.CARRIED, AS_BY_DEFAULT)


def _place_methods(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    methods = [part.strip() for part in option.value.split(",") if part.strip() != "none"]
    if methods:
        placement.set(typed.key, methods[0] if len(methods) == 1 else methods, option)
    else:
        placement.tell(option, DispositionKind.CARRIED, AS_BY_DEFAULT)


def _place_draft_model(
    placement: OptionPlacement, option: EngineOption, typed: TypedOption
) -> None:
    if HF_REPOSITORY.match(option.value):
        placement.set(typed.key, f"hf:{option.value}", option)
        return
    located = placement.paths.located(option.word)
    if located.is_known:
        placement.set(typed.key, located.text, option, located.note)
    else:
        placement.tell(option, DispositionKind.DROPPED, located.note)


def _place_draft_tokens(
    placement: OptionPlacement, option: EngineOption, typed: TypedOption
) -> None:
    """Place the length of drafts; SGLang names it by steps, or by steps and the token after them."""
    number = whole_number(option.value)
    if number is None or number < 1:
        placement.tell(option, DispositionKind.DROPPED, f"{typed.shown}: is no number of tokens")
    elif option.name == "--speculative-eagle-topk":
        outcome = DispositionKind.CARRIED if number == 1 else DispositionKind.DROPPED
        placement.tell(option, outcome, "one chain of drafts in each step")
    elif option.name != "--speculative-num-draft-tokens":
        placement.set(typed.key, number, option)
    elif ("speculative", "tokens") in placement.keys:
        placement.keep(option, "[speculative] tokens")
    else:
        placement.set(typed.key, max(number - 1, 1), option)


def _place_draft_device(
    placement: OptionPlacement, option: EngineOption, typed: TypedOption
) -> None:
    placement.set(typed.key, option.value.split(","), option)


def _place_draft_json(
    placement: OptionPlacement, option: EngineOption, _typed: TypedOption
) -> None:
    values = json_table(option.value)
    if values is None or not values.keys() & {"method", "model"}:
        placement.tell(option, DispositionKind.DROPPED, "it names neither a method nor a model")
        return
    left_out = sorted(values.keys() - _DRAFT_JSON.keys())
    note = f"without {', '.join(left_out)}" if left_out else ""
    for name, key in _DRAFT_JSON.items():
        value = values.get(name)
        if isinstance(value, str) and name == "model":
            value = f"hf:{value}" if HF_REPOSITORY.match(value) else value
        if value is not None:
            placement.set(key, value, option, note)


SPECIAL: Final[Mapping[str, SpecialPlacement]] = {
    "model": _place_model,
    "served": _place_served,
    "adapters": _place_adapters,
    "ctx": _place_ctx,
    "parallel": _place_parallel,
    "kv": _place_kv,
    "thinking": _place_thinking,
    "thinking.budget": _place_budget,
    "tool_parser": _place_tools,
    "gpus": _place_gpus,
    "speculative": _place_draft_json,
    "speculative.method": _place_methods,
    "speculative.model": _place_draft_model,
    "speculative.tokens": _place_draft_tokens,
    "speculative.gpu_layers": _place_layers,
    "speculative.device": _place_draft_device,
    "speculative.kv": _place_kv,
    "llama-server.gpu_layers": _place_layers,
    "llama-server.cpu_experts": _place_experts,
    "llama-server.flash_attn": _place_flash,
    "vllm.override_generation_config": _place_json,
    "llama-server.cpus": _place_cpus,
    "sampling.max_tokens": _place_max_tokens,
    "llama-server.mlock": _place_loading,
    "llama-server.load_mode": _place_loading,
    **{
        f"{engine}.chat_template_kwargs": _place_chat_kwargs
        for engine in ("llama-server", "sglang", "vllm")
    },
}
"""Placements by `TypedOption.key`."""


def _ranges(numbers: Iterable[int]) -> str:
    """Return increasing numbers as ``0,2,4-9``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in found)
