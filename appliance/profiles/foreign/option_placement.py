"""Placement of an engine's options in a profile: a key, ``extra_args``, or a reason against both.

Which option is which key's, and how its value is read, is the engine's own (`Engine.option_table`), as
are the options that are refused (`Engine.arguments`). Options whose values depend on others, or
that have several spellings, are placed by the functions of `_SPECIAL`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from appliance.engines import ENGINES
from appliance.engines.shared import refused_arguments as why
from appliance.engines.shared.option_table import FlagForm, TypedOption, ValueKind
from appliance.model.profile_values import Gpus
from appliance.profiles.foreign.containers import HostPaths, indexes_of
from appliance.profiles.foreign.launchers import ModelServer
from appliance.profiles.foreign.option_reading import (
    HF_REPOSITORY,
    HIDDEN,
    SECRET,
    EngineOption,
    json_table,
    json_word,
    truth_of,
    whole_number,
)
from appliance.profiles.foreign.profile_draft import EXTRA_ARGS, DraftArgument, DraftKey
from appliance.profiles.foreign.server_command import (
    Argument,
    Disposition,
    DispositionKind,
    PartKind,
)

ALWAYS_SO: Final[Mapping[str, str]] = {
    why.HOST: "a backend listens on loopback: clients of other machines use the gateway",
    why.KEY: "the gateway holds the keys: appliance key add NAME",
    **{reason: reason for reason in (why.TLS, why.CORS, why.METRICS, why.OFFLINE)},
}
"""Sentences about what the appliance does in place of an option, by the reason for which the option is refused."""
NO_INDEXES: Final = "gpus has the indexes of GPUs: these names have none"
_AS_BY_DEFAULT: Final = "it is so without it"
_NO_OPTION: Final = "it is no option, and the engine takes one model"
_MODEL: Final = "model"
_PORT: Final = "--port"
_PATH_OPTIONS: Final = re.compile(
    r"--(?:.*-file|.*-path|lora|lora-scaled|control-vector.*|mmproj|chat-template|download-dir|tokenizer"
    r"|lookup-cache-static|spec-draft-model|model-draft|model-vocoder)\Z|-md\Z|-mm\Z"
)
_SIDES: Final = frozenset({"k", "v"})


class OptionPlacement:
    """Keys and extra arguments of a profile, as far as options have been placed.

    Args:
        server: The server that the options are for.
        paths: Paths of its command.
    """

    def __init__(self, server: ModelServer, paths: HostPaths) -> None:
        engine = ENGINES[server.engine]
        self.engine: Final = server.engine
        self.paths: Final = paths
        self._table = engine.option_table
        self._rules = engine.arguments or why.ArgumentRules(refused={}, keys={})
        self._is_inside = bool(server.command.image)
        self.keys: dict[tuple[str, str], DraftKey] = {}
        self.extra: list[DraftArgument] = []
        self.fates: list[Disposition] = []
        self.served: list[str] = []
        self.adapters: Mapping[str, str] = {}
        """Paths of adapters by name."""
        self.adapter_rank = 0
        """Highest rank of an adapter; 0: not said."""
        self.model = Argument(text="")
        """Model as the options name it; empty: they do not."""
        self.total_ctx: int | None = None
        """Tokens of the context as the engine counts them; None: not said."""
        self.gpus: Gpus | None = server.command.gpus
        self.port: int | None = None

    def switches(self) -> frozenset[str]:
        """Return the options without a value, as far as they have keys."""
        forms = {FlagForm.SWITCH, FlagForm.EITHER}
        found = {name for o in self._table.options if o.flag.form in forms for name in o.names}
        return frozenset(found | {"--enable-auto-tool-choice"})

    def place(self, option: EngineOption) -> None:
        """Put one option where it belongs."""
        typed = self._typed(option.name)
        if option.is_default:
            self.record(option, DispositionKind.CARRIED, _AS_BY_DEFAULT)
            return
        reason = self._rules.reason_against(option.name)
        if reason is not None and option.name != _PORT:
            outcome = DispositionKind.CHANGED if reason in ALWAYS_SO else DispositionKind.DROPPED
            self.record(option, outcome, ALWAYS_SO.get(reason, reason))
        elif option.unknown and (typed is None or typed.key != _MODEL):
            self.record(option, DispositionKind.DROPPED, option.unknown)
        elif option.name == _PORT:
            self.port = whole_number(option.value)
            self.keep(option, "port")
        elif typed is None:
            self.place_extra(option)
        elif (special := _SPECIAL.get(typed.key)) is not None:
            special(self, option, typed)
        else:
            self.place_key(option, typed)

    def place_alone(self, words: Iterable[Argument]) -> None:
        """Place words that belong to no option: the first may be the model."""
        for word in words:
            option = EngineOption(name="", values=(word,), words=(word,))
            if not self.model.text and self.engine != "llama-server":
                self.place_model(option, word)
            else:
                self.record(option, DispositionKind.DROPPED, word.note or _NO_OPTION)

    def place_model(self, option: EngineOption, model: Argument) -> None:
        """Take a model; where it is not known, the option is dropped."""
        self.model = model
        if option.unknown:
            self.record(option, DispositionKind.DROPPED, option.unknown)
        else:
            self.keep(option, _MODEL)

    def place_key(self, option: EngineOption, typed: TypedOption) -> None:
        """Set the key that an option is written from, to what the table reads of its value."""
        values = tuple(self.located(option.name, word) for word in option.values)
        if lost := [word for word in values if not word.is_known]:
            self.record(option, DispositionKind.DROPPED, lost[0].note)
            return
        try:
            value = self._read(option, typed, ",".join(word.text for word in values))
        except ValueError as error:
            self.record(option, DispositionKind.DROPPED, f"{typed.shown}: {error}")
            return
        self.set(typed.key, value, option, "; ".join(word.note for word in values if word.note))

    def place_extra(self, option: EngineOption) -> None:
        """Put an option without a key into ``extra_args``."""
        words = [self.located(option.name, word) for word in option.words]
        if lost := [word for word in words if not word.is_known]:
            self.record(option, DispositionKind.DROPPED, lost[0].note)
            return
        note = "; ".join(dict.fromkeys(word.note for word in words if word.note))
        place = f"{EXTRA_ARGS} {len(self.extra)}"
        texts = tuple(word.text for word in words)
        self.extra.append(DraftArgument(words=texts, comment=note, place=place))
        self.record(
            option, DispositionKind.CHANGED if note else DispositionKind.CARRIED, note, place
        )

    def set(self, path: str, value: object, option: EngineOption, note: str = "") -> None:
        """Set a key by its path, such as ``speculative.ngram.match``; the last of several options counts."""
        table, _, key = path.rpartition(".")
        if key in _SIDES:
            table, _, outer = table.rpartition(".")
            before = self.keys.get((table, outer))
            pair = before.value if before is not None and isinstance(before.value, dict) else {}
            key, value = outer, {**pair, key: value}
        comment = note or option.note
        self.keys[table, key] = DraftKey(table=table, key=key, value=value, comment=comment)
        outcome = DispositionKind.CHANGED if comment else DispositionKind.CARRIED
        self.record(option, outcome, comment, f"[{table}] {key}" if table else key)

    def keep(self, option: EngineOption, place: str) -> None:
        """Record that a key of the profile has an option, with what was assumed."""
        outcome = DispositionKind.CHANGED if option.note else DispositionKind.CARRIED
        self.record(option, outcome, option.note, place)

    def record(
        self, option: EngineOption, outcome: DispositionKind, reason: str = "", place: str = ""
    ) -> None:
        """Record what became of an option."""
        text = masked(option)
        if option.source:
            text = f"{option.source}: {text}"
        self.fates.append(
            Disposition(part=PartKind.OPTION, text=text, outcome=outcome, reason=reason, key=place)
        )

    def located(self, option: str, word: Argument) -> Argument:
        """Return a value with the path in it as the host has it."""
        text = word.text
        is_path = text.startswith(("~/", "./", "../")) or (
            _PATH_OPTIONS.match(option) is not None
            and "/" in text
            and HF_REPOSITORY.match(text) is None
            and not text.startswith("-")
        )
        if is_path or (text.startswith("/") and self._is_inside):
            return self.paths.located(word)
        before, equals, path = text.partition("=")
        if equals and path.startswith("/") and self._is_inside:
            located = self.paths.located(replace(word, text=path))
            return replace(located, text=f"{before}={located.text}")
        return word

    def _typed(self, name: str) -> TypedOption | None:
        """Return the option of the table that a spelling, or the beginning of one, means."""
        spelling = self._rules.spelling_with_key(name)
        return self._table.named(name) or (
            None if spelling is None else self._table.named(spelling)
        )

    def _read(self, option: EngineOption, typed: TypedOption, text: str) -> object:
        """Return the value of an option. Raises `ValueError`."""
        if not option.values:
            if typed.flag.form not in {FlagForm.SWITCH, FlagForm.EITHER, FlagForm.DERIVED}:
                raise ValueError("it has no value")
            return not self._is_contrary(option.name, typed)
        if typed.kind is ValueKind.SWITCH and (truth := truth_of(text)) is not None:
            return truth is not self._is_contrary(option.name, typed)
        number = whole_number(text)
        if typed.kind is ValueKind.WHOLE and number is not None:
            return number
        if typed.flag.form is FlagForm.JSON and (path := option.json_path):
            return self._json_at(typed, path, text)
        if typed.flag.form is FlagForm.REPEATED:
            before = self.keys.get((self.engine, typed.key.rpartition(".")[2]))
            earlier = before.value if before is not None and isinstance(before.value, list) else []
            return [*earlier, *_separate(text)]
        is_count = typed.flag.read is not None and number is not None
        return typed.read(str(number) if is_count else text)

    def _is_contrary(self, name: str, typed: TypedOption) -> bool:
        return name in typed.flag.contrary or (
            name.startswith("--no-") and name not in typed.flag.names
        )

    def _json_at(self, typed: TypedOption, path: tuple[str, ...], text: str) -> object:
        """Return a table with the value of ``--option.key value`` beside those of earlier ones."""
        before = self.keys.get((self.engine, typed.key.rpartition(".")[2]))
        value: object = json_word(text)
        for name in reversed(path):
            value = {name: value}
        outer = before.value if before is not None and isinstance(before.value, dict) else {}
        return {**outer, **value} if isinstance(value, dict) else outer


def _separate(text: str) -> list[str]:
    """Return the overrides ``pattern=buffer`` that commas separate; a comma in a pattern separates none."""
    parts: list[str] = []
    for part in text.split(","):
        if parts and "=" not in parts[-1]:
            parts[-1] = f"{parts[-1]},{part}"
        else:
            parts.append(part)
    return parts


def masked(option: EngineOption) -> str:
    """Return an option's text, without the secret that it may have."""
    if SECRET.search(option.name) is None or not option.values or option.name.endswith("-file"):
        return option.text
    return f"{option.name} {HIDDEN}"


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
            placement.record(option, DispositionKind.DROPPED, lost[0].note)
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
        placement.record(option, DispositionKind.CHANGED, reason)


def _place_parallel(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    number = whole_number(option.value)
    if number is not None and number > 0:
        placement.set("parallel", number, option)
    else:
        placement.record(option, DispositionKind.CHANGED, "parallel unset: one request at a time")


def _place_kv(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    placement.set(typed.key, _SIXTEEN_BITS.get(option.value, option.value), option)


def _place_thinking(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    if option.value in {"on", "off"}:
        placement.set("thinking", option.value, option)
    elif option.value == "auto":
        placement.record(option, DispositionKind.CARRIED, _AS_BY_DEFAULT)
    else:
        placement.record(option, DispositionKind.DROPPED, "thinking is on, off or a budget")


def _place_budget(placement: OptionPlacement, option: EngineOption, _typed: TypedOption) -> None:
    number = whole_number(option.value)
    if number is None:
        placement.record(option, DispositionKind.DROPPED, "a budget of thinking is a number")
    elif number < 0:
        placement.record(option, DispositionKind.CARRIED, _AS_BY_DEFAULT)
    else:
        placement.set("thinking", {"budget": number} if number else "off", option)


def _place_chat_kwargs(
    placement: OptionPlacement, option: EngineOption, typed: TypedOption
) -> None:
    """Place variables of the template; the one that switches thinking is the key ``thinking``."""
    values = json_table(option.value)
    if values is None:
        placement.record(option, DispositionKind.DROPPED, f"{typed.shown}: is no JSON object")
        return
    if isinstance(is_on := values.pop(_THINKING, None), bool):
        placement.set("thinking", "on" if is_on else "off", option)
    if values or is_on is None:
        placement.set(typed.key, values, option)


def _place_json(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    values = json_table(option.value)
    if values is None:
        placement.record(option, DispositionKind.DROPPED, f"{typed.shown}: is no JSON object")
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
        placement.record(option, DispositionKind.DROPPED, NO_INDEXES)
    else:
        placement.gpus = found
        placement.keep(option, "gpus")


def _place_layers(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    number = whole_number(option.value)
    if option.value == "auto":
        reason = "gpu_layers unset: all with GPUs, 0 without"
        placement.record(option, DispositionKind.CHANGED, reason)
    elif option.value == "all":
        placement.set(typed.key, "all", option)
    elif number is None:
        placement.record(option, DispositionKind.DROPPED, f"{typed.shown}: is no number of layers")
    elif number < 0 or number >= _ALL_LAYERS:
        placement.set(typed.key, "all", option, f"was {option.value}")
    else:
        placement.set(typed.key, number, option)


def _place_cpus(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    """Place CPUs, which a mask or a range names, as ranges."""
    try:
        value = typed.read(option.value)
    except ValueError as error:
        placement.record(option, DispositionKind.DROPPED, f"{typed.shown}: {error}")
        return
    text = _ranges(value) if isinstance(value, list | tuple) else value
    placement.set(typed.key, text, option)


def _place_max_tokens(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    if (whole_number(option.value) or 0) < 0:
        placement.record(option, DispositionKind.CARRIED, _AS_BY_DEFAULT)
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
            placement.record(option, DispositionKind.CARRIED, _AS_BY_DEFAULT)


def _place_methods(placement: OptionPlacement, option: EngineOption, typed: TypedOption) -> None:
    methods = [part.strip() for part in option.value.split(",") if part.strip() != "none"]
    if methods:
        placement.set(typed.key, methods[0] if len(methods) == 1 else methods, option)
    else:
        placement.record(option, DispositionKind.CARRIED, _AS_BY_DEFAULT)


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
        placement.record(option, DispositionKind.DROPPED, located.note)


def _place_draft_tokens(
    placement: OptionPlacement, option: EngineOption, typed: TypedOption
) -> None:
    """Place the length of drafts; SGLang names it by steps, or by steps and the token after them."""
    number = whole_number(option.value)
    if number is None or number < 1:
        placement.record(option, DispositionKind.DROPPED, f"{typed.shown}: is no number of tokens")
    elif option.name == "--speculative-eagle-topk":
        outcome = DispositionKind.CARRIED if number == 1 else DispositionKind.DROPPED
        placement.record(option, outcome, "one chain of drafts in each step")
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
        placement.record(option, DispositionKind.DROPPED, "it names neither a method nor a model")
        return
    left_out = sorted(values.keys() - _DRAFT_JSON.keys())
    note = f"without {', '.join(left_out)}" if left_out else ""
    for name, key in _DRAFT_JSON.items():
        value = values.get(name)
        if isinstance(value, str) and name == "model":
            value = f"hf:{value}" if HF_REPOSITORY.match(value) else value
        if value is not None:
            placement.set(key, value, option, note)


_SPECIAL: Final[Mapping[str, Callable[[OptionPlacement, EngineOption, TypedOption], None]]] = {
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
"""Functions that place options whose value is not simply their key's, by `TypedOption.key`."""


def _ranges(numbers: Iterable[int]) -> str:
    """Return increasing numbers as ``0,2,4-9``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in found)
